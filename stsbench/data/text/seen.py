"""Which rows equal an earlier one, for more rows than fit into a Python set."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

SIZE = 16  # bytes of a hash: among a billion rows two different ones collide with a probability of 1e-21


class Seen:
    """16-byte hashes seen so far: 16 bytes each, and briefly three times that while two runs are merged."""

    def __init__(self) -> None:
        self._runs: list[NDArray[np.bytes_]] = []  # sorted, without repetition, each more than twice as long as the next

    def fresh(self, hashes: Sequence[bytes]) -> NDArray[np.bool_]:
        """bool (n,): which of n hashes are new, neither in an earlier call nor earlier in this one."""
        result = np.zeros(len(hashes), dtype=np.bool_)
        if not len(hashes):
            return result
        unique, first = np.unique(np.array(hashes, dtype=f"S{SIZE}"), return_index=True)
        known = np.zeros(len(unique), dtype=np.bool_)
        for run in self._runs:
            at = np.searchsorted(run, unique)
            known |= run[np.minimum(at, len(run) - 1)] == unique
        result[first[~known]] = True
        if not known.all():
            self._runs.append(unique[~known])
        while len(self._runs) > 1 and len(self._runs[-2]) <= 2 * len(self._runs[-1]):
            last, before = self._runs.pop(), self._runs.pop()
            self._runs.append(np.sort(np.concatenate([before, last]), kind="stable"))
        return result
