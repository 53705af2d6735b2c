"""What an entry of several seeds says of its scores."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from stsbench.evaluation.protocol import load_protocol
from stsbench.evaluation.schema import CORRELATION
from stsbench.leaderboard.ranks.board import Cell
from stsbench.leaderboard.ranks.lines import _joined_part, clipped


@pytest.mark.parametrize(("protocol", "metric", "low", "high", "want"), [
    ("retrieval", "recall@10", 96.6, 101.2, (96.6, 100.0)), ("retrieval", "mrr", -3.0, 101.2, (0.0, 100.0)),
    ("sts", "spearman", -104.0, 50.0, (-100.0, 50.0)), ("regression", "mse", -0.1, 0.4, (0.0, 0.4)),
    ("geometry", "uniformity", -3.9, 1.0, (-3.9, 0.0)), ("retrieval", "recall@10", None, None, (None, None)),
])
def test_an_interval_stays_within_what_a_metric_can_be(protocol, metric, low, high, want):
    assert clipped(low, high, load_protocol(protocol).metric(metric)) == want


def test_a_parts_interval_is_the_mean_reach_of_its_seeds_and_students_together():
    equal = tuple(Cell(50.0, 50 - reach, 50 + 2 * reach, n=10) for reach in (1.0, 2.0, 3.0))
    assert _joined_part(equal, CORRELATION) == Cell(50.0, 48.0, 54.0, 0.0, 10)
    apart = tuple(Cell(value, value - 2, value + 2, n=10) for value in (49.0, 50.0, 51.0))
    reach = np.hypot(2, stats.t.ppf(0.975, 2) / np.sqrt(3))
    joined = _joined_part(apart, CORRELATION)
    assert (joined.low, joined.high, joined.sd) == pytest.approx((50 - reach, 50 + reach, 1))
