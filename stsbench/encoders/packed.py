"""BERT and RoBERTa without padding: linear layers over the concatenated tokens, attention per group of equal length.

A padded batch multiplies what it then masks; here no row is computed that no text owns, and attention needs no mask,
so it takes the fused kernel. The weights stay the transformers module's own (query, key and value are joined into one
matrix per run), and every hidden state equals that module's to 1e-5 in float32 (tests/test_encoders_packed.py).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from stsbench.encoders.batching import Groups
from stsbench.encoders.pooling import views

_ZERO_BASED = {"bert"}  # positions 0, 1, 2, ...
_PAD_BASED = {"roberta", "xlm-roberta", "camembert"}  # positions start after the padding index


def supports(model: nn.Module) -> bool:
    """Whether `model` is a plain BertModel or RobertaModel; adapters, decoders and relative positions are not."""
    config: Any = getattr(model, "config", None)
    if getattr(config, "model_type", None) not in _ZERO_BASED | _PAD_BASED or config.is_decoder:
        return False
    if getattr(config, "position_embedding_type", None) not in (None, "absolute"):
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

    def __call__(self, ids: Tensor, groups: Groups, wanted: tuple[int, ...]) -> list[Tensor]:
        """The hidden states `wanted` (0 embeddings ... -1 last layer), each (tokens, d).

        ids: (tokens,) of a batch, text after text; groups: its runs of equal length.
        """
        count = len(self.layers)
        keep = {index % (count + 1) for index in wanted}
        hidden = self._embed(ids, groups)
        kept = {0: hidden} if 0 in keep else {}
        for number, (layer, joint) in enumerate(zip(self.layers, self.joint, strict=True), start=1):
            hidden = self._layer(layer, joint, hidden, groups)
            if number in keep:
                kept[number] = hidden
        return [kept[index % (count + 1)] for index in wanted]

    def _embed(self, ids: Tensor, groups: Groups) -> Tensor:
        module = self.embeddings
        parts = []
        for group in views(ids, groups):
            if self.pad is None:
                places = module.position_embeddings.weight[: group.shape[1]]
            else:  # as transformers counts them: a padding token inside a text keeps the padding position
                real = group.ne(self.pad).long()
                places = module.position_embeddings(real.cumsum(1) * real + self.pad)
            words = module.word_embeddings(group) + module.token_type_embeddings.weight[0]
            parts.append((words + places).flatten(0, 1))
        summed = parts[0] if len(parts) == 1 else torch.cat(parts)
        hidden: Tensor = module.LayerNorm(summed)
        return hidden

    def _layer(self, layer: Any, joint: tuple[Tensor, Tensor], hidden: Tensor, groups: Groups) -> Tensor:
        attention = layer.attention
        heads = attention.self.num_attention_heads
        qkv = functional.linear(hidden, *joint).view(len(hidden), 3, heads, -1)
        mixed = []
        for group in views(qkv, groups):
            query, key, value = group.permute(2, 0, 3, 1, 4)  # each (texts, heads, length, head width)
            context = functional.scaled_dot_product_attention(query, key, value, scale=attention.self.scaling)
            mixed.append(context.transpose(1, 2).flatten(2).flatten(0, 1))
        context = mixed[0] if len(mixed) == 1 else torch.cat(mixed)
        # .add_ on the fresh product instead of a third tensor: the residual costs no allocation
        hidden = attention.output.LayerNorm(attention.output.dense(context).add_(hidden))
        inner = layer.intermediate.intermediate_act_fn(layer.intermediate.dense(hidden))
        normed: Tensor = layer.output.LayerNorm(layer.output.dense(inner).add_(hidden))
        return normed
