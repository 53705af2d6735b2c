"""Reports in forms to paste hold exactly the rows' numbers."""

import csv
import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from text_tables import parts

from stsbench.cli.messages import print_result
from stsbench.evaluation import tables
from stsbench.evaluation.api import evaluate
from stsbench.evaluation.plan import changed_settings, plan
from stsbench.evaluation.protocol import kinds
from stsbench.evaluation.records import ProtocolIdentity, ScoreRow
from stsbench.evaluation.rescore import score_again
from stsbench.evaluation.result import Result
from stsbench.protocols.sts import TASKS

SEVEN = ["STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R"]


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report") / "run"
    return evaluate("lexical:token-set", output=folder, sample=True, resamples=20, tasks=["STS12", "STS-B"])


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    return evaluate("lexical:token-set", output=folder, sample=True, resamples=0, similarity="dot", tasks=list(TASKS))


def printed(result, capsys):
    """What is printed, and the cells of its table, line by line, the header first."""
    print_result(result)
    out = capsys.readouterr().out
    return out, parts(out.splitlines())[0]


def rows_of(*rows, protocol="p"):
    """A result that holds these rows only: (task, subset, metric, value, low, high, n)."""
    keys = ("task", "subset", "metric", "value", "low", "high", "n")
    return Result(Path("none"), summaries=[ScoreRow(protocol=protocol, **dict(zip(keys, row, strict=True))) for row in rows])


def test_csv_is_every_row_at_full_precision_and_plain_metrics_are_no_percentages(result):
    rows = list(csv.DictReader(io.StringIO(result.csv())))
    assert len(rows) == len(result.rows) and list(rows[0]) == [*ScoreRow.model_fields, *tables.ORIGIN]
    for text, row in zip(rows, result.rows, strict=True):
        assert float(text["value"]) == row.value and text["task"] == row.task and text["subset"] == (row.subset or "")
    row = ScoreRow(protocol="geometry", task="STS-B", metric="uniformity", value=-2.3134, low=-2.4, high=-2.2, n=9)
    assert tables.format_score(row) == "-2.313" and tables.interval(row) == "-2.400 to -2.200"
    point = {"low": -2.313, "high": -2.313}  # every resample scored the same
    assert tables.interval(ScoreRow(**{**row.model_dump(), **point})) == ""
    assert tables.format_score(result.rows[0]) == f"{result.rows[0].value:.2f}"
    assert "scores x 100" in tables.table_title(result, "sts")


def test_markdown_is_a_table_of_the_printed_scores(result):
    lines = [line for line in result.markdown().splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert {len(line) for line in cells} == {3} and cells[0] == ["", "STS12", "STS-B"]
    want = {(r.metric, r.aggregation, r.task): f"{r.value:.2f}" for r in result.rows if r.subset is None}
    for name, *values in cells[2:]:
        metric, how = re.fullmatch(r"(\w+) \((\w+)\)", name).groups()
        assert values == [want[metric, how, task] for task in ("STS12", "STS-B")]
    assert len(cells) == 2 + 6 and "lexical:token-set" in result.markdown() and "sample data: not" in result.markdown()


def identity(name, label, settings):
    protocol = kinds()[name](settings, label)
    text = ProtocolIdentity(name=name, label=protocol.label, version=1, settings=protocol.settings).model_dump_json()
    return ProtocolIdentity.model_validate_json(text)


@pytest.mark.parametrize("name", ["all", "sts:wmean", "transfer:fast", "mteb:STS12", "declutr"])
def test_no_form_of_its_own_is_a_change(name):
    for each in plan([name], None, {})[0]:
        if "resamples" in each.protocol.settings:
            each.protocol.settings["resamples"] = 7  # changes no score
        assert changed_settings(identity(each.protocol.name, each.protocol.label, each.protocol.settings)) == ""


@pytest.mark.parametrize(("name", "settings", "said"), [
    ("simcse", {"similarity": "dot", "metrics": ["pearson"]}, ["similarity dot"]),
    ("declutr", {"similarity": "dot", "max_epoch": 3, "bootstrap_seed": 5}, ["similarity dot", "max_epoch 3"]),
    ("geometry:dev", {"t": 3.0, "centre": True, "seed": 4}, ["t 3.0, centre true"]),
    ("retrieval:keep", {"ks": [1, 3], "ties": "mid"}, ["ties mid"]), ("transfer:fast", {"k": 10}, ["k 10"]),
    # ks chooses what is shown; the seed, of the folds and the training, another score
    ("transfer:exact", {"seed": 4}, ["seed 4"])])
def test_a_changed_setting_is_said(name, settings, said):
    actual = plan([name], None, {"": settings})[0]
    assert [changed_settings(identity(p.protocol.name, p.protocol.label, p.protocol.settings)) for p in actual] == said


def test_csv_says_what_a_row_was_measured_on(whole, monkeypatch):
    rows = list(csv.DictReader(io.StringIO(whole.csv())))
    sets = {row["task"]: row["data"] for row in rows}
    assert sets["SICK-R"] == "sick-r/test" and sets["SICK-R-MTEB"] == "sick-r/mteb" and sets["Avg"] == "mixed"
    for key, value in {"encoder": "lexical:token-set", "pooler": "", "view": "sample", "settings": "similarity dot"}.items():
        assert {row[key] for row in rows} == {value}
    monkeypatch.setattr(whole.records[0].data, "known", False)
    rows = list(csv.DictReader(io.StringIO(whole.csv())))
    assert {row["known"] for row in rows if row["task"] == "STS12"} == {"False"}
    assert {row["known"] for row in rows if row["task"] == "Avg"} == {"mixed"}


def test_an_average_stands_behind_its_tasks(whole, result, capsys):
    names = list(dict.fromkeys(row.task for row in tables.main_rows(whole, "sts")))
    assert names == [*SEVEN, "Avg", "Avg-full", "SICK-R-MTEB"]
    header = next(line for line in whole.markdown().splitlines() if line.startswith("|"))
    assert [cell.strip() for cell in header.strip("|").split("|")][1:] == [*SEVEN, "Avg", "SICK-R-MTEB"]
    assert " & ".join([*SEVEN, "Avg", "SICK-R-MTEB"]) + r" \\" in whole.latex()
    _, cells = printed(whole, capsys)
    assert [line[0] for line in cells][-1] == "SICK-R-MTEB"
    again = score_again(whole.folder)
    assert tables.main_rows(again, "sts") == tables.main_rows(whole, "sts")
    assert [row.task for row in tables.main_rows(result, "sts")][::6] == ["STS12", "STS-B"]  # no average: as they come


def test_intervals_are_of_each_rows_first_score(capsys):
    run = rows_of(("A", None, "pearson", 50, 45, 55, 10), ("A", None, "mse", 1, None, None, 10),
                  ("B", None, "accuracy", 70, 61, 79, 20), ("B", None, "f1", 60, 1, 2, 20))
    _, cells = printed(run, capsys)
    assert cells == [["task", "n", "pearson [95 % interval]", "mse", "accuracy [95 % interval]", "f1"],
                     ["A", "10", "50.00 [45.00, 55.00]", "1.00", "", ""],
                     ["B", "20", "", "", "70.00 [61.00, 79.00]", "60.00"]]
    assert tables.headlines(run) == ["p, pearson: A 50.00 (45.00 to 55.00); accuracy: B 70.00 (61.00 to 79.00)"]
    _, cells = printed(rows_of(("A", None, "pearson", 50, 45, 55, 10), ("B", None, "mse", 1, None, None, 9)), capsys)
    assert cells[0][2:] == ["pearson [95 % interval]", "mse"]  # only one has an interval


def test_a_missing_average_is_said_only_where_there_could_be_one(result, monkeypatch):
    said = [line for line in tables.remarks(result) if "average" in line]
    assert said == ["No average for sts: the STS average is the mean of all 7 tasks."]
    for label, lines in (("simcse", 1), ("declutr", 0), ("infersent", 0)):
        for record in result.records:
            monkeypatch.setattr(record.protocol, "label", label)
        assert len([line for line in tables.remarks(result) if "average" in line]) == lines


def test_a_title_names_the_text_view_that_could_be_mistaken(result):
    """mteb's evaluators on SentEval's text do not give MTEB's scores, and its SICK-R is other data than ours."""
    def titled(name, text_version):
        record = result.records[0].model_copy(deep=True)
        record.protocol.name = record.protocol.label = name
        record.data.text_version = text_version
        for row in record.scores:
            row.protocol = name
        return tables.table_title(replace(result, records=[record], summaries=[]), name)

    assert "not MTEB's own scores; MTEB's SICK-R is SICK-R-MTEB" in titled("mteb", "senteval")
    assert "MTEB's own" not in titled("mteb", "raw") and "(text version raw)" in titled("sts", "raw")
    assert "text version" not in titled("sts", "senteval")
