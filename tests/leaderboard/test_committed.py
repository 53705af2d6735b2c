"""The board in this repository: its measured rows against figures that others published, and what it weighs."""

from pathlib import Path

import pytest

from stsbench.leaderboard.ranks.lines import lines_of
from stsbench.leaderboard.records.entries import load_entries

BOARD = Path(__file__).resolve().parents[2] / "leaderboard"
# MTEB's published scores of all-MiniLM-L6-v2; its SICK-R is of 9,927 pairs.
MTEB = {"STS12": 72.37, "STS13": 80.60, "STS14": 75.59, "STS15": 85.39, "STS16": 78.99, "STS-B": 82.03, "SICK-R-MTEB": 77.58}
# The token-set encoder's Spearman x 100, worked out apart from this code: all, mean, wmean.
TOKEN_SET = {"STS12": (43.90, 52.29, 53.10), "STS13": (49.58, 42.96, 49.85), "STS14": (52.66, 58.90, 60.27),
             "STS15": (67.68, 63.93, 66.28), "STS16": (57.36, 57.66, 58.79)}  # fmt: skip


@pytest.fixture(scope="module")
def lines():
    """(entry, protocol, metric, aggregation) -> line of the sts tabs, every record checked on the way."""
    return {(entry.id, line.protocol.name, line.setting.metric, line.setting.aggregation): line
            for entry in load_entries(BOARD / "measured") for run in entry.runs for line in lines_of(run)
            if line.protocol.name == "sts"}  # fmt: skip


def test_minilm_is_what_mteb_publishes(lines):
    found = lines["minilm-mean", "sts", "spearman", "all"].cells
    assert {task: round(found[task].value, 2) for task in MTEB} == pytest.approx(MTEB, abs=0.0101)
    assert found["Avg"].value == 78.87 and found["Avg"].low < 78.87 < found["Avg"].high


def test_token_set_is_what_was_worked_out_elsewhere(lines):
    for place, how in enumerate(("all", "mean", "wmean")):
        found = lines["token-set", "sts", "spearman", how].cells
        for task, figures in TOKEN_SET.items():
            assert found[task].value == pytest.approx(figures[place], abs=0.0151), (task, how)


def test_every_entry_was_measured_by_committed_code_on_the_catalogs_data():
    entries = load_entries(BOARD / "measured")
    assert {"minilm-mean", "minilm-cls", "minilm-first-last", "token-set", "tfidf"} <= {entry.id for entry in entries}
    for entry in entries:
        for run in entry.runs:
            for each in run.records:
                assert each.record.data.known and each.record.provenance["git"], each.path


def test_the_board_is_small():
    assert (BOARD / "site" / "index.html").stat().st_size < 1_000_000
    runs = {path.parent for path in (BOARD / "measured").glob("*/*/*.json")}
    sizes = [sum(path.stat().st_size for path in run.rglob("*") if path.is_file()) for run in runs]
    assert max(sizes) < 1_200_000 and sum(sizes) < 30_000_000  # half of it are the keys of equal pairs, alike in every run
