"""How often each token occurs in training text: counted once, kept on disk."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stsbench.data.text.examples import TextRows
from stsbench.errors import DataError
from stsbench.files import atomic_write, training_cache

_VERSION = 1  # of what is counted and of the file
_CHUNK = 10_000  # rows held at a time


def token_counts(rows: TextRows, size: int, special_ids: Collection[int], cache: Path | None = None) -> NDArray[np.int64]:
    """int64 (size,): how often each token id occurs in the texts of all roles of `rows`, cut as they are trained on.

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
    """What was written, or None: nothing yet, or something else by now."""
    try:
        stored = path.read_bytes()
    except OSError:
        return None
    digest, content = stored[:32], stored[32:]
    if len(content) != 8 * size or hashlib.sha256(content).digest() != digest:
        return None
    return np.frombuffer(content, dtype="<i8").astype(np.int64)
