"""What an entry of several seeds says of its scores."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest

from stsbench.evaluation.load import kinds
from stsbench.leaderboard.ranks.seeds import RANGES, possible


@pytest.mark.parametrize(("metric", "low", "high", "want"), [
    ("recall@10", 96.6, 101.2, (96.6, 100.0)), ("mrr", -3.0, 101.2, (0.0, 100.0)),
    ("spearman", -104.0, 50.0, (-100.0, 50.0)),
    ("mse", -0.1, 0.4, (0.0, 0.4)), ("uniformity", -3.9, 101.0, (-3.9, 101.0)), ("recall@10", None, None, (None, None)),
])  # fmt: skip
def test_an_interval_stays_within_what_a_metric_can_be(metric, low, high, want):
    assert possible(low, high, metric, np.array([98.9, 99.5])) == want


def test_a_metric_of_one_s_own_scale_is_left_alone():
    """A plug-in may call something an accuracy that passes 100."""
    assert possible(90.0, 130.0, "accuracy", np.array([99.0, 120.0])) == (90.0, 130.0)


def test_the_ends_are_those_of_the_protocols_metrics():
    assert set(kinds()["sts"]({}).settings["metrics"]) <= RANGES.keys()
    assert all(low < high for low, high in RANGES.values()) and RANGES["mse"][1] == inf
