"""Sentences that follow others in their document, for methods that learn from neighbours. Needs data.contiguous."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stsbench.data.text.examples import TextRows
from stsbench.errors import DataError


def following(rows: Any, reach: int, rng: np.random.Generator) -> TextRows:
    """For each of `rows` (a TextRows) one of the `reach` that follow it in its document, uniform among those there.

    Raises DataError for a row that nothing follows: leave out rows that are not `followed`.
    """
    ahead = np.stack([rows.following(k) for k in range(1, reach + 1)], axis=1)
    there = (ahead >= 0).sum(axis=1)
    if not there.all():
        row = rows.rows[int(np.argmin(there))]
        raise DataError(f"row {row} has no next sentence in its document: such rows cannot be used for training")
    chosen: TextRows = rows.at(ahead[np.arange(len(ahead)), rng.integers(0, there)])
    return chosen


def followed(rows: Any, option: str) -> NDArray[np.bool_]:
    """bool (n,): whether another row of the same document follows each of `rows` (a TextRows), as for Needs.usable.

    Raises DataError naming `option` where none is: the file's lines are not said to follow one another.
    """
    has_next: NDArray[np.bool_] = np.asarray(rows.following(1)) >= 0
    if not has_next.any():
        raise DataError(
            f"{option}: no row has a next sentence; set data.contiguous for a text file whose lines follow one another, "
            "a blank line between documents"
        )
    return has_next
