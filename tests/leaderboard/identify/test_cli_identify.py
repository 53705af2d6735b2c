"""`stsbench identify` as command and function: what of table B.2 is recognised, what is said, which published rows hold
numbers; refusals: identify.yaml."""

import json
from pathlib import Path

import numpy as np
import pytest
from answers import answering
from board_runs import read_once  # noqa: F401  fixture
from clirun import cli, fails, place, refuses  # noqa: F401 - fixtures
from run_edits import edit, rows_of
from synthetic_sts import B2, runs, said  # noqa: F401 - fixtures

import stsbench
from stsbench.errors import StsbenchError, StsbenchWarning
from stsbench.evaluation.result import Result
from stsbench.leaderboard.identify.api import source
from stsbench.leaderboard.identify.numbers import ORDER
from stsbench.leaderboard.identify.published import published_matches
from stsbench.leaderboard.records.publications import load_publications


def asked(cli, numbers, model):
    """(the JSON, the text) that the command line gives."""
    code, out, err = cli("identify", numbers, "--model", model, "--json", "-")
    assert (code, err) == (0, "")
    code, text, _ = cli("identify", numbers, "--model", model)
    assert code == 0
    return json.loads(out), text


def test_what_a_paper_reported_in_table_b2_is_recognised(runs):
    """SBERT's setting is all, BERT-whitening's wmean, though not all numbers were reproduced to the digit."""
    for name, row in B2.items():
        made = stsbench.identify(said(row["reported"]), runs[name])
        found, text = made.as_json(), str(made)
        first, second = found["settings"][:2]
        assert first["place"] == 1 and first["setting"][0].startswith(f"sts: {row['is']}, Spearman")
        assert {"all": {"sbert", "simcse"}, "wmean": {"whitening", "bert-flow"}}[row["is"]] <= set(first["papers"])
        assert (first["to_the_last_digit"], found["verdict"], found["indistinguishable"]) == (row["exact"], "nearest", 1)
        own = np.abs(np.array(row[row["is"]]) - row["reported"])
        assert first["mean_absolute_difference"] == pytest.approx(own.mean(), abs=0.006)
        assert first["largest_task"] == ORDER[own.argmax()]
        assert second["mean_absolute_difference"] > 2 * first["mean_absolute_difference"]
        assert text.splitlines()[-1].startswith("Nothing reproduces these numbers to the last digit: the nearest is sts: ")


def test_a_published_row_by_its_id(cli, runs):
    [simcse] = [each for each in load_publications() if each.paper.id == "simcse"]
    row = next(row for row in simcse.rows if row.scores == B2["sbert"]["all"] and row.heading.table == "B.2")
    by_id, _ = asked(cli, row.id, runs["sbert"])
    typed, text = asked(cli, said(row.scores), runs["sbert"])
    assert by_id == typed and by_id["verdict"] == "reproduced" and by_id["indistinguishable"] == 1
    [setting] = by_id["settings"][0]["setting"]
    assert setting.startswith("sts: all, Spearman") and text.splitlines()[-1] == (
        f"These numbers are reproduced by {setting} (mean absolute difference 0.00, 7 of 7 tasks to the last digit).")
    dev = next(row for row in simcse.rows if row.heading.split == "dev")
    fails(cli("identify", dev.id, "--model", runs["sbert"]), dev.id, "holds no test scores of tasks")


def test_the_words_say_what_the_numbers_cannot(cli, runs):
    _, text = asked(cli, said(B2["sbert"]["all"]), runs["sbert"])
    lines = [line for line in text.splitlines() if line.startswith("cannot be checked: ")]
    assert any(line.endswith("SICK-R by cosine on MTEB's pairs: no SICK-R-MTEB") for line in lines)
    assert any("of the trained regressor" in line and "no STS-B of regression" in line for line in lines)
    assert "further off" not in text
    # SBERT prints 74.89 where its columns give 74.86.
    _, text = asked(cli, said((*B2["sbert"]["reported"], 74.89)), runs["sbert"])
    assert "Note: the average given, 74.89, is not the mean of the seven numbers, 74.86." in text
    found, text = asked(cli, "11,12,13,14,15,16,17", runs["sbert"])
    assert found["verdict"] == "nearest" and found["indistinguishable"] > 1 and "It cannot be distinguished from" in text
    row = B2["sbert"]["all"]
    shares, text = asked(cli, ",".join(f"{number / 100:.4f}" for number in row), runs["sbert"])
    assert shares["verdict"] == "reproduced" and shares["share"] and "read as shares" in text
    plain, text = asked(cli, said(row), runs["sbert"])
    assert [one["setting"] for one in shares["settings"]] == [one["setting"] for one in plain["settings"]]
    assert [one["mean_absolute_difference"] for one in shares["settings"]] == pytest.approx(  # in points
        [one["mean_absolute_difference"] for one in plain["settings"]], abs=1e-9)
    rows = len(plain["settings"])
    text = cli("identify", said(row), "--model", runs["sbert"], "--top", rows - 2)[1]
    assert f"2 more settings are further off (--top {rows} lists " in text
    found, text = asked(cli, "STS-B=76.98", runs["sbert"])  # which does not tell these settings apart
    assert found["settings"][0]["setting"][0].startswith("sts: all, mean or wmean, Spearman; STS-B by cosine")
    assert "cannot be distinguished by these tasks" in text and "a match may be chance" in found["sentence"]


def test_where_nothing_can_be_checked_it_failed(cli, runs):
    """The reasons, then one line; no table, no JSON."""
    outcome = cli("identify", "STS-B=76.98", "MR=80", "--model", runs["sbert"], "--json", "out.json")
    assert fails(outcome) == "stsbench: error: Nothing could be checked: every setting lacks an observation."
    assert all((line.startswith("cannot be checked: ") and "MR" in line) or line.startswith("and ")
               for line in outcome[2].splitlines()[:-1]) and "no MR" in outcome[2]
    assert not Path("out.json").exists()
    found = stsbench.identify({"MR": 80}, runs["sbert"])
    assert found.verdict == "nothing checked" and found.to_pandas().empty
    assert "no MR" in str(found) and "no MR" in found._repr_html_()
    # A long row is refused at once.
    for text in (", " * 3000 + "x", "1, " * 3000 + "x", "1,2 , " * 3000 + "x", "- " * 3000 + "x"):
        fails(cli("identify", "--model", runs["sbert"], "--", text))


def test_a_model_is_looked_for_on_the_hub_before_the_data_are_read(cli, monkeypatch, tmp_path):
    """There are no data in this place: what is said is of the model, which is not fetched. The Hub is on this machine, and
    knows no model but some/model."""
    paths = []

    def answer(path):
        if path.startswith("/api/models"):  # not what the library asks for itself, once a day
            paths.append(path)
        return b'{"id": "some/model", "siblings": []}' if path == "/api/models/some/model" else None

    with answering(answer) as address:
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", address)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
        for model in ("nosuch", "no/such"):
            line = fails(cli("identify", "STS12=72.37", "--model", model), "no such model on the Hub",
                         f"--model {model} is neither a run folder nor a model: ", "; give a folder with a run's records")
            assert "sts12" not in line and len(paths) == 1
            paths.clear()
        assert source("some/model", None) == "some/model" and paths == ["/api/models/some/model"]
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")  # nobody listens
    fails(cli("identify", "STS12=72.37", "--model", "nosuch"), "not in the Hub cache, and the Hub cannot be asked")
    monkeypatch.setattr("stsbench.encoders.transformer.find._candidates", lambda: iter(()))
    assert "sts12" not in fails(cli("identify", "STS12=72.37", "--model", "minilm"), "is not installed")


def test_the_outcome_is_the_command_s(runs, cli, capsys):
    run = runs["sbert"]
    found, *others = [stsbench.identify(dict(zip(ORDER, B2["sbert"]["reported"], strict=True)), model)
                      for model in (run, str(run), [run], Result(run))]
    assert [other.as_json() for other in others] == [found.as_json()] * 3
    assert capsys.readouterr() == ("", "")
    printed, text = asked(cli, said(B2["sbert"]["reported"]), run)
    assert printed == found.as_json() and text.splitlines()[-1] == str(found).splitlines()[-1] == found.sentence
    settings = json.loads(found.to_json())["settings"]
    frame = found.to_pandas()
    assert [*frame.place] == [each["place"] for each in settings] and len(found.candidates) == len(settings)
    assert [*frame["STS-B"]] == [each["differences"]["STS-B"] for each in settings]
    assert frame.papers[0] == ", ".join(settings[0]["papers"]) and "simcse" in frame.papers[0]
    assert found._repr_html_().count("<tr>") == 1 + len(settings)


def test_whatever_numbers_are_given_as(runs):
    Path("numbers.json").write_text('{"STS12": 70.97, "STS-B": 77.03}')
    for numbers in (
        {"STS12": "70.97", "STS-B": np.float64(77.03)}, "STS12=70.97,STS-B=77.03", Path("numbers.json"),
        ["70.97", None, None, None, None, 77.03, None], (70.97, "-", "-", "-", "-", "77.03", "-")):
        found = stsbench.identify(numbers, runs["sbert"])
        kept = {name: (number.printed, number.digits) for name, number in found.result.numbers.items.items()}
        assert kept == {"STS12": (70.97, 2), "STS-B": (77.03, 2)}
        assert {*found.candidates[0].papers} >= {"sbert", "simcse"}
    # The zero that a float has lost is its neighbours' digit.
    printed = {"STS12": 70.9, "STS13": 76.53, "STS14": "73.1", "STS15": 79}
    items = stsbench.identify(printed, runs["sbert"]).result.numbers.items
    assert {name: number.digits for name, number in items.items()} == {"STS12": 2, "STS13": 2, "STS14": 1, "STS15": 0}
    with pytest.raises(TypeError, match="poolr"):
        stsbench.identify("STS-B=50", runs["sbert"], poolr="cls")


def test_a_model_is_measured_first_and_leaves_nothing_behind(cli):
    def length(texts):
        return np.array([[len(text), text.count("e") + 1, text.count("a")] for text in texts], dtype=float)

    (row,) = [row for row in stsbench.evaluate(length, sample=True, tasks=["STS-B"], protocols="sts:all").rows
              if row.metric == "spearman" and row.subset is None]
    numbers, before = {"STS-B": f"{row.value:.2f}"}, {*Path().iterdir()}
    found = stsbench.identify(numbers, length, sample=True)
    assert found.verdict == "reproduced" and {*Path().iterdir()} == before
    assert stsbench.identify(numbers, length, sample=True, output="kept").as_json() == found.as_json()
    [folder] = Path("kept").iterdir()
    with pytest.warns(StsbenchWarning, match="failed: sts STS-B: ") as heard:
        stsbench.identify({"STS-B": 50.0, "STS12": 50.0}, "python:mine_cli:constant_on_stsb", sample=True)
    assert {warning.filename for warning in heard} == {__file__}
    code, out, err = cli("identify", "STS-B=50.00", "--model", "lexical:token-set", "--sample")
    assert code == 0 and "sample data: not comparable with published numbers" in out
    [run] = [line.removeprefix("run: ") for line in err.splitlines() if line.startswith("run: ")]
    assert sorted(row.name.split(".")[0] for row in rows_of(run)) == ["regression", "sts"]
    again = cli("identify", "STS-B=50.00", "--model", "runs")
    assert (again[0], again[1].splitlines()[-1]) == (0, out.splitlines()[-1])
    change = edit(folder, lambda row: row.record["scores"][-1].update(value=99.0))
    refuses(StsbenchError, f"{change.name} was edited", stsbench.identify, numbers, folder)


def test_a_row_is_found_by_what_it_prints_the_one_that_others_copied_first():
    simcse = {row.id: row for each in load_publications() if each.paper.id == "simcse" for row in each.rows}
    for row in (simcse["simcse:5:7"], simcse["simcse:B.2:3"], simcse["simcse:E.1:6"]):
        bare = " ".join(f"{score:.{row.printed_decimals}f}" for score in row.scores if score is not None)
        assert row.id in [found["row"] for found in published_matches(bare).rows]
    found = stsbench.identify("76.25")
    assert found.rows[0]["row"] == "simcse:5:7" and found.rows[0]["aggregation"] == "all"
    assert {row["row"] for row in found.rows} >= {"diffaug:1:5", "diffcse:1:9"} and "simcse:5:7" in str(found)
    assert stsbench.identify("SICK-R=72.23,Avg=76.25").rows[0]["row"] == "simcse:5:7"
    refuses(StsbenchError, "no published row", stsbench.identify, "STS12=76.25,STS13=76.25")  # under its own name only
