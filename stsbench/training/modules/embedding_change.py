"""Views made at the embedding output: what is done to the vectors that a transformer's first layer reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from stsbench.errors import EncoderError


@dataclass(frozen=True)
class EmbeddingChange:
    """For one padded batch of n rows of L tokens: its embedding output E (word, position and type embeddings, LayerNorm,
    dropout) becomes (`replacement` or E) + `added`, and 0 where any of `cut` is true. Before that, its first P places become
    `leading`: vectors that the layers read before the text, without position or type. Attention and pooling masks stay.

    cut: masks (n, L or 1, d or 1), true where a number is set to 0: whole tokens, whole features, single elements; added,
    replacement: (n, L, d); leading: (n, P, d), not together with `replacement`; every row's first P places are real. Padding
    may be changed, too: nothing reads it. Gradients reach all vectors.
    """

    cut: tuple[Tensor, ...] = ()
    added: Tensor | None = None
    replacement: Tensor | None = None
    leading: Tensor | None = None

    def part(self, rows: slice) -> EmbeddingChange:
        """That of some rows of the batch."""
        added, replacement, leading = (
            None if part is None else part[rows] for part in (self.added, self.replacement, self.leading)
        )
        return EmbeddingChange(tuple(mask[rows] for mask in self.cut), added, replacement, leading)

    def check(self, ids: Tensor) -> None:
        """ValueError unless all parts go with this batch (n, L)."""
        rows, length = ids.shape
        for mask in self.cut:
            if mask.ndim != 3 or mask.shape[0] != rows or mask.shape[1] not in (1, length) or mask.dtype != torch.bool:
                what = f"a mask {tuple(mask.shape)} of {mask.dtype}"
                raise ValueError(f"{what} cannot cut embeddings of a batch {(rows, length)}")
        for part in (self.added, self.replacement):
            if part is not None and part.shape[:2] != ids.shape:
                raise ValueError(f"vectors {tuple(part.shape)} do not go with the embeddings of a batch {(rows, length)}")
        if self.leading is not None:
            if self.replacement is not None:
                raise ValueError("leading vectors would be overwritten by the replacement of a batch")
            if self.leading.ndim != 3 or len(self.leading) != rows or self.leading.shape[1] > length:
                what = f"leading vectors {tuple(self.leading.shape)}"
                raise ValueError(f"{what} do not go with the embeddings of a batch {(rows, length)}")

    def padded(self, embedded: Tensor) -> Tensor:
        """What the first layer reads, (n, L, d), for the embedding output (n, L, d)."""
        if self.leading is not None:
            embedded = torch.cat([self.leading.to(embedded.dtype), embedded[:, self.leading.shape[1] :]], 1)
        return self._applied(embedded, self.replacement, self.added, self.cut)

    def packed(self, embedded: Tensor, indices: Tensor, length: int) -> Tensor:
        """The same of real tokens alone: embedded (tokens, d); places: (tokens,) where each stands in the flattened batch.

        length: L.
        """
        rows, columns = indices // length, indices % length
        if self.leading is not None:
            count = self.leading.shape[1]
            first = (columns < count).nonzero().squeeze(1)
            vectors = self.leading.flatten(0, 1)[rows[first] * count + columns[first]]
            embedded = embedded.index_copy(0, first, vectors.to(embedded.dtype))
        parts = (self.replacement, self.added)
        replacement, added = (None if part is None else part.flatten(0, 1)[indices] for part in parts)
        cut = tuple(mask[rows, columns if mask.shape[1] > 1 else torch.zeros_like(columns)] for mask in self.cut)
        return self._applied(embedded, replacement, added, cut)

    @staticmethod
    def _applied(embedded: Tensor, replacement: Tensor | None, added: Tensor | None, cut: tuple[Tensor, ...]) -> Tensor:
        changed = embedded if replacement is None else replacement.to(embedded.dtype)
        changed = changed if added is None else changed + added.to(embedded.dtype)
        for mask in cut:
            changed = changed.masked_fill(mask, 0)
        return changed


@contextmanager
def changed_embeddings(model: Any, change: Callable[[Tensor], Tensor] | None) -> Iterator[None]:
    """Within, a pass of a BERT or RoBERTa reads `change` of its embeddings. EncoderError where it does not."""
    if change is None:
        yield
        return
    reached = False

    def apply(module: nn.Module, inputs: Any, output: Any) -> Tensor:
        nonlocal reached
        if not isinstance(output, Tensor) or output.ndim != 3:
            raise EncoderError(f"the embeddings of {type(model).__name__} are no (rows, tokens, width) numbers to change")
        reached = True
        return change(output)

    hook = model.embeddings.register_forward_hook(apply)
    try:
        yield
    finally:
        hook.remove()
    if not reached:  # else two views would be one without a word
        raise EncoderError(f"{type(model).__name__} did not run its embeddings, which were to be changed")
