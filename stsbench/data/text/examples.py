"""Some rows of training text with their tokens, as a method sees a batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stsbench.data.text.ragged import RowNumbers, checked
from stsbench.data.text.store import TextStore
from stsbench.data.text.tokens import Tokens


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
        """Token ids of a role's text, special tokens included, one read-only array per row."""
        return self.tokens.ids(role, self._numbers)

    def lengths(self, role: str) -> NDArray[np.int64]:
        """int64 (n,): how many token ids `ids` gives."""
        return self.tokens.lengths(role)[self._numbers]

    def texts(self, role: str) -> list[str]:
        """The role's text, one per row."""
        return self.store.texts(role, self._numbers)

    def labels(self) -> list[int]:
        """The class number of each row, a place in store.label_names."""
        labels: list[int] = self.store.labels(self._numbers).tolist()
        return labels

    def scores(self) -> list[float]:
        """The score of each row, in the file's own units."""
        scores: list[float] = self.store.scores(self._numbers).tolist()
        return scores

    def following(self, k: int = 1) -> NDArray[np.int64]:
        """int64 (n,): the k-th row after each in the same document, -1 beyond its end. Needs data.contiguous."""
        return self.store.following(self._numbers, k)

    def at(self, rows: RowNumbers) -> TextRows:
        """Other rows of the same data, e.g. those that `following` gives."""
        return TextRows(self.store, self.tokens, rows)
