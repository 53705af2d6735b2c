"""Tiers of rows: in the first, those that none is significantly better than; then those of the rest."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def tiers(values: Floats, different: Bools) -> Ints:
    """(r,): the tier of rows with these scores, higher is better; 1 for those that no row is significantly better than.

    different: bool (r, r), line i: the rows that row i differs from in its own test. Where that test errs in 5 % of the
    cases, tier 1 holds the truly best row in 95 %, since only that row's own test can put it elsewhere. The next tier is the
    first of the rows that are left. Of two rows of one tier nothing is said: they may differ, too.
    """
    result = np.zeros(len(values), dtype=np.int64)
    worse = different & (values[None, :] > values[:, None])  # line: a row, column: one that is significantly better
    left = np.arange(len(values))
    while len(left):
        members = ~worse[np.ix_(left, left)].any(axis=1)
        result[left[members]] = result.max() + 1
        left = left[~members]
    return result
