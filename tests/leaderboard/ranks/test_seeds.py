"""What an entry of several seeds says of its scores."""

from __future__ import annotations

import pytest

from stsbench.evaluation.protocol import load_protocol
from stsbench.leaderboard.ranks.seeds import clipped


@pytest.mark.parametrize(("protocol", "metric", "low", "high", "want"), [
    ("retrieval", "recall@10", 96.6, 101.2, (96.6, 100.0)), ("retrieval", "mrr", -3.0, 101.2, (0.0, 100.0)),
    ("sts", "spearman", -104.0, 50.0, (-100.0, 50.0)), ("regression", "mse", -0.1, 0.4, (0.0, 0.4)),
    ("geometry", "uniformity", -3.9, 1.0, (-3.9, 0.0)), ("retrieval", "recall@10", None, None, (None, None)),
])
def test_an_interval_stays_within_what_a_metric_can_be(protocol, metric, low, high, want):
    assert clipped(low, high, load_protocol(protocol).metric(metric)) == want
