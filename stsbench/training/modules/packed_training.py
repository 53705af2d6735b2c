"""BERT and RoBERTa trained without padding on a CPU: as stsbench/encoders/forward/packed.py encodes them, with dropout.

Linear layers run over the concatenated real tokens, attention over groups of texts of equal length. Dropout acts where
transformers applies it: on the normalised embeddings, on attention probabilities, and on both dense outputs of a layer
before the residual. Its rates and its independence are the same; the generator that draws it is faster than torch's.
The slots of a prefix stand before each text's own keys and values, and attention drops them like those.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from stsbench.encoders.forward.batching import groups
from stsbench.encoders.forward.padded import check_positions, known_family, own_positions, replace_words
from stsbench.training.modules.soft_prompt import SoftPrompt


def packable(model: Any) -> bool:
    """Whether `PackedTraining` computes what `model` would: plain BERT or RoBERTa, no adapters, no hooks, no gradient
    checkpointing."""
    if not known_family(model) or not all(map(_plain, model.modules())):
        return False
    try:
        linears = [
            linear
            for layer in model.encoder.layer
            for linear in (layer.attention.self.query, layer.attention.self.key, layer.attention.self.value,
                           layer.attention.output.dense, layer.intermediate.dense, layer.output.dense)
        ]
        return model.embeddings is not None and all(type(linear) is nn.Linear for linear in linears)
    except AttributeError:  # another family behind the same name
        return False


def _plain(module: Any) -> bool:
    """Whether a module does what its class in transformers or torch does."""
    # transformers leaves hooks of its own, which change nothing, once a model has been asked for hidden states
    hooks = [*module._forward_hooks.values(), *module._forward_pre_hooks.values()]
    if "forward" in vars(module) or any(not getattr(hook, "__module__", "").startswith("transformers.") for hook in hooks):
        return False
    if getattr(module, "gradient_checkpointing", False):
        return False
    return type(module).__module__.partition(".")[0] in ("transformers", "torch")


class Masks:
    """Dropout masks of one forward pass, seeded by one draw from torch's CPU generator.

    torch's own bernoulli_ costs 4 to 5 times as much on a CPU: 5 to 8 % of a training step.
    """

    def __init__(self) -> None:
        self.bits = np.random.SFC64(int(torch.randint(2**63 - 1, ())))

    def __call__(self, shape: tuple[int, ...], rate: float, dtype: torch.dtype) -> Tensor:
        """A tensor that is 0 with probability `rate` (to 2^-32) and 1 / (1 - rate) elsewhere, elements independent."""
        count = int(np.prod(shape))
        words = self.bits.random_raw((count + 1) // 2).view(np.int32)[:count]  # 32 random bits an element
        kept = torch.from_numpy(words).ge(round(rate * 2**32) - 2**31)
        return kept.to(dtype).mul_(1 / (1 - rate)).view(shape)


class PackedTraining:
    """One forward pass of `model` over one batch; made anew for each. ids, mask: (n, L), mask 1 on real tokens.

    Every row holds at least one real token. Gradients reach every parameter that the padded pass reaches. first: (n, d)
    vectors that the layers read in the place of each row's first embedding, or None. soft: of this batch. EncoderError: it
    puts a token beyond the model's positions; ValueError: it is not of this batch's shapes. heads: (n, layers, H) factors
    of each head's output, or None.
    """

    def __init__(
        self, model: Any, ids: Tensor, mask: Tensor, first: Tensor | None = None, soft: SoftPrompt | None = None,
        heads: Tensor | None = None,
    ) -> None:
        soft = soft or SoftPrompt()
        soft.check(ids, len(model.encoder.layer))
        self.model = model
        self.shape = mask.shape
        self.mask = mask
        lengths = mask.sum(1)
        descending, self.order = lengths.sort(descending=True, stable=True)
        self.groups = groups(descending.numpy())
        flat = self.order.unsqueeze(1) * mask.shape[1] + torch.arange(mask.shape[1])
        self.indices = flat[mask[self.order].bool()]  # (tokens,) of the padded batch, text after text, longest first
        self.starts = descending.cumsum(0) - descending  # (n,) where each text begins among the tokens
        self.tokens = ids.flatten()[self.indices]
        positions = own_positions(model.embeddings, ids, soft.shift) if soft.positions is None else soft.positions
        self.positions = positions.flatten()[self.indices]
        if soft.positions is not None or soft.prefix is not None:
            check_positions(model.embeddings, self.positions)
        self.rows = None if soft.rows is None else soft.rows.flatten()[self.indices]
        self.vectors = soft.vectors
        self.slots = [] if soft.prefix is None else soft.prefix.by_layer(self.order)  # of each layer, rows as in `order`
        self.change = soft.change
        self.heads = None if heads is None else heads[self.order].unbind(1)  # of each layer (n, H), rows as in `order`
        self.masks = Masks()
        self.first_states = None if first is None else first[self.order]

    def states(self, wanted: tuple[int, ...]) -> list[Tensor]:
        """The hidden states `wanted` (0 embeddings ... -1 last layer), each (n, L, d), zero on padding."""
        hidden = self._embed()
        kept = [hidden]
        for number, layer in enumerate(self.model.encoder.layer):
            hidden = self._layer(number, layer, hidden)
            kept.append(hidden)
        rows, length = self.shape
        return [
            kept[index].new_zeros(rows * length, kept[index].shape[1])
            .index_copy(0, self.indices, kept[index]).view(rows, length, -1)
            for index in wanted
        ]

    def at(self, indices: Tensor) -> Tensor:
        """(n, d) last states of one real token a row, at `places` (n,) of the padded batch.

        The last layer computes no other: a sixth of MiniLM's work.
        """
        *layers, last = self.model.encoder.layer
        hidden = self._embed()
        for number, layer in enumerate(layers):
            hidden = self._layer(number, layer, hidden)
        before = self.mask.cumsum(1).gather(1, indices.unsqueeze(1)).squeeze(1)[self.order] - 1
        states = self._layer(len(layers), last, hidden, self.starts + before)
        return torch.empty_like(states).index_copy(0, self.order, states)

    def _embed(self) -> Tensor:
        module = self.model.embeddings
        words = replace_words(module.word_embeddings(self.tokens), self.rows, self.vectors)
        words = words + module.token_type_embeddings.weight[0]
        hidden: Tensor = module.LayerNorm(words + module.position_embeddings(self.positions))
        if rate := _rate(module.dropout):
            hidden = hidden * self.masks(hidden.shape, rate, hidden.dtype)
        if self.change is not None:
            hidden = self.change.packed(hidden, self.indices, self.shape[1])
        return hidden if self.first_states is None else hidden.index_copy(0, self.starts, self.first_states.to(hidden.dtype))

    def _layer(self, number: int, layer: Any, hidden: Tensor, rows: Tensor | None = None) -> Tensor:
        """(tokens, d) -> (tokens, d), or (n, d) for one of the `rows` a text. number: of the layer, from 0."""
        residual = hidden if rows is None else hidden[rows]
        attention = layer.attention
        context = self._attend(attention.self, residual, hidden, number)
        residual = self._add(attention.output, context, residual)
        return self._add(layer.output, layer.intermediate(residual), residual)

    def _add(self, module: Any, inner: Tensor, residual: Tensor) -> Tensor:
        """LayerNorm(residual + dropout(dense(inner))), as BertSelfOutput and BertOutput have it."""
        dense, rate = module.dense(inner).to(residual.dtype), _rate(module.dropout)
        mask = self.masks(dense.shape, rate, dense.dtype) if rate else None
        summed = residual + dense if mask is None else torch.addcmul(residual, dense, mask)
        normed: Tensor = module.LayerNorm(summed)
        return normed

    def _attend(self, module: Any, asking: Tensor, hidden: Tensor, number: int) -> Tensor:
        """Attention of `asking`, all tokens or one a text, over `hidden` (tokens, d) and the slots of layer `number`; as
        many rows as asked."""
        slots = self.slots[number] if self.slots else None
        heads, rate = module.num_attention_heads, _rate(module.dropout)
        single = asking is not hidden
        asked = [texts * (1 if single else length) for texts, length in self.groups]
        sizes = [texts * length for texts, length in self.groups]
        if single:
            query, others = module.query(asking), _joint(hidden, module.key, module.value)
        else:
            query, others = _joint(hidden, module.query, module.key, module.value).split(
                [module.query.out_features, 2 * module.query.out_features], dim=1
            )
        mixed = []
        counts = [texts for texts, _ in self.groups]
        prefixes = [None] * len(counts) if slots is None else torch.cat(slots, 2).to(others.dtype).split(counts)
        factors = [None] * len(counts) if self.heads is None else self.heads[number].split(counts)
        parts = zip(counts, query.split(asked), others.split(sizes), prefixes, factors, strict=True)
        # split, not slices: the gradient of a slice is a tensor of the whole's size
        for texts, one, two, three, factor in parts:
            q = one.view(texts, -1, heads, one.shape[1] // heads).transpose(1, 2)
            both = two.view(texts, -1, two.shape[1])
            both = both if three is None else torch.cat([three, both], 1)
            k, v = both.view(texts, -1, 2, heads, q.shape[-1]).permute(2, 0, 3, 1, 4)
            scores = q @ k.transpose(2, 3) * module.scaling
            shares = scores.softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32))
            if rate:
                shares = shares * self.masks(shares.shape, rate, shares.dtype)
            context = shares.to(v.dtype) @ v  # (texts, heads, length, head width)
            context = context if factor is None else context * factor.to(v.dtype)[:, :, None, None]
            mixed.append(context.transpose(1, 2).flatten(2).flatten(0, 1))
        return torch.cat(mixed)


def _rate(dropout: Any) -> float:
    return float(dropout.p) if dropout.training else 0.0


def _joint(hidden: Tensor, *linears: nn.Linear) -> Tensor:
    """The outputs of several linear layers side by side, from one product."""
    weights = torch.cat([linear.weight for linear in linears])
    return functional.linear(hidden, weights, torch.cat([linear.bias for linear in linears]))
