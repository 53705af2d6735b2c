"""BERT and RoBERTa without padding: linear layers over the concatenated tokens, attention per group of equal length.

A padded batch multiplies what it then masks; here no row is computed that no text owns, and attention needs no mask,
so it takes the fused kernel. The weights stay the transformers module's own (query, key and value are joined into one
matrix per run), and every hidden state equals that module's to 1e-5 in float32 (tests/encoders/forward/test_packed.py).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from stsbench.encoders.forward.batching import Groups
from stsbench.encoders.forward.pooling import views
from stsbench.encoders.forward.soft import KeyValues, Soft
from stsbench.errors import EncoderError

_ZERO_BASED = {"bert"}  # positions 0, 1, 2, ...
_PAD_BASED = {"roberta", "xlm-roberta", "camembert"}  # positions start after the padding index


def known_family(model: Any) -> bool:
    """Whether `model` is an encoder of BERT's or RoBERTa's kind with absolute positions, whatever its linear layers are."""
    config: Any = getattr(model, "config", None)
    if getattr(config, "model_type", None) not in _ZERO_BASED | _PAD_BASED or config.is_decoder:
        return False
    if type(model).__module__.partition(".")[0] != "transformers":  # code of the folder's own, or of the user's
        return False
    return getattr(config, "position_embedding_type", None) in (None, "absolute")


def supports(model: Any) -> bool:
    """Whether `model` is a plain BertModel or RobertaModel; adapters, decoders and relative positions are not, nor are
    modules of other classes, or with hooks."""
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


def _plain(module: nn.Module) -> bool:
    """Whether a module does what its class in transformers or torch does."""
    # transformers leaves hooks of its own, which change nothing, once a model has been asked for hidden states
    hooks = [*module._forward_hooks.values(), *module._forward_pre_hooks.values()]
    if "forward" in vars(module) or any(not getattr(hook, "__module__", "").startswith("transformers.") for hook in hooks):
        return False
    return type(module).__module__.partition(".")[0] in ("transformers", "torch")


def own_positions(embeddings: Any, ids: Tensor, shift: int = 0) -> Tensor:
    """(n, L) position ids as transformers counts them in `ids` (n, L), real tokens' `shift` later."""
    pad: int | None = getattr(embeddings.position_embeddings, "padding_idx", None)
    if pad is None:
        return torch.arange(shift, shift + ids.shape[1], device=ids.device).expand_as(ids)
    real = ids.ne(pad).long()  # RoBERTa: from the padding index on; a padding token inside a text keeps that position
    return (real.cumsum(1) + shift) * real + pad


def room(embeddings: Any) -> int:
    """How many tokens a model has positions for."""
    table = embeddings.position_embeddings
    pad = getattr(table, "padding_idx", None)
    return int(table.num_embeddings if pad is None else table.num_embeddings - pad - 1)


def check_positions(embeddings: Any, positions: Tensor) -> None:
    """EncoderError, one line, for a position that the model's table does not hold."""
    last, count = int(positions.max()), embeddings.position_embeddings.num_embeddings
    if last >= count:
        raise EncoderError(
            f"a token would stand at position {last}, and the model's last one is {count - 1} (the slots of a prefix count, "
            "too): take a shorter maximum length or a shorter prefix"
        )


def check_layers(slots: int, layers: int) -> None:
    """EncoderError where a prefix is not of a model of so many layers."""
    if slots != layers:
        raise EncoderError(f"the prefix has keys and values for {slots} layers, and the model has {layers} layers")


class PackedForward:
    """One run's view of a model: build it anew after the weights have changed."""

    def __init__(self, model: Any) -> None:
        self.embeddings = model.embeddings
        self.layers = list(model.encoder.layer)
        self.pad: int | None = model.config.pad_token_id if model.config.model_type in _PAD_BASED else None
        attentions = [layer.attention.self for layer in self.layers]
        self.joint = [
            (torch.cat([a.query.weight, a.key.weight, a.value.weight]),
             torch.cat([a.query.bias, a.key.bias, a.value.bias]))
            for a in attentions
        ]

    def __call__(self, ids: Tensor, groups: Groups, wanted: tuple[int, ...], soft: Soft | None = None) -> list[Tensor]:
        """The hidden states `wanted` (0 embeddings ... -1 last layer), each (tokens, d).

        ids: (tokens,) of a batch, text after text; groups: its runs of equal length. EncoderError: `soft` puts a token
        beyond the model's positions, or is of a model of other depth.
        """
        count = len(self.layers)
        keep = {index % (count + 1) for index in wanted}
        hidden = self._embed(ids, groups) if soft is None else self._embed_soft(ids, groups, soft)
        kept = {0: hidden} if 0 in keep else {}
        prefix = None if soft is None else soft.prefix
        if prefix is not None:
            check_layers(len(prefix.keys), count)
        for number, (layer, joint) in enumerate(zip(self.layers, self.joint, strict=True), start=1):
            hidden = self._layer(layer, joint, hidden, groups, None if prefix is None else _slots(prefix, number - 1))
            if number in keep:
                kept[number] = hidden
        return [kept[index % (count + 1)] for index in wanted]

    def _embed(self, ids: Tensor, groups: Groups) -> Tensor:
        module = self.embeddings
        parts = []
        for group in views(ids, groups):
            if self.pad is None:
                positional = module.position_embeddings.weight[: group.shape[1]]
            else:  # as transformers counts them: a padding token inside a text keeps the padding position
                real = group.ne(self.pad).long()
                positional = module.position_embeddings(real.cumsum(1) * real + self.pad)
            words = module.word_embeddings(group) + module.token_type_embeddings.weight[0]
            parts.append((words + positional).flatten(0, 1))
        summed = parts[0] if len(parts) == 1 else torch.cat(parts)
        hidden: Tensor = module.LayerNorm(summed)
        return hidden

    def _embed_soft(self, ids: Tensor, groups: Groups, soft: Soft) -> Tensor:
        module = self.embeddings
        positions = soft.positions
        if positions is None:
            positions = torch.cat([own_positions(module, group, soft.shift).flatten() for group in views(ids, groups)])
        longest = max(length for _, length in groups)
        if soft.positions is not None or soft.shift + longest > room(module):  # else no wait for a GPU
            check_positions(module, positions)
        words = replace_words(module.word_embeddings(ids), soft.rows, soft.vectors) + module.token_type_embeddings.weight[0]
        hidden: Tensor = module.LayerNorm(words + module.position_embeddings(positions))
        return hidden

    def _layer(
        self, layer: Any, joint: tuple[Tensor, Tensor], hidden: Tensor, groups: Groups,
        prefix: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:
        """(tokens, d) -> (tokens, d). prefix: (P, d) keys and values that every text attends to before its own."""
        attention = layer.attention
        heads = attention.self.num_attention_heads
        qkv = functional.linear(hidden, *joint).view(len(hidden), 3, heads, -1)
        mixed = []
        for group in views(qkv, groups):
            query, key, value = group.permute(2, 0, 3, 1, 4)  # each (texts, heads, length, head width)
            if prefix is not None:
                key, value = _before(prefix[0], key), _before(prefix[1], value)
            context = functional.scaled_dot_product_attention(query, key, value, scale=attention.self.scaling)
            mixed.append(context.transpose(1, 2).flatten(2).flatten(0, 1))
        context = mixed[0] if len(mixed) == 1 else torch.cat(mixed)
        # .add_ on the fresh product instead of a third tensor: the residual costs no allocation
        hidden = attention.output.LayerNorm(attention.output.dense(context).add_(hidden))
        inner = layer.intermediate.intermediate_act_fn(layer.intermediate.dense(hidden))
        normed: Tensor = layer.output.LayerNorm(layer.output.dense(inner).add_(hidden))
        return normed


def replace_words(words: Tensor, rows: Tensor | None, vectors: Tensor | None) -> Tensor:
    """Word embeddings (..., d) with row `rows` (...) of `vectors` (m, d) in the place of each whose row is not -1."""
    if rows is None or vectors is None:
        return words
    learned = functional.embedding(rows.clamp(min=0), vectors.to(words.dtype))
    return torch.where(rows.ge(0).unsqueeze(-1), learned, words)


def _before(slots: Tensor, states: Tensor) -> Tensor:
    """(texts, heads, P + length, head width): the slots (P, d) before the keys or values `states` of every text."""
    texts, heads, _, width = states.shape
    return torch.cat([slots.to(states).unflatten(1, (heads, width)).transpose(0, 1).expand(texts, -1, -1, -1), states], 2)


def _slots(prefix: KeyValues, layer: int) -> tuple[Tensor, Tensor]:
    """The keys and the values (P, d) of a layer, counted from 0."""
    return prefix.keys[layer], prefix.values[layer]
