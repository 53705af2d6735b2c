"""What a padded batch in training reads beside its token ids (positions, learned words, a prefix of keys and values), and
what is done to it on the way: changes of its embeddings, and attention heads that are dropped.

Here a prefix has a row for each text, because dropout and roles differ from row to row, and gradients flow through it. At
test time one prefix serves all texts of a packed batch: stsbench/encoders/forward/batching.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from stsbench.encoders.forward.passes import attention_mask, check_family, soft_inputs
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
        """Return that of some rows of the batch."""
        added, replacement, leading = (
            None if part is None else part[rows] for part in (self.added, self.replacement, self.leading)
        )
        return EmbeddingChange(tuple(mask[rows] for mask in self.cut), added, replacement, leading)

    def check(self, ids: Tensor) -> None:
        """Raise ValueError unless all parts go with this batch (n, L)."""
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
        """Return what the first layer reads, (n, L, d), for the embedding output (n, L, d)."""
        if self.leading is not None:
            embedded = torch.cat([self.leading.to(embedded.dtype), embedded[:, self.leading.shape[1] :]], 1)
        return self._applied(embedded, self.replacement, self.added, self.cut)

    def packed(self, embedded: Tensor, indices: Tensor, length: int) -> Tensor:
        """Return the same of real tokens alone: embedded (tokens, d); places: (tokens,) where each stands in the flattened
        batch.

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
def changed_embeddings(
    model: Any, change: Callable[[Tensor], Tensor] | None, path: str = "embeddings", shape: tuple[int, int] | None = None
) -> Iterator[None]:
    """Within, a pass of `model` reads `change` of what the module at `path` gives: (rows, tokens, d) numbers.

    shape: their rows and d, where these are known. Raises EncoderError where it gives others, and where it is not run.
    """
    if change is None:
        yield
        return
    reached, name = False, type(model).__name__

    def apply(module: nn.Module, inputs: Any, output: Any) -> Tensor:
        nonlocal reached
        if not isinstance(output, Tensor) or output.ndim != 3 or shape not in (None, output.shape[::2]):
            raise EncoderError(f"the {path} of {name} gives no (rows, tokens, width) numbers: take a BERT-like model")
        reached = True
        return change(output)

    hook = model.get_submodule(path).register_forward_hook(apply)
    try:
        yield
    finally:
        hook.remove()
    if not reached:  # else two views would be one, or a discriminator would know nothing of the sentence, without a word
        raise EncoderError(f"{name} did not run its {path}, which was to be changed: take a BERT-like model")


@dataclass(frozen=True)
class Prefix:
    """Keys and values that the tokens of each row attend to before its own (Li and Liang 2021; DiffAug, section 3.1).

    keys, values: (layers, n, P, d), heads side by side in d, row by row (each row may have dropped others); visible: (n, P)
    bool, the slots that a row's tokens may attend to. All rows see equally many. Real tokens' positions start P later,
    however many are seen.
    """

    keys: Tensor
    values: Tensor
    visible: Tensor

    def part(self, rows: slice) -> Prefix:
        """Return that of some rows."""
        return Prefix(self.keys[:, rows], self.values[:, rows], self.visible[rows])

    def by_layer(self, order: Tensor | None = None) -> list[tuple[Tensor, Tensor]]:
        """Of each layer the keys and values (n, p, d) of the p slots that each row sees; empty where p is 0.

        order: (n,) the rows in the order in which they are wanted. ValueError where rows see unequally many.
        """
        rows, slots = self.visible.shape
        if self.keys.shape != self.values.shape or self.keys.shape[1:3] != (rows, slots):
            raise ValueError(
                f"keys {tuple(self.keys.shape)} and values {tuple(self.values.shape)} of a prefix do not go with "
                f"visible {(rows, slots)}"
            )
        low, high = torch.stack(self.visible.long().sum(1).aminmax()).tolist()
        if low != high:
            raise ValueError(f"one row sees {low} slots of the prefix and another {high}: all must see equally many")
        if high == 0:
            return []
        indices = self.visible.to(torch.uint8).argsort(dim=1, descending=True, stable=True)[:, :high]
        indices = indices + torch.arange(rows, device=indices.device).unsqueeze(1) * slots
        flat = (indices if order is None else indices[order]).flatten()
        whole = high == slots and order is None
        return [
            (keys, values) if whole else
            (keys.flatten(0, 1).index_select(0, flat).view(rows, high, -1),
             values.flatten(0, 1).index_select(0, flat).view(rows, high, -1))
            for keys, values in zip(self.keys.unbind(), self.values.unbind(), strict=True)
        ]


@dataclass(frozen=True)
class SoftPrompt:
    """For one padded batch of n rows of L tokens.

    positions: (n, L) position ids, None: the model's own, plus P with a prefix; rows: (n, L) row of `vectors` (m, d) that
    stands for the word embedding, -1 for the token's own; change: of what the first layer reads.
    """

    positions: Tensor | None = None
    rows: Tensor | None = None
    vectors: Tensor | None = None
    prefix: Prefix | None = None
    change: EmbeddingChange | None = None

    @property
    def shift(self) -> int:
        """Return P, the positions that stand before a text where `positions` is None."""
        return 0 if self.prefix is None else self.prefix.visible.shape[1]

    def part(self, rows: slice) -> SoftPrompt:
        """Return that of some rows of the batch."""
        positions, words = (None if part is None else part[rows] for part in (self.positions, self.rows))
        prefix = None if self.prefix is None else self.prefix.part(rows)
        return SoftPrompt(positions, words, self.vectors, prefix, None if self.change is None else self.change.part(rows))

    def check(self, ids: Tensor, layers: int) -> None:
        """Raise ValueError unless all parts go with this batch (n, L) and a model of so many layers."""
        for name, part in (("positions", self.positions), ("rows", self.rows)):
            if part is not None and part.shape != ids.shape:
                raise ValueError(f"{name} {tuple(part.shape)} of a soft prompt for a batch {tuple(ids.shape)}")
        if (self.rows is None) != (self.vectors is None):
            raise ValueError("the rows and the vectors of a soft prompt go together")
        if self.change is not None:
            self.change.check(ids)
        if self.prefix is not None and (len(self.prefix.keys), len(self.prefix.visible)) != (layers, len(ids)):
            raise ValueError(
                f"a prefix of {len(self.prefix.keys)} layers and {len(self.prefix.visible)} rows for a model of {layers} "
                f"layers and a batch of {len(ids)} rows"
            )


def padded_inputs(model: Any, ids: Tensor, mask: Tensor, soft: SoftPrompt | None) -> dict[str, Any]:
    """Return the arguments of one forward pass of `model`. ids, mask: (n, L); soft: of this batch.

    Raises EncoderError for a model that takes no soft prompt or has no such positions, ValueError for other shapes.
    """
    if soft is None:
        return {"input_ids": ids, "attention_mask": attention_mask(model, mask)}
    check_family(model)
    soft.check(ids, model.config.num_hidden_layers)
    return soft_inputs(
        model, ids, mask, positions=soft.positions, rows=soft.rows, vectors=soft.vectors,
        slots=[] if soft.prefix is None else soft.prefix.by_layer(), shift=soft.shift,
    )


def head_factors(keep: Tensor, dtype: torch.dtype) -> Tensor:
    """Return what the output of each head is multiplied by: H / k where it is keep, k of H heads being keep, and 0 where
    not.

    keep: (n, layers, H) bool, for each row and layer; so are the factors. A layer of a row that keeps no head has 0
    everywhere. Source: Zhou et al. (2020), "Scheduled DropHead", as Mirror-BERT has it.
    """
    count = keep.sum(-1, keepdim=True).clamp(min=1)
    return keep * (keep.shape[-1] / count.to(dtype))


def check_factors(factors: Tensor, rows: int, model: Any) -> None:
    """Raise ValueError unless the factors are (n, layers, H) of this batch of n rows and this model."""
    shape = (rows, model.config.num_hidden_layers, model.config.num_attention_heads)
    if factors.shape != shape:
        raise ValueError(f"factors {tuple(factors.shape)} of heads for rows, layers and heads {shape}")


@contextmanager
def scaled_heads(model: Any, factors: Tensor | None) -> Iterator[None]:
    """Within, transformers' own pass of a BERT or RoBERTa multiplies each head's output, before the dense layer behind it,
    by `factors` (n, layers, H). EncoderError for other models, and under gradient checkpointing, which would not see it."""
    if factors is None:
        yield
        return
    check_family(model)
    if any(getattr(part, "gradient_checkpointing", False) for part in model.modules()):
        raise EncoderError("gradient checkpointing computes layers again without the dropped heads: switch it off")
    with ExitStack() as stack:
        for layer, factor in zip(model.encoder.layer, factors.unbind(1), strict=True):
            hook = layer.attention.self.register_forward_hook(partial(_scale, factor))
            stack.callback(hook.remove)
        yield


def _scale(factors: Tensor, module: nn.Module, inputs: Any, output: Any) -> Any:
    """Return the output of one layer's attention, (n, L, d) with heads side by side in d, scaled; factors: (n, H)."""
    context, *rest = output
    scaled = context.unflatten(2, (factors.shape[1], -1)) * factors.to(context.dtype)[:, None, :, None]
    return (torch.flatten(scaled, 2), *rest)
