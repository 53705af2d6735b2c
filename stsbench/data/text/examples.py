"""Batches of training rows with their tokens, as methods receive them; following rows of a document; token counts."""

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

_VERSION = 1  # raised when the counts or the file's layout change, so that older files are not used
_CHUNK = 10_000  # rows that are held in memory


class TextRows:
    """n rows of a TextStore, in the given order. Implements stsbench.training.api.batch.Examples."""

    def __init__(self, store: TextStore, tokens: Tokens, rows: RowNumbers) -> None:
        self.store, self.tokens = store, tokens
        self.roles = tokens.roles  # the roles that the method uses and whose texts are tokenised
        self._numbers = checked(rows, len(store))
        self.rows: Sequence[int] = self._numbers.data  # row numbers in the data set; no list, as they may be all rows

    def __len__(self) -> int:
        return len(self._numbers)

    def ids(self, role: str) -> list[NDArray[np.int32]]:
        """Return the token ids of a role's texts, special tokens included, one read-only int32 array per row."""
        return self.tokens.ids(role, self._numbers)

    def lengths(self, role: str) -> NDArray[np.int64]:
        """Return int64 (n,), the number of token ids of each row's text."""
        return self.tokens.lengths(role)[self._numbers]

    def texts(self, role: str) -> list[str]:
        """Return the role's texts, one per row."""
        return self.store.texts(role, self._numbers)

    def labels(self) -> list[int]:
        """Return the class number of each row, an index into store.label_names."""
        labels: list[int] = self.store.labels(self._numbers).tolist()
        return labels

    def scores(self) -> list[float]:
        """Return the score of each row, in the file's own units."""
        scores: list[float] = self.store.scores(self._numbers).tolist()
        return scores

    def following(self, k: int = 1) -> NDArray[np.int64]:
        """Return int64 (n,), the k-th row after each in its document, -1 beyond the end. Needs data.contiguous."""
        return self.store.following(self._numbers, k)

    def at(self, rows: RowNumbers) -> TextRows:
        """Return other rows of the same data, such as those from `following`."""
        return TextRows(self.store, self.tokens, rows)


def following(rows: Any, reach: int, rng: np.random.Generator) -> TextRows:
    """Return for each of `rows` (a TextRows) a random one of the up to `reach` rows that follow it in its document.

    Raises DataError for the last row of a document: leave out rows that are not `followed`.
    """
    ahead = np.stack([rows.following(k) for k in range(1, reach + 1)], axis=1)
    there = (ahead >= 0).sum(axis=1)
    if not there.all():
        row = rows.rows[int(np.argmin(there))]
        raise DataError(f"row {row} has no next sentence in its document: such rows cannot be used for training")
    chosen: TextRows = rows.at(ahead[np.arange(len(ahead)), rng.integers(0, there)])
    return chosen


def followed(rows: Any, option: str) -> NDArray[np.bool_]:
    """Return bool (n,), whether each of `rows` (a TextRows) is followed by a row of its document, for Needs.usable.

    Raises DataError, naming `option`, where no row is followed by another, as the file's documents are single rows.
    """
    has_next: NDArray[np.bool_] = np.asarray(rows.following(1)) >= 0
    if not has_next.any():
        raise DataError(
            f"{option}: no row has a next sentence; set data.contiguous for a text file whose lines follow one another, "
            "a blank line between documents"
        )
    return has_next


def token_counts(rows: TextRows, size: int, special_ids: Collection[int], cache: Path | None = None) -> NDArray[np.int64]:
    """Return int64 (size,), how often each token id occurs in the texts of all roles of `rows`, truncated as in training.

    size: V, the number of ids; special_ids: ids that are not counted, with count 0. A row that `rows` holds twice counts
    twice. The counts are kept in `cache`, by default that of training data, under a digest of the tokens, the row numbers
    and the special ids; a damaged file is counted anew. Raises DataError, one line, for an id of at least `size`, and
    StsbenchError where the cache cannot be written.
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
    """Return the stored counts; None where the file is missing or damaged."""
    try:
        stored = path.read_bytes()
    except OSError:
        return None
    digest, content = stored[:32], stored[32:]
    if len(content) != 8 * size or hashlib.sha256(content).digest() != digest:
        return None
    return np.frombuffer(content, dtype="<i8").astype(np.int64)
