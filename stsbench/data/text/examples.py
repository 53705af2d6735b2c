"""Rows of training text with their tokens, as a method sees a batch; rows that follow others; counts of tokens."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stsbench.data.text.cache import RowNumbers, checked
from stsbench.data.text.store import TextStore
from stsbench.data.text.tokens import Tokens
from stsbench.errors import DataError
from stsbench.files import atomic_write, training_cache

_VERSION = 1  # raised when what is counted or the file's layout changes
_CHUNK = 10_000  # rows held at a time


class TextRows:
    """n rows of a TextStore, in this order. Satisfies stsbench.training.api.batch.Examples."""

    def __init__(self, store: TextStore, tokens: Tokens, rows: RowNumbers) -> None:
        self.store, self.tokens = store, tokens
        self.roles = tokens.roles  # those the method uses, whose texts are tokenised
        self._numbers = checked(rows, len(store))
        self.rows: Sequence[int] = self._numbers.data  # places in the data set; not a list, for it may be all of them

    def __len__(self) -> int:
        return len(self._numbers)

    def ids(self, role: str) -> list[NDArray[np.int32]]:
        """Return token ids of a role's text, special tokens included, one read-only array per row."""
        return self.tokens.ids(role, self._numbers)

    def lengths(self, role: str) -> NDArray[np.int64]:
        """Return int64 (n,): how many token ids `ids` gives."""
        return self.tokens.lengths(role)[self._numbers]

    def texts(self, role: str) -> list[str]:
        """Return the role's text, one per row."""
        return self.store.texts(role, self._numbers)

    def labels(self) -> list[int]:
        """Return the class number of each row, a place in store.label_names."""
        labels: list[int] = self.store.labels(self._numbers).tolist()
        return labels

    def scores(self) -> list[float]:
        """Return the score of each row, in the file's own units."""
        scores: list[float] = self.store.scores(self._numbers).tolist()
        return scores

    def following(self, k: int = 1) -> NDArray[np.int64]:
        """Return int64 (n,): the k-th row after each in the same document, -1 beyond its end. Needs data.contiguous."""
        return self.store.following(self._numbers, k)

    def at(self, rows: RowNumbers) -> TextRows:
        """Return other rows of the same data, e.g. those that `following` gives."""
        return TextRows(self.store, self.tokens, rows)


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
    """Return bool (n,): whether another row of the same document follows each of `rows` (a TextRows), as for Needs.usable.

    Raises DataError naming `option` where none is: the file's lines are not said to follow one another.
    """
    has_next: NDArray[np.bool_] = np.asarray(rows.following(1)) >= 0
    if not has_next.any():
        raise DataError(
            f"{option}: no row has a next sentence; set data.contiguous for a text file whose lines follow one another, "
            "a blank line between documents"
        )
    return has_next


def token_counts(rows: TextRows, size: int, special_ids: Collection[int], cache: Path | None = None) -> NDArray[np.int64]:
    """Return int64 (size,): how often each token id occurs in the texts of all roles of `rows`, cut as they are trained on.

    size: V, the number of ids; special_ids: those not counted, their count is 0. A row that `rows` holds twice
    counts twice. Kept below `cache`, by default that of training data, under a digest of the tokens, the row numbers and
    the special ids; a file that is not what was written is counted anew. Raises DataError, one line, for an id beyond
    `size`, StsbenchError where the cache cannot be written.
    """
    numbers = np.asarray(rows.rows, dtype="<i8")
    special = sorted(set(special_ids))
    what = [_VERSION, rows.tokens.digest, list(rows.roles), size, special, hashlib.sha256(numbers.tobytes()).hexdigest()]
    path = (cache or training_cache()) / "counts" / hashlib.sha256(json.dumps(what).encode()).hexdigest()
    counts = _read(path, size)
    if counts is None:
        counts = _count(rows, numbers, size, special)
        content = counts.astype("<i8").tobytes()
        with atomic_write(path, "wb") as stream:
            stream.write(hashlib.sha256(content).digest() + content)
    return counts


def _count(rows: TextRows, numbers: NDArray[np.int64], size: int, special: list[int]) -> NDArray[np.int64]:
    counts = np.zeros(size, dtype=np.int64)
    for start in range(0, len(numbers), _CHUNK):
        part = rows.at(numbers[start : start + _CHUNK])
        for role in rows.roles:
            ids = np.concatenate(part.ids(role))
            if len(ids) and ids.max() >= size:
                raise DataError(f"{rows.store.path}: token id {ids.max()} is not below the model's vocabulary size, {size}: "
                                "the text was tokenised by another tokenizer")
            counts += np.bincount(ids, minlength=size)
    counts[special] = 0
    return counts


def _read(path: Path, size: int) -> NDArray[np.int64] | None:
    """Return what was written, or None: nothing yet, or something else by now."""
    try:
        stored = path.read_bytes()
    except OSError:
        return None
    digest, content = stored[:32], stored[32:]
    if len(content) != 8 * size or hashlib.sha256(content).digest() != digest:
        return None
    return np.frombuffer(content, dtype="<i8").astype(np.int64)
