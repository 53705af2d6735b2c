"""The board in this repository: its measured rows against figures that others published, and what it weighs.

Whether every score, interval, average and rank follows from the records is for `make board`: it computes them all again.
"""

from pathlib import Path

import numpy as np
import pytest

from stsbench.evaluation.run_file import RUN, load_records
from stsbench.leaderboard.ranks.provenance import _costs
from stsbench.protocols.sts import AVERAGED

BOARD = Path(__file__).resolve().parents[2] / "leaderboard"
# MTEB's published scores of all-MiniLM-L6-v2; its SICK-R is of 9,927 pairs.
MTEB = {"STS12": 72.37, "STS13": 80.60, "STS14": 75.59, "STS15": 85.39, "STS16": 78.99, "STS-B": 82.03, "SICK-R-MTEB": 77.58}
# The token-set encoder's Spearman x 100, worked out apart from this code: all, mean, wmean.
TOKEN_SET = {"STS12": (43.90, 52.29, 53.10), "STS13": (49.58, 42.96, 49.85), "STS14": (52.66, 58.90, 60.27),
             "STS15": (67.68, 63.93, 66.28), "STS16": (57.36, 57.66, 58.79)}


def records_of(name):
    return [record for run in (BOARD / "measured" / name).glob(f"*/{RUN}") for _, record in load_records(run)]


def sts_values(name):
    """(task, aggregation) -> the stored Spearman of the entry's only run."""
    return {(row.task, row.aggregation): row.value for record in records_of(name) for row in record.scores
            if (record.protocol.label, row.metric, row.subset) == ("sts", "spearman", None)}


def test_minilm_is_what_mteb_publishes():
    values = sts_values("minilm-mean")
    assert {task: round(values[task, "all"], 2) for task in MTEB} == pytest.approx(MTEB, abs=0.0101)
    assert round(np.mean([round(values[task, "all"], 2) for task in AVERAGED]), 2) == 78.87


def test_token_set_is_what_was_worked_out_elsewhere():
    values = sts_values("token-set")
    for place, how in enumerate(("all", "mean", "wmean")):
        for task, figures in TOKEN_SET.items():
            assert values[task, how] == pytest.approx(figures[place], abs=0.0151), (task, how)


def test_the_board_is_small_and_a_run_s_folder_holds_its_file_alone():
    sizes = [file.stat().st_size for file in (BOARD / "measured").glob(f"*/*/{RUN}")]
    assert max(sizes) < 400_000 and sum(sizes) < 160_000 * len(sizes)
    assert sum(path.stat().st_size for path in (BOARD / "observations").iterdir()) < 2_500_000  # once for all runs
    assert {path.name for run in (BOARD / "measured").glob("*/*/") for path in run.iterdir()} == {RUN}


def test_weights_in_half_precision_take_half_the_room():
    costs = {name: next(cost for record in records_of(name) if (cost := _costs([record])).get("parameters"))
             for name in ("mpnet-bfloat16", "mpnet-mean")}
    assert costs["mpnet-bfloat16"]["weights_mb"] == pytest.approx(2 * costs["mpnet-mean"]["parameters"] / 1e6)
    assert "weights_mb" not in costs["mpnet-mean"]
