"""Which texts share a batch: sorted by length, packed to a token budget, and the order restored afterwards.

A batch holds texts of nearly equal length, so little or nothing is padded; the budget bounds memory where a fixed
number of texts would not. Longest first: what does not fit into memory fails on the first batch, not after an hour.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

_Item = TypeVar("_Item")
_Made = TypeVar("_Made")

Groups = list[tuple[int, int]]  # (texts, tokens of each), in the order of a batch


def longest_first(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Positions (n,) of the texts in the order they are encoded; equal lengths keep their order."""
    return np.argsort(-lengths, kind="stable")


def batch_end(lengths: NDArray[np.int64], start: int, budget: int) -> int:
    """Where the batch that begins at `start` ends: its padded size (texts x longest) stays within `budget`.

    lengths: (n,), descending. One text at least, whatever the budget.
    """
    return min(len(lengths), start + max(1, budget // max(1, int(lengths[start]))))


def groups(lengths: NDArray[np.int64]) -> Groups:
    """Runs of equal length in a sorted batch: [(texts, tokens of each), ...]."""
    edges = np.flatnonzero(np.diff(lengths)) + 1
    bounds = [0, *edges.tolist(), len(lengths)]
    return [(stop - start, int(lengths[start])) for start, stop in pairwise(bounds) if stop > start]


def flatten(ids: Sequence[Sequence[int]], order: NDArray[np.int64]) -> NDArray[np.int64]:
    """All token ids, text after text in `order`: (tokens,)."""
    total = sum(len(row) for row in ids)
    return np.fromiter(chain.from_iterable(ids[i] for i in order.tolist()), dtype=np.int64, count=total)


@dataclass(frozen=True)
class Chunk:
    """Texts as a model reads them, longest first. Those without a token are left out."""

    texts: int  # all of them
    truncated: NDArray[np.bool_]  # (texts,) which were cut
    order: NDArray[np.int64]  # (n,) where the rest stand among the texts
    lengths: NDArray[np.int64]  # (n,) tokens of each, in that order
    ids: NDArray[np.int64]  # (tokens,), text after text
    marks: NDArray[np.int64] | None  # (n,) where the mask tokens stand in `ids`, for the pooler mask


@contextmanager
def ahead(make: Callable[[_Item], _Made], items: Iterable[_Item], *, threaded: bool) -> Iterator[Iterator[_Made]]:
    """What `make` makes of each item, in their order; threaded: of the next one in a thread, while the caller uses one.

    An error of `make` is raised where its item's turn comes. At the end of the block, whatever ended it, no thread is left.
    """
    if not threaded:
        yield map(make, items)
        return
    pool = ThreadPoolExecutor(1, "stsbench-ahead")

    def made() -> Iterator[_Made]:
        waiting: deque[Future[_Made]] = deque()
        for item in items:
            waiting.append(pool.submit(make, item))
            if len(waiting) > 1:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    try:
        yield made()
    finally:
        pool.shutdown(cancel_futures=True)
