"""Published scores' differences: sign flips over tasks against a loop over all patterns and scipy's permutation test, and
the error of a Spearman correlation against drawn samples."""

from itertools import product

import numpy as np
import pytest
from scipy.stats import permutation_test, rankdata

from stsbench.leaderboard.mteb.differences import compare_over_tasks, mean_difference_error, sign_patterns, spearman_error


def student(differences):
    """The size of Student's t of a pair's differences; infinite where they are equal."""
    sd = np.std(differences, ddof=1)
    return abs(np.mean(differences)) * np.sqrt(len(differences)) / sd if sd > 1e-12 else np.inf


def by_loops(scores, rows_of):
    """Step-down over sign flips, in loops: the pairs that differ among `rows_of` pairs together."""
    tasks = scores.shape[1]
    left, differ = list(rows_of), set()
    while left:
        sizes = {(i, j): student(scores[i] - scores[j]) for i, j in left}
        largest = []
        for signs in product([1, -1], repeat=tasks):
            flipped = [[sign * d for sign, d in zip(signs, scores[i] - scores[j], strict=True)] for i, j in left]
            largest.append(max(map(student, flipped)))
        top = max(sizes.values())
        p = np.mean([value >= top - 1e-9 for value in largest])
        if p >= 0.05:
            return differ
        gone = [pair for pair in left if sizes[pair] >= top - 1e-9]
        differ |= set(gone)
        left = [pair for pair in left if pair not in gone]
    return differ


@pytest.fixture(scope="module")
def scores():
    rng = np.random.default_rng(4)
    return np.linspace(80, 68, 5)[:, None] + rng.normal(0, 2, (5, 7)) + rng.normal(0, 5, 7)


def test_the_rows_tests_are_those_of_a_loop_over_all_patterns(scores):
    tested = compare_over_tasks(scores)
    for i in range(len(scores)):
        expected = by_loops(scores, [(i, j) for j in range(len(scores)) if j != i])
        assert {(i, int(j)) for j in np.flatnonzero(tested.alone[i])} == expected
    pairs = [(i, j) for i in range(len(scores)) for j in range(i + 1, len(scores))]
    joint = {(int(i), int(j)) for i, j in zip(*np.nonzero(np.triu(tested.jointly)), strict=True)}
    assert joint == by_loops(scores, pairs)
    assert 0 < tested.jointly.sum() < tested.alone.sum() <= tested.pairs.sum() < 20 and tested.patterns == 64


def test_one_wild_row_hardly_moves_what_the_others_differ_by(scores):
    """Its differences are the largest ones under nearly every pattern: by raw means they decided for all rows."""
    before = compare_over_tasks(scores)
    for low in (60.0, 40, 20, 5):
        wild = np.full(7, 85.0)
        wild[5] = low
        after = compare_over_tasks(np.vstack([scores, wild]))
        assert (after.pairs[:5, :5] == before.pairs).all()
        assert (after.alone[:5, :5] <= before.alone).all() and after.alone[0, :5].sum() >= before.alone[0].sum() - 1


def test_a_pair_by_itself_is_scipys_permutation_test(scores):
    tested = compare_over_tasks(scores)
    for i in range(len(scores)):
        for j in range(i):
            p = permutation_test((scores[i], scores[j]), lambda a, b, axis: np.mean(a - b, axis=axis),
                                 permutation_type="samples", vectorized=True, n_resamples=np.inf).pvalue
            assert tested.pairs[i, j] == tested.pairs[j, i] == (p < 0.05)


def test_few_tasks_let_nothing_differ():
    assert not compare_over_tasks(np.array([[90.0] * 5, [10.0] * 5])).pairs.any()
    assert compare_over_tasks(np.array([[90.0] * 6, [10.0] * 6])).alone[0, 1]
    assert len(sign_patterns(7)) == 63


DRAWS = 1000


def spearman(one, other):
    """Of the rows of two arrays."""
    ranks = [rankdata(each, axis=1) for each in (one, other)]
    ranks = [each - each.mean(axis=1, keepdims=True) for each in ranks]
    return (ranks[0] * ranks[1]).sum(axis=1) / np.sqrt((ranks[0] ** 2).sum(axis=1) * (ranks[1] ** 2).sum(axis=1))


@pytest.mark.parametrize("rho", [0.2, 0.85])
def test_it_is_the_spread_over_drawn_samples(rho):
    rng = np.random.default_rng(2)
    x, noise = rng.normal(size=(2, DRAWS, 300))
    made = spearman(x, rho * x + np.sqrt(1 - rho**2) * noise)
    assert float(spearman_error(np.array(made.mean()), np.array(300))) == pytest.approx(made.std(ddof=1), rel=0.07)


def test_a_difference_of_means_is_that_of_drawn_samples():
    rng = np.random.default_rng(3)
    drawn = []
    for _task in range(3):
        gold, common = rng.normal(size=(2, DRAWS, 200))
        drawn.append([spearman(gold, gold + 0.9 * (0.8 * common + 0.6 * rng.normal(size=gold.shape))) for _ in range(2)])
    scores = np.array(drawn)  # (tasks, 2, draws)
    shared = np.mean([np.corrcoef(task)[0, 1] for task in scores])
    printed = scores.mean(axis=2).T
    computed = mean_difference_error(printed, np.full(3, 200), float(shared))
    assert computed[0, 1] == pytest.approx(np.diff(scores.mean(axis=0), axis=0).std(ddof=1), rel=0.07)
    assert computed[0, 1] == computed[1, 0] < mean_difference_error(printed, np.full(3, 200), 0.0)[0, 1]
