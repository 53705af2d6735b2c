"""Tiers: against a loop over rows, and by hand."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stsbench.metrics.ranks import tiers


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
