"""The rows of a batch from the trainer's collator: columns of token ids, and labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from stsbench.errors import StsbenchError


class Columns:
    """The rows of a batch, from its columns' tokens. Satisfies stsbench.training.api.batch.Examples."""

    def __init__(
        self, names: tuple[str, ...], columns: Sequence[list[np.ndarray]], tokenizer: Any, labels: Tensor | None
    ) -> None:
        """names: the role of each column, "" for one that is not used; columns: n token ids each; labels: n, or more."""
        self.rows: Sequence[int] = range(len(columns[0]))
        self.roles = tuple(name for name in names if name)
        self._columns = dict(zip(names, columns, strict=True))
        self._tokenizer, self._labels = tokenizer, labels

    def ids(self, role: str) -> list[np.ndarray]:
        """Return token ids of a role's texts as the model's tokenizer made them."""
        return self._columns[role]

    def texts(self, role: str) -> list[str]:
        """Return the texts of a role, as far as the tokens tell."""
        around = self._tokenizer("", padding=False, truncation=False)["input_ids"]
        inner = [_inside(ids.tolist(), around) for ids in self.ids(role)]
        return [self._tokenizer.decode(ids, clean_up_tokenization_spaces=False) for ids in inner]

    def labels(self) -> list[int]:
        """Return the label of each row."""
        return [] if self._labels is None else [int(label) for label in self._labels[: len(self.rows)].tolist()]

    def scores(self) -> list[float]:
        """Return the score of each row."""
        return [] if self._labels is None else [float(score) for score in self._labels[: len(self.rows)].tolist()]


def unpadded(column: Mapping[str, Tensor]) -> list[np.ndarray]:
    """Return the token ids of each text, without padding at either side."""
    ids, mask = column.get("input_ids"), column.get("attention_mask")
    if ids is None or mask is None or ids.ndim != 2 or mask.shape != ids.shape:
        raise StsbenchError("methods read texts as the trainer's collator pads them: a column has no such input_ids")
    rows, real = ids.cpu().numpy(), mask.cpu().numpy().astype(bool)
    return [row[kept] for row, kept in zip(rows, real, strict=True)]


def whole_groups(rows: int, size: int, name: str) -> int:
    """Return the number of rows in whole groups of `size`. Raises StsbenchError for fewer rows than one group."""
    if rows < size:
        raise StsbenchError(
            f"{name} takes rows in groups of {size}, and a batch has {rows}: set per_device_train_batch_size to a multiple, "
            "and dataloader_drop_last"
        )
    return rows - rows % size


def _inside(ids: list[int], around: list[int]) -> list[int]:
    """Return the ids without the special tokens that the tokenizer puts before and behind a text: `around`, of an empty
    one."""
    for before in range(len(around) + 1):
        end = len(ids) - (len(around) - before)
        if ids[:before] == around[:before] and ids[end:] == around[before:]:
            return ids[before:end]
    return ids
