"""How alike the texts of triplets are in their words: columns in the wrong order, or copies, show at once."""

from __future__ import annotations

import numpy as np

from stsbench.data.text.store import TextStore
from stsbench.training.api.labelled import TRIPLET

_ROWS = 1000  # looked at, evenly spread


def shared_words(store: TextStore) -> str:
    """One line: the mean Jaccard of the words, lower-cased and split at blanks, of anchors with positives and with
    negatives, and how many of the rows that were looked at have two equal texts."""
    rows = np.unique(np.linspace(0, len(store) - 1, min(len(store), _ROWS)).astype(np.int64))
    texts = list(zip(*(store.texts(role, rows) for role in TRIPLET), strict=True))
    means = [np.mean([_jaccard(row[0], row[column]) for row in texts]) for column in (1, 2)]
    equal = sum(len(set(row)) < len(row) for row in texts)
    shares = ", ".join(f"{role} {mean:.2f}" for role, mean in zip(TRIPLET[1:], means, strict=True))
    return f"words shared with {TRIPLET[0]} (Jaccard, {len(texts):,} rows): {shares}; {equal:,} with two equal texts"


def _jaccard(one: str, other: str) -> float:
    words, others = set(one.lower().split()), set(other.lower().split())
    return len(words & others) / max(len(words | others), 1)
