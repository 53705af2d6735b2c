"""The STS protocol: rows on hand-made subsets, the averages, and the published numbers on real data. The STS
average's draws: pairs that stand in two tasks are redrawn together."""

import numpy as np
import pytest
from clirun import refuses
from realdata import real_data
from scipy import stats

from stsbench import evaluate, load_encoder
from stsbench.data.sets.sets import PairSet
from stsbench.encoders.cache.embed import Embed
from stsbench.errors import ScoreError
from stsbench.evaluation.protocol import Observations
from stsbench.protocols.sts import AVERAGED, TASKS, StsProtocol, pair_keys

SCIPY = {"spearman": stats.spearmanr, "pearson": stats.pearsonr}


def observed(sizes, seed=0, **settings):
    rng = np.random.default_rng(seed)
    n = sum(sizes)
    gold = rng.integers(0, 11, n) / 2
    arrays = {"similarity": (gold / 5 + rng.normal(0, 0.4, n)).round(2), "gold": gold,
              "subset": np.repeat(np.arange(len(sizes)), sizes)}
    names = {"subsets": [f"s{i}" for i in range(len(sizes))]}
    return StsProtocol({"resamples": 0, **settings}), Observations(arrays, names)


def test_rows_equal_a_naive_loop():
    protocol, seen = observed([30, 7, 60])
    rows = {(r.subset, r.aggregation, r.metric): r for r in protocol.score(seen, "x/test", "X")}
    assert len(rows) == 2 * (3 + 3) and {r.task for r in rows.values()} == {"X"}
    x, y, subset = (seen.arrays[name] for name in ("similarity", "gold", "subset"))
    for metric, function in SCIPY.items():
        total = weighted = 0.0
        for i in range(3):
            value = function(x[subset == i], y[subset == i]).statistic
            row = rows[f"s{i}", None, metric]
            assert row.value == pytest.approx(100 * value) and row.n == (subset == i).sum()
            total, weighted = total + value, weighted + value * row.n
        assert rows[None, "all", metric].value == pytest.approx(100 * function(x, y).statistic)
        assert rows[None, "mean", metric].value == pytest.approx(100 * total / 3)
        assert rows[None, "wmean", metric].value == pytest.approx(100 * weighted / 97)
        assert all(rows[None, how, metric].n == 97 for how in ("all", "mean", "wmean"))


def test_one_subset_has_no_subset_rows_and_three_equal_aggregations():
    protocol, seen = observed([40], resamples=50)
    rows = protocol.score(seen, "x/test", "X")
    assert [(r.subset, r.aggregation) for r in rows] == [(None, how) for how in ("all", "mean", "wmean")] * 2
    for metric in SCIPY:
        assert len({(r.value, r.low, r.high) for r in rows if r.metric == metric}) == 1


def test_failures_name_task_and_subset():
    protocol, seen = observed([20, 30])
    seen.arrays["similarity"][20:] = 0.5
    refuses(ScoreError, r"^X, subset s1: all 30 predictions are equal \(0.5\)", protocol.score, seen, "x", "X")
    seen.arrays["similarity"][:] = 0.5
    refuses(ScoreError, r"^X, subset s0", protocol.score, seen, "x", "X")


def test_observe_pairs_each_text_with_its_own_row():
    texts = {"first": ("a", "b", "a"), "second": ("b", "c", "c"), "subsets": ("p", "q", "p")}
    data = PairSet("x/test", "X", "senteval", **texts, gold=np.array([1.0, 2, 3]))
    vectors = np.array([[0, 2], [1, 0], [1, 1]], np.float32)  # not in the order of the texts
    row = {"c": 0, "a": 1, "b": 2}

    embed = Embed(load_encoder(lambda texts: vectors[[row[text] for text in texts]]))
    seen = StsProtocol({}).observe(embed, data)
    assert seen.arrays["similarity"] == pytest.approx([2**-0.5, 2**-0.5, 0])
    assert seen.arrays["subset"].tolist() == [0, 1, 0] and seen.names["subsets"] == ["p", "q"]
    dot = StsProtocol({"similarity": "dot"}).observe(embed, data)
    assert dot.arrays["similarity"].tolist() == [1, 2, 0]


def test_the_sample_end_to_end(tmp_path):
    sample = evaluate("lexical:token-set", output=tmp_path / "run", sample=True, resamples=0, tasks=list(TASKS))
    assert list(dict.fromkeys(r.task for r in sample.rows)) == [*TASKS, "Avg", "Avg-full"]
    assert not sample.failures and not sample.left_out and len(sample.records) == 8
    assert all(r.data.text_version == "sample" for r in sample.records)
    value = {(r.task, r.aggregation, r.metric): r.value for r in sample.rows if r.subset is None}
    for metric in SCIPY:
        for how in ("all", "mean", "wmean"):
            seven = [value[task, how, metric] for task in AVERAGED]
            assert value["Avg-full", how, metric] == pytest.approx(sum(seven) / 7)
            assert value["Avg", how, metric] == round(sum(round(v, 2) for v in seven) / 7, 2)


# lexical:token-set, Spearman: all, mean, wmean; those of the other years are compared with the board's records
GOLDEN = {"STS13": (49.58, 42.96, 49.85), "STS16": (57.36, 57.66, 58.79)}


def test_token_set_s_golden_values(tmp_path):
    options = {"data_dir": real_data(), "tasks": list(GOLDEN), "resamples": 0}
    result = evaluate("lexical:token-set", output=tmp_path / "run", **options)
    assert all(record.data.known for record in result.records)
    got = {(r.task, r.aggregation): r.value for r in result.rows if r.subset is None and r.metric == "spearman"}
    for task, values in GOLDEN.items():
        for how, value in zip(("all", "mean", "wmean"), values, strict=True):
            assert got[task, how] == pytest.approx(value, abs=0.01), (task, how)


def test_a_year_without_subset_names_claims_no_mean():
    """The Hub's raw text does not name subsets: `mean` would silently be `all` there."""
    rng = np.random.default_rng(0)
    arrays = {"similarity": rng.random(20), "gold": rng.random(20), "subset": np.zeros(20, dtype=np.int64)}
    observations = Observations(arrays, {"subsets": ["STS12"]})
    protocol = StsProtocol({"resamples": 0})
    assert {row.aggregation for row in protocol.score(observations, "sts12/test", "STS12")} == {"all"}
    assert {row.aggregation for row in protocol.score(observations, "stsb/test", "STS-B")} == {"all", "mean", "wmean"}


ALL = (None, "all", "spearman")
SETTINGS = {"metrics": ["spearman"], "aggregations": ["all", "wmean"]}
N = 120


def average_observed(shared):
    """The seven tasks' observations; the last six repeat `shared` of the first one's pairs, similarities included."""
    rng = np.random.default_rng(3)
    actual, first = {}, None
    for place, task in enumerate(AVERAGED):
        gold = rng.normal(size=N)
        arrays = {"gold": gold, "similarity": gold + rng.normal(size=N), "subset": np.arange(N) % 2,
                  "pair": np.arange(N, dtype=np.uint64) + np.uint64(1000 * place)}
        first = first or arrays
        for name in ("gold", "similarity", "pair"):
            arrays[name][:shared] = first[name][:shared]
        actual[task] = (Observations(arrays, {"subsets": ["one", "two"]}), TASKS[task])
    return actual


def naive(actual, resamples=100):
    """Averages of scipy's correlations over redrawn distinct pairs, each taken into every task that it stands in."""
    rng = np.random.default_rng(0)
    keys = np.unique(np.concatenate([each.arrays["pair"] for each, _ in actual.values()]))
    averages = []
    for _ in range(resamples):
        counts = np.bincount(rng.integers(0, len(keys), len(keys)), minlength=len(keys))
        times = dict(zip(keys.tolist(), counts, strict=True))
        scores = []
        for each, _ in actual.values():
            at = np.repeat(np.arange(N), [times[key] for key in each.arrays["pair"].tolist()])
            scores.append(stats.spearmanr(each.arrays["similarity"][at], each.arrays["gold"][at]).statistic)
        averages.append(100 * np.mean(scores))
    return np.std(averages)


def test_the_spread_is_that_of_redrawing_distinct_pairs():
    """Which is wider than that of redrawing each task by itself."""
    protocol, actual = StsProtocol(SETTINGS), average_observed(80)
    together = np.std(protocol.average_draws(actual, 500, 0)[ALL])
    assert together == pytest.approx(naive(actual), rel=0.12)
    apart = np.mean([protocol.draws(*actual[task], 500, 0)[ALL] for task in AVERAGED], axis=0)
    assert together > 1.3 * np.std(apart)


def test_two_encoders_meet_the_same_draws():
    """A score that is the other one's monotone function has the same draws; all seven tasks are needed."""
    protocol, actual = StsProtocol(SETTINGS), average_observed(40)
    other = {task: (Observations({**each.arrays, "similarity": np.exp(each.arrays["similarity"])}, each.names), id)
             for task, (each, id) in actual.items()}
    one, two = protocol.average_draws(actual, 200, 0), protocol.average_draws(other, 200, 0)
    assert one.keys() == two.keys() == {ALL, (None, "wmean", "spearman")}
    np.testing.assert_allclose(one[ALL], two[ALL])
    del actual["SICK-R"]
    assert protocol.average_draws(actual, 200, 0) == {}


def test_pairs_are_one_whatever_their_order_case_and_punctuation():
    first = ["A cat sleeps.", "it 's A CAT", "a dog", "a", "ab"]
    keys = pair_keys(first, ["It's a cat", "a cat sleeps", "a cat sleeps", "bc", "c"])
    assert keys.dtype == np.uint64
    assert keys[0] == keys[1] and len(set(keys.tolist())) == 4
