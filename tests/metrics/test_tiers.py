"""Tiers: against a loop over rows, by hand, and how often a later tier is called worse than it is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stsbench.metrics.bootstrap import resample_counts
from stsbench.metrics.noise import Scores
from stsbench.metrics.ranks import significantly_different, tiers


def naive(values: list[float], different: np.ndarray) -> list[int]:
    """Row by row: the leaders of a tier are the best that are left, and whoever does not differ from one of them joins."""
    tier, number, left = [0] * len(values), 0, set(range(len(values)))
    while left:
        number += 1
        best = max(values[i] for i in left)
        leaders = [i for i in left if values[i] == best]
        for i in sorted(left):
            if i in leaders or any(not different[leader, i] for leader in leaders):
                tier[i] = number
                left.discard(i)
    return tier


def of_pairs(count: int, *pairs: tuple[int, int]) -> np.ndarray:
    different = np.zeros((count, count), dtype=np.bool_)
    for i, j in pairs:
        different[i, j] = different[j, i] = True
    return different


@given(st.data())
def test_tiers_are_those_of_a_loop_over_rows(data: st.DataObject) -> None:
    values = data.draw(st.lists(st.integers(0, 4).map(float), min_size=1, max_size=9))
    count = len(values)
    above = data.draw(st.lists(st.booleans(), min_size=count * count, max_size=count * count))
    different = np.triu(np.array(above).reshape(count, count), 1)
    different |= different.T
    assert tiers(np.array(values), different).tolist() == naive(values, different)
    assert tiers(-np.array(values), different, lower_is_better=True).tolist() == naive(values, different)
    order = np.random.default_rng(count).permutation(count)  # the rows' order decides nothing
    again = tiers(np.array(values)[order], different[np.ix_(order, order)])
    assert again.tolist() == [naive(values, different)[i] for i in order]


def test_by_hand() -> None:
    values = np.array([80.0, 79.0, 78.0, 70.0])
    assert tiers(values, of_pairs(4)).tolist() == [1, 1, 1, 1]
    assert tiers(values, ~np.eye(4, dtype=np.bool_)).tolist() == [1, 2, 3, 4]
    # 79 differs from 78, and both not from 80: one tier, whose members differ.
    assert tiers(values, of_pairs(4, (1, 2), (0, 3), (1, 3))).tolist() == [1, 1, 1, 2]
    assert tiers(np.zeros(0), of_pairs(0)).tolist() == []
    assert tiers(np.array([3.0]), of_pairs(1)).tolist() == [1]


def test_a_better_score_may_stand_in_a_later_tier() -> None:
    """78 is noisy: it does not differ from 80, from which 79 does."""
    values = np.array([80.0, 79.0, 78.0])
    assert tiers(values, of_pairs(3, (0, 1))).tolist() == [1, 2, 1]


def test_rows_that_tie_for_the_best_lead_together() -> None:
    values = np.array([80.0, 80.0, 79.0, 78.0])
    assert tiers(values, of_pairs(4, (0, 2), (0, 3), (1, 3))).tolist() == [1, 1, 1, 2]
    assert tiers(values, of_pairs(4, (0, 1), (0, 2), (1, 2), (0, 3), (1, 3))).tolist() == [1, 1, 2, 2]


@pytest.mark.parametrize("steps", [(0.0, 0.0, 0.0, 0.0, 0.0, 0.0), (0.6, 0.6, 0.6, 0.0, 0.0, 0.0)])
def test_a_later_tier_is_worse_than_the_leaders_before_it_in_95_of_100_tables(steps: tuple[float, ...]) -> None:
    """Six systems, of which some are truly equal: an error is a row that is not worse than the leader of an earlier tier."""
    items, runs, errors, apart = 250, 300, 0, 0
    truth = np.array(steps)
    for number in range(runs):
        rng = np.random.default_rng([41, number])
        scores = truth[:, None] + rng.normal(size=items) + rng.normal(size=(6, items)) * 1.2
        values = scores.mean(axis=1)
        draws = scores @ resample_counts(items, 400, (43, number)).T / items
        tier = tiers(values, significantly_different(Scores(values, draws)).jointly)
        leaders = [int(np.flatnonzero(tier == level)[values[tier == level].argmax()]) for level in range(1, tier.max() + 1)]
        errors += any(truth[i] >= truth[leader] for at, leader in enumerate(leaders) for i in np.flatnonzero(tier > at + 1))
        apart += bool(truth.any()) and tier[:3].max() < tier[3:].min()
    spread = 3 * (0.05 * 0.95 / runs) ** 0.5
    assert errors / runs < 0.05 + spread, errors / runs
    if truth.any():
        assert apart / runs > 0.8  # and what is worse by half a standard deviation is found
