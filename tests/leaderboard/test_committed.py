"""The board in this repository: its measured rows against figures that others published, and what it weighs.

Whether every interval, average and rank follows from the records is for `make board`: it computes them all again.
"""

import csv
from pathlib import Path

import numpy as np
import pytest
import yaml

from stsbench.evaluation.records import Record
from stsbench.evaluation.rescore import protocol_of_record, record_task
from stsbench.evaluation.run_file import RUN, load_records, read_observations
from stsbench.leaderboard.board_files import BEGIN, END
from stsbench.leaderboard.page.findings import FACTS, QUESTIONS
from stsbench.leaderboard.ranks.provenance import _costs
from stsbench.protocols.sts import AVERAGED

BOARD = Path(__file__).resolve().parents[2] / "leaderboard"
# MTEB's published scores of all-MiniLM-L6-v2; its SICK-R is of 9,927 pairs.
MTEB = {"STS12": 72.37, "STS13": 80.60, "STS14": 75.59, "STS15": 85.39, "STS16": 78.99, "STS-B": 82.03, "SICK-R-MTEB": 77.58}
# The token-set encoder's Spearman x 100, worked out apart from this code: all, mean, wmean.
TOKEN_SET = {"STS12": (43.90, 52.29, 53.10), "STS13": (49.58, 42.96, 49.85), "STS14": (52.66, 58.90, 60.27),
             "STS15": (67.68, 63.93, 66.28), "STS16": (57.36, 57.66, 58.79)}


@pytest.fixture(scope="module")
def records() -> dict[Path, Record]:
    """Every committed record, by its path: measured/ENTRY/RUN/run.parquet/NAME."""
    return {path: record for run in run_files() for path, record in load_records(run)}


def run_files():
    return sorted((BOARD / "measured").glob(f"*/*/{RUN}"))


def entry_of(path):
    return path.relative_to(BOARD / "measured").parts[0]


def records_of(records, name):
    return [record for path, record in records.items() if entry_of(path) == name]


def sts_values(records, name):
    """(task, aggregation) -> the stored Spearman of the entry's only run."""
    return {(row.task, row.aggregation): row.value for path, record in records.items() for row in record.scores
            if entry_of(path) == name and (record.protocol.label, row.metric, row.subset) == ("sts", "spearman", None)}


def test_minilm_is_what_mteb_publishes(records):
    values = sts_values(records, "minilm-mean")
    assert {task: round(values[task, "all"], 2) for task in MTEB} == pytest.approx(MTEB, abs=0.0101)
    assert round(np.mean([round(values[task, "all"], 2) for task in AVERAGED]), 2) == 78.87


def test_token_set_is_what_was_worked_out_elsewhere(records):
    values = sts_values(records, "token-set")
    for place, how in enumerate(("all", "mean", "wmean")):
        for task, figures in TOKEN_SET.items():
            assert values[task, how] == pytest.approx(figures[place], abs=0.0151), (task, how)


def test_every_entry_was_measured_by_committed_code_on_the_catalogs_data(records):
    entries = {entry_of(path) for path in records}
    assert {"minilm-mean", "minilm-cls", "minilm-first-last", "token-set", "tfidf"} <= entries
    for path, record in records.items():
        assert record.data.known and record.provenance["git"], path


def test_every_record_scores_what_it_says(records):
    """Values only, and of each measurement one entry's in turn: `make board` computes all of them again."""
    measured = {}
    for path, record in sorted(records.items()):
        measured.setdefault((record.protocol.label, record.data.id), []).append(path)
    for turn, paths in enumerate(measured.values()):
        record = records[path := paths[turn % len(paths)]]
        settings = {**record.protocol.settings}
        if "resamples" in settings:
            settings["resamples"] = 0
        how = record.protocol.model_copy(update={"settings": settings})
        protocol = protocol_of_record(path, record.model_copy(update={"protocol": how}))
        observations = read_observations(path.parent, record)
        scores = protocol.score(observations, record.data.id, record_task(protocol, record))
        names = [[(row.task, row.subset, row.aggregation, row.metric) for row in rows] for rows in (scores, record.scores)]
        assert names[0] == names[1], path
        values = [[row.value for row in rows] for rows in (scores, record.scores)]
        np.testing.assert_allclose(*values, rtol=0, atol=1e-6, err_msg=str(path))


def test_the_board_is_small_and_a_run_s_folder_holds_its_file_alone():
    sizes = [file.stat().st_size for file in run_files()]
    assert max(sizes) < 400_000 and sum(sizes) < 160_000 * len(sizes)
    assert sum(path.stat().st_size for path in (BOARD / "observations").iterdir()) < 2_500_000  # once for all runs
    assert {path.name for run in (BOARD / "measured").glob("*/*/") for path in run.iterdir()} == {RUN}


def test_weights_in_half_precision_take_half_the_room(records):
    costs = {name: next(cost for record in records_of(records, name) if (cost := _costs([record])).get("parameters"))
             for name in ("mpnet-bfloat16", "mpnet-mean")}
    assert costs["mpnet-bfloat16"]["weights_mb"] == pytest.approx(2 * costs["mpnet-mean"]["parameters"] / 1e6)
    assert "weights_mb" not in costs["mpnet-mean"]


def test_each_question_of_the_table_of_encoders_has_answers():
    """Tables and columns are named by what protocols and sets are called: a set with another title would leave it empty."""
    with (BOARD.parent / "docs/findings/which-encoder.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    for name in [*(name for _, _, name in QUESTIONS), *FACTS, "mteb_mean_of_7"]:
        assert sum(bool(row[name]) for row in rows) > 1, name


def test_the_table_on_minilm_shows_the_committed_records(records):
    """The findings' table against a plain loop over records: an entry's mean over runs, a run's mean over rounded tasks."""
    text = (BOARD.parent / "docs/findings/methods-on-minilm.md").read_text("utf-8")
    lines = [line for line in text.split(BEGIN)[1].split(END)[0].splitlines() if line.startswith("| ")]
    table = [[cell.strip() for cell in line[2:-2].split(" | ")] for line in lines]
    shown = {line[0]: line for line in table[2:]}
    columns = {"STS average": ("sts", None), "transfer": ("transfer", "torch")}
    by_run = {}
    for path, record in records.items():
        for heading, (protocol, classifier) in columns.items():
            of = record.protocol.name, record.protocol.settings.get("classifier")
            if of == (protocol, classifier) and record.data.text_version != "own":  # languages have tables of their own
                metric, how = ("spearman", "all") if protocol == "sts" else ("accuracy", None)
                values = [round(row.value, 2) for row in record.scores if row.task != "SICK-R-MTEB"
                          and (row.metric, row.aggregation, row.subset) == (metric, how, None)]
                by_run.setdefault((entry_of(path), heading), {}).setdefault(path.parent, []).extend(values)
    runs_of = {entry: {path.parent for path in records if entry_of(path) == entry} for entry in set(map(entry_of, records))}
    # of the whole model: a row of three of its layers is no row of the table
    entries = {entry for entry, heading in by_run if heading == "STS average" and entry.startswith("minilm")
               and not entry.startswith("minilm-3-")}
    names = {entry: yaml.safe_load((BOARD / "measured" / entry / "entry.yaml").read_text())["method"] for entry in entries}
    assert set(shown) == set(names.values())
    for (entry, heading), runs in by_run.items():
        if entry in names:
            assert all(len(values) == 7 for values in runs.values()), (entry, heading)
            mean = np.mean([np.mean(values) for values in runs.values()])
            cell = shown[names[entry]][table[0].index(heading)]
            if len(runs) < len(runs_of[entry]):
                assert cell == "", (entry, heading)  # what not all seeds have is left out
                continue
            assert float(cell.split(" ±")[0]) == pytest.approx(mean, abs=0.0101), (entry, heading)
