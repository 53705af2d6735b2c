"""What an entry of several seeds says of its scores."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stsbench.evaluation.load import kinds
from stsbench.evaluation.records import load_records
from stsbench.leaderboard.ranks.seeds import RANGES, clipped


@pytest.mark.parametrize(("metric", "low", "high", "want"), [
    ("recall@10", 96.6, 101.2, (96.6, 100.0)), ("mrr", -3.0, 101.2, (0.0, 100.0)),
    ("spearman", -104.0, 50.0, (-100.0, 50.0)),
    ("mse", -0.1, 0.4, (0.0, 0.4)), ("uniformity", -3.9, 101.0, (-3.9, 101.0)), ("recall@10", None, None, (None, None)),
])  # fmt: skip
def test_an_interval_stays_within_what_a_metric_can_be(metric, low, high, want):
    assert clipped(low, high, metric, np.array([98.9, 99.5])) == want


def test_a_metric_of_one_s_own_scale_is_left_alone():
    """A plug-in may call something an accuracy that passes 100."""
    assert clipped(90.0, 130.0, "accuracy", np.array([99.0, 120.0])) == (90.0, 130.0)


def test_every_metric_of_the_protocols_has_ends():
    """The records of one encoder under all protocols name them; geometry's and mteb's have scales of their own."""
    ours = kinds().keys() - {"geometry", "mteb"}
    (folder,) = (Path(__file__).parents[3] / "leaderboard" / "measured" / "minilm-mean").glob("*/")
    records = [record for _, record in load_records(folder) if record.protocol.name in ours]
    assert {record.protocol.name for record in records} == ours
    assert {row.metric.partition("@")[0] for record in records for row in record.scores} <= RANGES.keys()
