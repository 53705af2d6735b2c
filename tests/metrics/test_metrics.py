"""The arithmetic against scipy and against loops: ranks, bootstrap, averages, similarity, what is refused."""

from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse, stats
from scipy.spatial import distance

from stsbench.encoders.similarity import all_similarities
from stsbench.errors import ScoreError
from stsbench.metrics import bootstrap
from stsbench.metrics.aggregation import average_of_printed, chance_of_same_order, difference_over_tasks, mean_over_tasks
from stsbench.metrics.bootstrap import _Ranker, bootstrap_correlation, fisher_interval, interval, resample_counts
from stsbench.metrics.equivalence import equivalence
from stsbench.metrics.ranks import tiers
from stsbench.metrics.similarity import METRICS, SIMILARITIES, correlation, paired_similarity, zero_rows

# Few distinct values: nearly every example holds ties, in both variables.
tied = st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 5)), min_size=2, max_size=25)


@given(tied, st.integers(0, 2**32 - 1))
@settings(max_examples=15)
@pytest.mark.parametrize("metric", METRICS)
def test_bootstrap_equals_scipy_on_the_repeated_pairs(metric, pairs, seed):
    x, y = np.array(pairs, dtype=np.float64).T
    counts = resample_counts(len(x), 7, (seed,))
    for value, count in zip(bootstrap_correlation(x, y, counts, metric), counts.astype(int), strict=True):
        a, b = np.repeat(x, count), np.repeat(y, count)
        if np.ptp(a) and np.ptp(b):
            assert value == pytest.approx(getattr(stats, f"{metric}r")(a, b).statistic, abs=1e-9)
        else:
            assert np.isnan(value)


@given(st.lists(st.integers(-2, 2), min_size=1, max_size=20), st.data())
@settings(max_examples=25)
def test_weighted_ranks_equal_ranks_of_the_repeated_values(values, data):
    x = np.array(values, dtype=np.float64)
    count = data.draw(st.lists(st.integers(0, 3), min_size=len(x), max_size=len(x)))
    ranker = _Ranker(x)
    ranks, [excess] = ranker(np.array(count)[:, None])
    by_value = [sum(each for each, y in zip(count, values, strict=True) if y == value) for value in set(values)]
    assert excess == sum(each**3 for each in by_value) - sum(each**3 for each in count)
    often = np.array(count)[ranker.order]
    got, want = np.repeat((ranks[:, 0] + 1) / 2, often), stats.rankdata(np.repeat(x[ranker.order], often))
    assert np.allclose(got, want)


@given(st.integers(1, 40), st.integers(1, 3), st.integers(0, 2**32 - 1))
@settings(max_examples=15)
@pytest.mark.parametrize("metric", METRICS)
def test_encoders_together_and_in_blocks_are_as_each_by_itself(metric, n, digits, seed):
    rng = np.random.default_rng(seed)
    predicted, gold = rng.normal(size=(5, n)).round(digits - 1), rng.normal(size=n).round(1)
    predicted[1] = rng.normal(size=n)  # without ties among those with some
    counts = resample_counts(n, 6, (seed,))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bootstrap, "block_rows", lambda n: 4)
        assert (resample_counts(n, 6, (seed,)) == counts).all()
        together = bootstrap_correlation(predicted, gold, counts, metric)
    apart = [bootstrap_correlation(each, gold, counts, metric) for each in predicted]
    np.testing.assert_allclose(together, apart, rtol=0, atol=1e-12)


def test_ranks_of_more_pairs_than_sixteen_bits_hold():
    """Twice a rank exceeds 2^15 - 1."""
    x, y = np.random.default_rng(5).normal(size=(2, 17_000))
    [got] = bootstrap_correlation(x, y, np.ones((1, 17_000)), "spearman")
    assert got == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-12)


def test_resamples_follow_the_seed_and_keep_the_size():
    first, again, other = (resample_counts(30, 50, seed) for seed in ((1, 2), (1, 2), (2, 1)))
    assert first.shape == (50, 30) and (first.sum(axis=1) == 30).all() and (first == first.round()).all()
    assert (first == again).all() and (first != other).any()
    assert abs(first.mean(axis=0) - 1).max() < 0.7 and first.var() == pytest.approx(1 - 1 / 30, rel=0.15)


def test_many_pairs_have_the_intervals_that_scipy_gives():
    x, y = np.random.default_rng(2).normal(size=(2, 600))
    y = 0.6 * x + 0.8 * y
    value = float(stats.pearsonr(x, y).statistic)
    got = fisher_interval(bootstrap_correlation(x, y, resample_counts(600, 2000, (1,)), "pearson"), value, 600)
    method = stats.BootstrapMethod(n_resamples=2000, method="BCa", random_state=np.random.default_rng(3))
    for expected in (stats.pearsonr(x, y).confidence_interval(method=method), stats.pearsonr(x, y).confidence_interval()):
        assert got == pytest.approx(tuple(expected), abs=0.006)


@pytest.mark.parametrize("n", [5, 200])
def test_few_pairs_have_intervals_of_students_width(n):
    draws = np.random.default_rng(n).uniform(-0.2, 0.9, 300)
    far = np.quantile(np.abs(np.arctanh(draws) - np.arctanh(0.4)), 0.95)
    reach = far * np.sqrt(n / (n - 1)) * stats.t.ppf(0.975, n - 2) / stats.norm.ppf(0.975)
    expected = tuple(np.tanh([np.arctanh(0.4) - reach, np.arctanh(0.4) + reach]))
    assert fisher_interval(draws, 0.4, n) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("value", [1.0, 0.25])
def test_equal_draws_of_a_correlation_have_no_interval(value):
    draws = np.full(100, value)
    assert interval(draws) is interval(draws + np.linspace(-1e-14, 1e-14, 100)) is fisher_interval(draws, value, 4) is None
    assert fisher_interval(np.full(39, value), value, 4) is None  # too few draws
    assert fisher_interval(np.r_[np.full(90, value), np.full(10, np.nan)], value, 4) is None
    low, high = fisher_interval(np.r_[np.full(80, 0.25), np.ones(20)], 0.25, 4)  # a fifth of the resamples lies on a line
    assert -1 <= low < 0.25 < high <= 1


def test_intervals_are_percentiles_and_need_95_percent_of_the_draws():
    assert interval(np.arange(1001.0)) == pytest.approx((25, 975))
    assert interval(np.arange(1001.0), level=0.5) == pytest.approx((250, 750))
    draws = np.linspace(0, 1, 100)
    draws[:5] = np.nan
    low, high = interval(draws)
    assert draws[5] <= low < high <= 1
    draws[5] = np.nan
    assert interval(draws) is None


@pytest.mark.parametrize(("scores", "average"), [
    ([68.40, 82.41, 74.38, 80.91, 78.56, 76.85, 72.23], 76.25),  # unsupervised SimCSE, BERT base
    ([75.30, 84.67, 80.19, 85.40, 80.82, 84.25, 80.39], 81.57),  # supervised SimCSE, BERT base
    ([0.004, 0.004, 0.004], 0.0), ([1.006, 1.006], 1.01),  # rounded before the sum, not only after it
])
def test_the_average_as_papers_print_it(scores, average):
    assert average_of_printed(scores) == average


ORACLES = {"cosine": lambda a, b: 1 - distance.cosine(a, b), "dot": np.dot,
           "euclidean": lambda a, b: -distance.euclidean(a, b), "manhattan": lambda a, b: -distance.cityblock(a, b)}
vectors = st.integers(1, 6).flatmap(
    lambda d: st.lists(st.lists(st.integers(-9, 9), min_size=2 * d, max_size=2 * d), min_size=1, max_size=6))


@pytest.mark.parametrize("name", SIMILARITIES)
@given(vectors)
@settings(max_examples=15)
def test_similarity_equals_scipy_dense_and_sparse(name, rows):
    first, second = np.hsplit(np.array(rows, dtype=np.float32), 2)
    got = paired_similarity(first, second, name)
    assert got.dtype == np.float64 and got.shape == (len(rows),)
    for value, a, b in zip(got, first.astype(np.float64), second.astype(np.float64), strict=True):
        if name == "cosine" and not (a.any() and b.any()):
            assert value == 0
        else:
            assert value == pytest.approx(ORACLES[name](a, b), abs=1e-9)
    from_sparse = paired_similarity(sparse.csr_matrix(first), sparse.csr_matrix(second), name)
    in_the_last_bit = name in ("euclidean", "cosine")  # a sparse cosine breaks some ties, as published values do
    assert np.allclose(from_sparse, got, rtol=1e-15, atol=1e-15) if in_the_last_bit else np.array_equal(from_sparse, got)
    assert np.array_equal(zero_rows(sparse.csr_matrix(first)), zero_rows(first))
    assert zero_rows(first).tolist() == [not row.any() for row in first]


def test_zero_vectors_stored_zeros_and_large_and_small_float32_vectors():
    zero, one = np.zeros((1, 3), np.float32), np.ones((1, 3), np.float32)
    assert paired_similarity(zero, one)[0] == paired_similarity(zero, zero)[0] == 0
    stored = sparse.csr_matrix((np.zeros(2, np.float32), [0, 1], [0, 2]), shape=(1, 3))
    assert stored.nnz == 2 and zero_rows(stored).tolist() == [True]
    assert zero_rows(sparse.csr_matrix(np.array([[1.0, -1.0]]))).tolist() == [False]
    for size in (1e18, 1e-18):
        a = np.full((1, 4), size, np.float32)
        assert paired_similarity(a, a)[0] == pytest.approx(1)


DISCRETE = {"bits": (0, 2), "signs": (-1, 2), "counts": (0, 4), "int8": (-128, 128), "uint8": (0, 256)}


@pytest.mark.parametrize(("kind", "width"), [("bits", 3), ("signs", 1024), ("counts", 3), ("int8", 1024), ("uint8", 3)])
def test_cosines_of_whole_numbers_tie_exactly_where_they_are_equal(kind, width):
    """Against fractions: the square of a cosine of whole numbers is one. Spearman's against scipy's of the same."""
    rng, (low, high) = np.random.default_rng(3), DISCRETE[kind]
    first, second = (rng.integers(low, high, (300, width)) for _ in range(2))
    if kind == "signs":
        first, second = (np.where(rows == 0, 1, rows) for rows in (first, second))
    first[:40], second[:40] = 3 * first[40:80], 2 * second[40:80]  # other vectors of one direction
    first[-1] = 0
    exact = [Fraction(int(a @ b) * abs(int(a @ b)), max(1, int(a @ a) * int(b @ b)))
             for a, b in zip(first.astype(object), second.astype(object), strict=True)]
    order = {value: place for place, value in enumerate(sorted(set(exact)))}
    places = np.array([order[value] for value in exact])
    for one, other in ((first, second), (first.astype(np.float32), second.astype(np.float32))):
        cosines = paired_similarity(one, other)
        assert len(set(cosines.tolist())) == len(order)
        assert np.array_equal(np.unique(cosines, return_inverse=True)[1], places)
        assert np.array_equal(cosines[7:9], paired_similarity(one[7:9], other[7:9]))  # whatever else is compared
    gold = rng.integers(0, 6, 300) / 5
    assert correlation(cosines, gold, "spearman") == pytest.approx(stats.spearmanr(places, gold).statistic, abs=1e-12)
    every = np.asarray(all_similarities(first, second, "cosine"))
    assert np.abs(np.diag(every) - cosines).max() < 1e-6
    assert len(np.unique(np.diag(every))) <= len(order)


def test_a_row_of_whole_numbers_among_others_and_one_too_large_for_exact_products():
    rows = np.array([[1.0, 1.0], [0.5, 1.5], [2.0**30, 2.0**31], [np.nan, 1.0]])
    others = np.array([[1.0, 0.0], [1.0, 0.0], [2.0**40, 0.0], [1.0, 1.0]])
    assert paired_similarity(rows, others)[:3] == pytest.approx([2**-0.5, 0.5 / 2.5**0.5, 5**-0.5], abs=1e-15)
    assert paired_similarity(3 * rows[:1], others[:1])[0] == paired_similarity(rows[:1], 7 * others[:1])[0]


@pytest.mark.parametrize("metric", METRICS)
def test_rounding_noise_around_one_value_is_constant(metric):
    """Vectors along one line: every cosine is 1, but for the last bit. Its correlation would be noise."""
    line = np.random.default_rng(5).uniform(1, 2, size=(2, 200, 1)) * np.array([0.3, 0.7, 0.1])
    predicted = paired_similarity(line[0], line[1])
    assert np.ptp(predicted) > 0
    with pytest.raises(ScoreError, match="equal"):
        correlation(predicted, np.arange(200.0), metric)


def test_what_is_documented_of_arrays_holds_of_lists():
    scores, others = np.array([70.0, 74, 72, 80]), np.array([69.0, 70, 73, 76])
    a, b = np.random.default_rng(0).normal([[79.0], [78.9]], 0.1, (2, 99))
    for function, *arrays in (
        (mean_over_tasks, scores), (difference_over_tasks, scores, others), (chance_of_same_order, scores - others),
        (tiers, scores, scores[:, None] != others), (partial(equivalence, 79.0, 78.9, margin=0.5), a, b)):
        np.testing.assert_equal(function(*(array.tolist() for array in arrays)), function(*arrays))
