"""Tiers: the best score and all that do not differ significantly from it, then the best of the rest, and so on."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Ints = NDArray[np.int64]


def tiers(values: ArrayLike, different: ArrayLike, lower_is_better: bool = False) -> Ints:
    """(r,): the tier of each of r scores, 1 for the best one and all that do not differ significantly from it.

    values: (r,), in any unit; different: bool (r, r), symmetric, which pairs differ significantly
    (`metrics.ranks.Significance.jointly`). The best of the scores that are left leads the next tier. Scores that tie for
    the best lead together: what does not differ from one of them is in their tier, whatever the order of the rows.

    With differences that are significant at 5 % jointly, this holds for all tiers together in 95 % of all tables: whatever
    stands in a later tier is worse than the leader of every tier before it, so that tier 1 holds the truly best. Nothing is
    said of two members of one tier: they may differ significantly from each other, though neither does from the leader, and
    what does not differ is not thereby equal. A score with much noise may stand in an earlier tier than a better score with
    little.

    >>> import numpy as np
    >>> from stsbench.metrics.inference.tiers import tiers
    >>> different = np.array([[False, False, True], [False, False, True], [True, True, False]])
    >>> tiers(np.array([79.1, 78.9, 75.0]), different).tolist()
    [1, 1, 2]
    """
    signed = np.asarray(values, dtype=np.float64) * (-1 if lower_is_better else 1)
    different = np.asarray(different, dtype=np.bool_)
    result = np.zeros(len(signed), dtype=np.int64)
    left = np.arange(len(signed))
    while len(left):
        leaders = left[signed[left] == signed[left].max()]
        members = ~different[np.ix_(leaders, left)].all(axis=0)
        members |= np.isin(left, leaders)
        result[left[members]] = result.max() + 1
        left = left[~members]
    return result
