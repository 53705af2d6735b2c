"""Any transformers encoder through its own forward pass, padded; and what BERT and RoBERTa take from outside.

Padded to a sorted batch's longest text with an attention mask, or to a number of positions that a pooler names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from stsbench.encoders.forward.batch_effects import restore
from stsbench.encoders.forward.batching import Groups
from stsbench.encoders.forward.soft import Soft
from stsbench.errors import EncoderError

_ZERO_BASED = {"bert"}  # positions 0, 1, 2, ...
_PAD_BASED = {"roberta", "xlm-roberta", "camembert"}  # positions start after the padding index


class PaddedForward:
    """The same call as PackedForward, for models that have no such pass and for its check."""

    def __init__(self, model: Any, pad: int, bidirectional: bool = False) -> None:
        self.model = model
        self.pad = pad
        self.bidirectional = bidirectional

    def __call__(self, ids: Tensor, groups: Groups, wanted: tuple[int, ...], soft: Soft | None = None) -> list[Tensor]:
        """The hidden states `wanted` (0 embeddings ... -1 last layer), each packed to (tokens, d).

        ids: (tokens,) of a batch, text after text; groups: its runs of equal length. Padding stands right, where no
        model's positions or causal mask can see it. EncoderError: `soft` for a model that is not a BERT or RoBERTa, or that
        has no such positions.
        """
        width = max(length for _, length in groups)
        lengths = torch.tensor([length for texts, length in groups for _ in range(texts)])
        mask = torch.arange(width) < lengths[:, None]
        rows = mask.flatten().nonzero().squeeze(1)
        if ids.is_cuda:
            mask, rows = mask.pin_memory(), rows.pin_memory()
        mask, rows = (part.to(ids.device, non_blocking=True) for part in (mask, rows))

        def padded(values: Tensor, fill: int) -> Tensor:
            whole = values.new_full((len(lengths) * width,), fill)
            whole[rows] = values
            return whole.view(-1, width)

        inputs = {"input_ids": padded(ids, self.pad), "attention_mask": mask.long()}
        if self.bidirectional:
            inputs |= _both_directions(self.model, mask)
        if soft is not None:
            inputs = soft_inputs(
                self.model, inputs["input_ids"], mask,
                positions=None if soft.positions is None else padded(soft.positions, 0),
                rows=None if soft.rows is None else padded(soft.rows, -1),
                vectors=soft.vectors,
                slots=[] if soft.prefix is None else [
                    (keys.expand(len(mask), -1, -1), values.expand(len(mask), -1, -1))
                    for keys, values in soft.prefix.by_layer()
                ],
                shift=soft.shift,
            )
        restore(self.model)
        more = {"output_hidden_states": True} if any(index != -1 for index in wanted) else {}
        output = self.model(**inputs, **more)
        states = [output.last_hidden_state if index == -1 else output.hidden_states[index] for index in wanted]
        # BigBird pads to whole blocks, and cuts the last state back alone
        return [state[:, :width].flatten(0, 1).index_select(0, rows) for state in states]


def _both_directions(model: Any, mask: Tensor) -> dict[str, Tensor]:
    """What makes a causal model look at all real tokens: a mask (n, 1, L, L) that is taken as it is, and the positions that
    some models count in a mask. mask: (n, L) bool."""
    visible = mask[:, None, None].expand(-1, -1, mask.shape[1], -1)
    if model.config._attn_implementation == "eager":
        visible = torch.zeros_like(visible, dtype=model.dtype).masked_fill(~visible, torch.finfo(model.dtype).min)
    return {"attention_mask": visible, "position_ids": torch.arange(mask.shape[1], device=mask.device).expand(mask.shape)}


class MeanPaddedForward:
    """The pooler mean_padded:N: every text padded to N positions, and the mean over all of them, padding included.

    Padding attends to the text like any token and is attended to by none, so its last states are numbers that depend on the
    text: the mean moves with N. Source: Mirror-BERT's released code (Liu et al. 2021), agg_mode "mean", N 50 in training and
    `encode`, 64 in its evaluation.
    """

    def __init__(self, model: Any, pad: int, length: int) -> None:
        """pad: the padding token; length: N."""
        self.model, self.pad, self.length = model, pad, length

    def __call__(self, ids: Tensor, groups: Groups) -> Tensor:
        """float32 (n, d) vectors. ids: (tokens,) of a batch, text after text; groups: its runs of equal length, up to N."""
        lengths = torch.tensor([length for texts, length in groups for _ in range(texts)])
        mask = (torch.arange(self.length) < lengths[:, None]).to(ids.device)
        padded = ids.new_full(mask.shape, self.pad).masked_scatter(mask, ids)
        restore(self.model)
        states: Tensor = self.model(input_ids=padded, attention_mask=mask.long()).last_hidden_state
        return states.float().mean(1)


def padded_to(ids: Tensor, mask: Tensor, length: int, pad: int) -> tuple[Tensor, Tensor]:
    """ids, mask (n, L) as (n, length), padded right; ValueError where L is greater."""
    more = length - ids.shape[1]
    if more < 0:
        raise ValueError(f"texts of {ids.shape[1]} tokens for a mean over {length} positions")
    grow = functional.pad
    return grow(ids, (0, more), value=pad), grow(mask, (0, more))


def attention_mask(model: Any, mask: Tensor) -> Tensor:
    """mask (n, L), 1 on real tokens, as one pass of `model` is to be handed it.

    Handed (n, L), transformers asks in every pass whether all of it is 1, and waits for a GPU to say so. There BERT and
    RoBERTa get what it would make of the mask, (n, 1, L, L) bool.
    """
    if mask.device.type == "cpu" or not known_family(model) or model.config._attn_implementation != "sdpa":
        return mask
    return mask.bool()[:, None, None].expand(-1, -1, mask.shape[1], -1)


def soft_inputs(
    model: Any, ids: Tensor, mask: Tensor, *, positions: Tensor | None, rows: Tensor | None, vectors: Tensor | None,
    slots: Sequence[tuple[Tensor, Tensor]], shift: int,
) -> dict[str, Any]:
    """The arguments of transformers' BertModel and RobertaModel for a padded batch under a soft prompt.

    ids, mask: (n, L), mask true on real tokens; positions: (n, L), None: the model's own, `shift` later; rows: (n, L) row of
    `vectors` (m, d) in the place of the word embedding, -1 for none; slots: of each layer the keys and values (n, P, d) that
    each row's tokens attend to, empty for no prefix. Raises EncoderError for another family, for positions that
    the model lacks, for a prefix of another depth, and under gradient checkpointing, where transformers drops a prefix.
    """
    check_family(model)
    real = mask.bool()
    foreseen = positions is None and shift + ids.shape[1] <= room(model.embeddings)
    positions = own_positions(model.embeddings, ids, shift) if positions is None else positions
    positions = positions.masked_fill(~real, 0)  # never read there, and never beyond the table
    if not foreseen:  # else no wait for a GPU
        check_positions(model.embeddings, positions)
    inputs: dict[str, Any] = {"attention_mask": attention_mask(model, mask.long()), "position_ids": positions}
    if rows is None:
        inputs["input_ids"] = ids
    else:
        inputs["inputs_embeds"] = replace_words(model.embeddings.word_embeddings(ids), rows, vectors)
    if slots:
        check_layers(len(slots), model.config.num_hidden_layers)
        if model.training and any(getattr(part, "gradient_checkpointing", False) for part in model.modules()):
            raise EncoderError("transformers drops a prefix of keys and values under gradient checkpointing: switch it off")
        inputs |= {"past_key_values": _cache(model, slots), "attention_mask": wide_mask(model, real, slots[0][0].shape[1])}
    return inputs


def _cache(model: Any, slots: Sequence[tuple[Tensor, Tensor]]) -> Any:
    """The slots as transformers holds what its layers have read before: (n, heads, P, d / heads) each."""
    from transformers import DynamicCache

    cache, heads, kind = DynamicCache(), model.config.num_attention_heads, model.dtype
    device = model.device.type
    if torch.is_autocast_enabled(device):  # the keys they are put before have this type
        kind = torch.get_autocast_dtype(device)
    for layer, pair in enumerate(slots):
        keys, values = (part.to(kind).unflatten(2, (heads, -1)).transpose(1, 2) for part in pair)
        cache.update(keys, values, layer)
    return cache


def wide_mask(model: Any, real: Tensor, slots: int) -> Tensor:
    """(n, 1, L, P + L): true or 0 where a token may look, at every slot and at real tokens, as the attention reads it."""
    visible = torch.cat([real.new_ones(len(real), slots), real], 1)[:, None, None].expand(-1, -1, real.shape[1], -1)
    if model.config._attn_implementation == "sdpa":
        return visible
    open_mask = torch.zeros(visible.shape, dtype=model.dtype, device=real.device)
    return open_mask.masked_fill(~visible, torch.finfo(model.dtype).min)


def known_family(model: Any) -> bool:
    """Whether `model` is an encoder of BERT's or RoBERTa's kind with absolute positions, whatever its linear layers are."""
    config: Any = getattr(model, "config", None)
    if getattr(config, "model_type", None) not in _ZERO_BASED | _PAD_BASED or config.is_decoder:
        return False
    if type(model).__module__.partition(".")[0] != "transformers":  # code of the folder's own, or of the user's
        return False
    return getattr(config, "position_embedding_type", None) in (None, "absolute")


def check_family(model: Any) -> None:
    """EncoderError for a model that no soft prompt is known to reach: DistilBERT and MPNet ignore a prefix, say."""
    if not known_family(model):
        raise EncoderError(
            f"{type(model).__name__} takes no positions, learned words or prefixes of keys and values from outside here: "
            "models of the families BERT and RoBERTa do"
        )


def padding_index(embeddings: Any) -> int | None:
    """Where the positions of RoBERTa's kin begin: one behind it stands the first token. None: they begin at 0."""
    return getattr(getattr(embeddings, "position_embeddings", None), "padding_idx", None)


def own_positions(embeddings: Any, ids: Tensor, shift: int = 0) -> Tensor:
    """(n, L) position ids as transformers counts them in `ids` (n, L), real tokens' `shift` later."""
    pad = padding_index(embeddings)
    if pad is None:
        return torch.arange(shift, shift + ids.shape[1], device=ids.device).expand_as(ids)
    real = ids.ne(pad).long()  # RoBERTa: from the padding index on; a padding token inside a text keeps that position
    return (real.cumsum(1) + shift) * real + pad


def room(embeddings: Any) -> int:
    """How many tokens a model has positions for."""
    pad, count = padding_index(embeddings), embeddings.position_embeddings.num_embeddings
    return int(count if pad is None else count - pad - 1)


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


def replace_words(words: Tensor, rows: Tensor | None, vectors: Tensor | None) -> Tensor:
    """Word embeddings (..., d) with row `rows` (...) of `vectors` (m, d) in the place of each whose row is not -1."""
    if rows is None or vectors is None:
        return words
    learned = functional.embedding(rows.clamp(min=0), vectors.to(words.dtype))
    return torch.where(rows.ge(0).unsqueeze(-1), learned, words)
