"""Which rows equal an earlier one, for more rows than fit into a Python set."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

SIZE = 16  # bytes of a hash: among a billion rows two different ones collide with a probability of 1e-21

_Halves = NDArray[np.uint64]  # (2, n): the first and the last eight bytes of sorted hashes; numbers sort faster than bytes


class EarlierRows:
    """16-byte hashes seen so far: 16 bytes each, and briefly three times that while two runs are merged."""

    def __init__(self) -> None:
        self._runs: list[_Halves] = []  # without repetition, each more than twice as long as the next

    def fresh(self, hashes: Sequence[bytes]) -> NDArray[np.bool_]:
        """bool (n,): which of n hashes are new, neither in an earlier call nor earlier in this one."""
        result = np.zeros(len(hashes), dtype=np.bool_)
        if not len(hashes):
            return result
        halves = np.frombuffer(b"".join(hashes), np.uint64).reshape(-1, 2).T
        order = np.lexsort(halves[::-1])
        halves = halves[:, order]
        first = np.append(True, (halves[:, 1:] != halves[:, :-1]).any(axis=0))
        halves, order = halves[:, first], order[first]  # of equal ones the earliest: lexsort is stable
        known = np.zeros(len(order), dtype=np.bool_)
        for run in self._runs:
            known |= _holds(run, halves)
        result[order[~known]] = True
        if not known.all():
            self._runs.append(halves[:, ~known])
        while len(self._runs) > 1 and self._runs[-2].shape[1] <= 2 * self._runs[-1].shape[1]:
            last, before = self._runs.pop(), self._runs.pop()
            both = np.concatenate([before, last], axis=1)
            self._runs.append(both[:, np.argsort(both[0], kind="stable")])
        return result


def _holds(run: _Halves, halves: _Halves) -> NDArray[np.bool_]:
    """bool (n,): which of n hashes a run holds. Those that share the first half stand side by side in it."""
    known = np.zeros(halves.shape[1], dtype=np.bool_)
    positions = np.searchsorted(run[0], halves[0])
    left = np.arange(halves.shape[1])
    while len(left := left[positions[left] < run.shape[1]]):
        left = left[run[0, positions[left]] == halves[0, left]]
        known[left] |= run[1, positions[left]] == halves[1, left]
        positions[left] += 1
    return known
