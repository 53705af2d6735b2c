"""Soft prompts of padded training batches (position ids, learned words, a prefix of keys and values), changes of their
embeddings, and DropHead.

In training a prefix has a row for each text, because dropout and roles differ from row to row, and gradients flow through
it. At test time a single prefix serves all texts of a packed batch: stsbench/encoders/forward/batching.py.
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
    """A change of the embeddings of a padded batch of n rows of L tokens. The output E of the embedding layer (word,
    position and type embeddings, LayerNorm, dropout) becomes (`replacement` or E) + `added`, and 0 where any of `cut` is
    true. Before that, `leading` replaces the first P embeddings, without position or type. Attention and pooling masks stay
    the same.

    cut: masks (n, L or 1, d or 1), true where a number is set to 0: whole tokens, whole features, single elements; added,
    replacement: (n, L, d); leading: (n, P, d), not together with `replacement`; each row's first P tokens must be real.
    Padding may be changed, too, as its states are not used. Gradients reach all vectors.
    """

    cut: tuple[Tensor, ...] = ()
    added: Tensor | None = None
    replacement: Tensor | None = None
    leading: Tensor | None = None

    def part(self, rows: slice) -> EmbeddingChange:
        """Return the change for some rows of the batch."""
        added, replacement, leading = (
            None if part is None else part[rows] for part in (self.added, self.replacement, self.leading)
        )
        return EmbeddingChange(tuple(mask[rows] for mask in self.cut), added, replacement, leading)

    def check(self, ids: Tensor) -> None:
        """Raise ValueError unless the shapes of all parts are those of a batch with token ids (n, L)."""
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
        """Return the changed embeddings, (n, L, d), of the embedding layer's output (n, L, d)."""
        if self.leading is not None:
            embedded = torch.cat([self.leading.to(embedded.dtype), embedded[:, self.leading.shape[1] :]], 1)
        return self._applied(embedded, self.replacement, self.added, self.cut)

    def packed(self, embedded: Tensor, indices: Tensor, length: int) -> Tensor:
        """Return the changed embeddings, (tokens, d), of a packed batch, which has real tokens only.

        embedded: (tokens, d); indices: (tokens,), each token's index in the flattened padded batch; length: L.
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
    """Replace the output of the module at `path`, (rows, tokens, d), by `change` of it in passes of `model` in the block.

    shape: (rows, d) of the output, if known. Raises EncoderError for another shape, and if the module does not run.
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
    if not reached:  # training would go on without an error, with equal views or a discriminator without the sentence
        raise EncoderError(f"{name} did not run its {path}, which was to be changed: take a BERT-like model")


@dataclass(frozen=True)
class Prefix:
    """A prefix: keys and values that each row's tokens attend to before their own (Li and Liang 2021; DiffAug, section 3.1).

    keys, values: (layers, n, P, d), heads side by side in d, with a copy for each row, as dropout differs; visible: (n, P)
    bool, the slots that a row's tokens may attend to, equally many in all rows. Real tokens' positions start P later,
    whatever the number of visible slots.
    """

    keys: Tensor
    values: Tensor
    visible: Tensor

    def part(self, rows: slice) -> Prefix:
        """Return the prefix of some rows."""
        return Prefix(self.keys[:, rows], self.values[:, rows], self.visible[rows])

    def by_layer(self, order: Tensor | None = None) -> list[tuple[Tensor, Tensor]]:
        """Return for each layer keys and values, (n, p, d), of the p visible slots of each row; [] if p is 0.

        order: (n,), the order of rows in the result. Raises ValueError if rows have different numbers of visible slots.
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
    """The soft prompt of a padded batch of n rows of L tokens.

    positions: (n, L) position ids, None: the model's own, plus P with a prefix; rows: (n, L), the row of `vectors` (m, d)
    that replaces a word embedding, -1 for the token's own; change: of the first layer's input.
    """

    positions: Tensor | None = None
    rows: Tensor | None = None
    vectors: Tensor | None = None
    prefix: Prefix | None = None
    change: EmbeddingChange | None = None

    @property
    def shift(self) -> int:
        """Return P, the number of positions before a text's first if `positions` is None, 0 without a prefix."""
        return 0 if self.prefix is None else self.prefix.visible.shape[1]

    def part(self, rows: slice) -> SoftPrompt:
        """Return the soft prompt of some rows of the batch."""
        positions, words = (None if part is None else part[rows] for part in (self.positions, self.rows))
        prefix = None if self.prefix is None else self.prefix.part(rows)
        return SoftPrompt(positions, words, self.vectors, prefix, None if self.change is None else self.change.part(rows))

    def check(self, ids: Tensor, layers: int) -> None:
        """Raise ValueError unless the shapes of all parts are those of a batch (n, L) and a model with `layers` layers."""
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
    """Return the arguments of one forward pass of `model`. ids, mask: (n, L); soft: the batch's soft prompt, or None.

    Raises EncoderError if the model takes no soft prompt or has too few positions, ValueError for other shapes.
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
    """Return DropHead's factors of attention heads' outputs, (n, layers, H): H / k for k heads of H that are kept, 0 for
    those that are dropped.

    keep: (n, layers, H) bool, for each row and layer. If a row keeps no head of a layer, its factors are all 0. Source:
    Zhou et al. (2020), "Scheduled DropHead", as in Mirror-BERT.
    """
    count = keep.sum(-1, keepdim=True).clamp(min=1)
    return keep * (keep.shape[-1] / count.to(dtype))


def check_factors(factors: Tensor, rows: int, model: Any) -> None:
    """Raise ValueError unless the factors are (n, layers, H) for a batch of n `rows` and for `model`."""
    shape = (rows, model.config.num_hidden_layers, model.config.num_attention_heads)
    if factors.shape != shape:
        raise ValueError(f"factors {tuple(factors.shape)} of heads for rows, layers and heads {shape}")


@contextmanager
def scaled_heads(model: Any, factors: Tensor | None) -> Iterator[None]:
    """Multiply each attention head's output by `factors` (n, layers, H), before the output layer, in transformers' passes of
    a BERT or RoBERTa in the block. Raises EncoderError for other models, and for gradient checkpointing, which misses it."""
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
    """Return the output of a layer's attention, (n, L, d), heads side by side in d, with scaled heads. factors: (n, H)."""
    context, *rest = output
    scaled = context.unflatten(2, (factors.shape[1], -1)) * factors.to(context.dtype)[:, None, :, None]
    return (torch.flatten(scaled, 2), *rest)
