"""The STS average's draws: pairs that stand in two tasks are redrawn together."""

import numpy as np
import pytest
from scipy import stats

from stsbench.evaluation.protocol import Observations
from stsbench.protocols.sts import AVERAGED, TASKS, StsProtocol, pair_keys

ALL = (None, "all", "spearman")
SETTINGS = {"metrics": ["spearman"], "aggregations": ["all", "wmean"]}
N = 120


def observed(shared):
    """The seven tasks' observations; the last six repeat `shared` of the first one's pairs, similarities included."""
    rng = np.random.default_rng(3)
    found, first = {}, None
    for place, task in enumerate(AVERAGED):
        gold = rng.normal(size=N)
        arrays = {
            "gold": gold, "similarity": gold + rng.normal(size=N), "subset": np.arange(N) % 2,
            "pair": np.arange(N, dtype=np.uint64) + np.uint64(1000 * place),
        }
        if first is None:
            first = arrays
        for name in ("gold", "similarity", "pair"):
            arrays[name][:shared] = first[name][:shared]
        found[task] = (Observations(arrays, {"subsets": ["one", "two"]}), TASKS[task])
    return found


def naive(found, resamples=100):
    """Averages of scipy's correlations over redrawn distinct pairs, each taken into every task that it stands in."""
    rng = np.random.default_rng(0)
    keys = np.unique(np.concatenate([each.arrays["pair"] for each, _ in found.values()]))
    averages = []
    for _ in range(resamples):
        counts = np.bincount(rng.integers(0, len(keys), len(keys)), minlength=len(keys))
        times = dict(zip(keys.tolist(), counts, strict=True))
        scores = []
        for each, _ in found.values():
            at = np.repeat(np.arange(N), [times[key] for key in each.arrays["pair"].tolist()])
            scores.append(stats.spearmanr(each.arrays["similarity"][at], each.arrays["gold"][at]).statistic)
        averages.append(100 * np.mean(scores))
    return np.std(averages)


def test_the_spread_is_that_of_redrawing_distinct_pairs():
    """Which is wider than that of redrawing each task by itself."""
    protocol, found = StsProtocol(SETTINGS), observed(80)
    together = np.std(protocol.average_draws(found, 500, 0)[ALL])
    assert together == pytest.approx(naive(found), rel=0.12)
    apart = np.mean([protocol.draws(*found[task], 500, 0)[ALL] for task in AVERAGED], axis=0)
    assert together > 1.3 * np.std(apart)


def test_two_encoders_meet_the_same_draws():
    """A score that is the other one's monotone function has the same draws; all seven tasks are needed."""
    protocol, found = StsProtocol(SETTINGS), observed(40)
    other = {task: (Observations({**each.arrays, "similarity": np.exp(each.arrays["similarity"])}, each.names), id)
             for task, (each, id) in found.items()}
    one, two = protocol.average_draws(found, 200, 0), protocol.average_draws(other, 200, 0)
    assert one.keys() == two.keys() == {ALL, (None, "wmean", "spearman")}
    np.testing.assert_allclose(one[ALL], two[ALL])
    del found["SICK-R"]
    assert protocol.average_draws(found, 200, 0) == {}


def test_pairs_are_one_whatever_their_order_case_and_punctuation():
    first = ["A cat sleeps.", "it 's A CAT", "a dog", "a", "ab"]
    keys = pair_keys(first, ["It's a cat", "a cat sleeps", "a cat sleeps", "bc", "c"])
    assert keys.dtype == np.uint64
    assert keys[0] == keys[1] and len(set(keys.tolist())) == 4
