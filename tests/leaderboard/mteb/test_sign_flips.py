"""Sign flips over tasks: against a loop over all patterns, scipy's permutation test, and their promised level."""

from itertools import product

import numpy as np
import pytest
from scipy.stats import permutation_test

from stsbench.errors import StsbenchError
from stsbench.leaderboard.mteb.differences import different_over_tasks, sign_patterns


def by_loops(scores, rows_of):
    """Step-down over sign flips, in loops: the pairs that differ among `rows_of` pairs together."""
    tasks = scores.shape[1]
    left, differ = list(rows_of), set()
    while left:
        sizes = {pair: abs(np.mean(scores[pair[0]] - scores[pair[1]])) for pair in left}
        largest = []
        for signs in product([1, -1], repeat=tasks):
            flipped = [abs(sum(s * d for s, d in zip(signs, scores[i] - scores[j], strict=True)) / tasks) for i, j in left]
            largest.append(max(flipped))
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
    rng = np.random.default_rng(5)
    return np.linspace(80, 68, 7)[:, None] + rng.normal(0, 2, (7, 7)) + rng.normal(0, 5, 7)


def test_the_rows_tests_are_those_of_a_loop_over_all_patterns(scores):
    tested = different_over_tasks(scores)
    for i in range(len(scores)):
        expected = by_loops(scores, [(i, j) for j in range(len(scores)) if j != i])
        assert {(i, int(j)) for j in np.flatnonzero(tested.alone[i])} == expected
    pairs = [(i, j) for i in range(len(scores)) for j in range(i + 1, len(scores))]
    joint = {(int(i), int(j)) for i, j in zip(*np.nonzero(np.triu(tested.jointly)), strict=True)}
    assert joint == by_loops(scores, pairs)
    assert 0 < tested.jointly.sum() < tested.alone.sum() <= tested.pairs.sum() < 42 and tested.patterns == 64


def test_a_pair_by_itself_is_scipys_permutation_test(scores):
    tested = different_over_tasks(scores)
    for i in range(len(scores)):
        for j in range(i):
            p = permutation_test((scores[i], scores[j]), lambda a, b, axis: np.mean(a - b, axis=axis),
                                 permutation_type="samples", vectorized=True, n_resamples=np.inf).pvalue
            assert tested.pairs[i, j] == tested.pairs[j, i] == (p < 0.05)


def test_equal_rows_rarely_differ_and_the_level_holds():
    """Rows of equal means whose deviations are skewed in size, shared and heavy-tailed, but symmetric: in at most 5 % of
    draws does a row differ from any other."""
    rng = np.random.default_rng(11)
    draws, wrong, joint = 400, 0, 0
    for _ in range(draws):
        shared = rng.normal(0, 1, 7) * rng.choice([1, 6], 7)
        tested = different_over_tasks(rng.uniform(0.3, 2, 6)[:, None] * shared + rng.standard_t(3, (6, 7)))
        wrong += tested.alone[0].any()
        joint += tested.jointly.any()
    assert wrong / draws < 0.05 + 2 * np.sqrt(0.05 * 0.95 / draws) and joint / draws < 0.05 + 2 * np.sqrt(0.05 * 0.95 /
    draws)
    assert wrong > 0


def test_few_tasks_let_nothing_differ_and_bad_scores_are_refused():
    assert not different_over_tasks(np.array([[90.0] * 5, [10.0] * 5])).pairs.any()
    assert different_over_tasks(np.array([[90.0] * 6, [10.0] * 6])).alone[0, 1]
    assert len(sign_patterns(7)) == 63
    with pytest.raises(StsbenchError, match="2 to 12 tasks"):
        different_over_tasks(np.zeros((3, 13)))
    with pytest.raises(StsbenchError, match="NaN"):
        different_over_tasks(np.array([[1.0, np.nan], [1.0, 2.0]]))
