"""Forward passes of a transformers model over a batch, without padding or padded, also with a soft prompt (BERT, RoBERTa).

Without padding a batch is one row of tokens, text after text, through the model's own modules. No state is computed for
padding, and attention runs over texts of equal length without a mask (encoders/forward/attention.py). A text has the same
states as alone: `why_padded` tests that once for each model.

With padding a sorted batch is padded to its longest text, with an attention mask, or to a number of positions that a pooler
names.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from stsbench.encoders.forward import batching
from stsbench.encoders.forward.attention import (
    Draw,
    Row,
    UnknownAttentionError,
    one_row,
    to_device,
    transformers_models,
)
from stsbench.encoders.forward.batching import Groups, Slots, Soft, restore
from stsbench.encoders.forward.model import main_device
from stsbench.encoders.forward.pooling import views
from stsbench.encoders.forward.relative_positions import adapt
from stsbench.errors import EncoderError

_ZERO_BASED = {"bert"}  # positions 0, 1, 2, ...
_PAD_BASED = {"roberta", "xlm-roberta", "camembert"}  # positions start after the padding index
# Largest difference that rounding explains. In float32: of single numbers, relative to the largest; else: of norms.
_FLOAT32, _FLOAT16, _BFLOAT16 = 1e-5, 1e-2, 5e-2
_NOT_ASKED = "its attention does not go through transformers' interface"


class PaddedForward:
    """A padded pass over a batch, called as PackedForward: for models without a packed pass, and to test that pass."""

    def __init__(self, model: Any, pad: int, bidirectional: bool = False) -> None:
        self.model = model
        self.pad = pad
        self.bidirectional = bidirectional

    def __call__(self, ids: Tensor, groups: Groups, layers: tuple[int, ...], soft: Soft | None = None) -> list[Tensor]:
        """Return the hidden states `layers` (0 embeddings ... -1 last layer), each packed to (tokens, d).

        ids: (tokens,) of a batch, text after text; groups: its runs of equal length. Padding is on the right, where it
        affects no positions and no causal mask. EncoderError: `soft` for a model that is not a BERT or RoBERTa, or that
        lacks its positions.
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
        more = {"output_hidden_states": True} if any(index != -1 for index in layers) else {}
        output = self.model(**inputs, **more)
        states = [output.last_hidden_state if index == -1 else output.hidden_states[index] for index in layers]
        # BigBird pads to whole blocks, and cuts only the last state back
        return [state[:, :width].flatten(0, 1).index_select(0, rows) for state in states]


def _both_directions(model: Any, mask: Tensor) -> dict[str, Tensor]:
    """Return inputs by which a causal model attends to all real tokens: a mask (n, 1, L, L) that transformers leaves as it
    is, and the positions that some models would count in a mask. mask: (n, L) bool."""
    visible = mask[:, None, None].expand(-1, -1, mask.shape[1], -1)
    if model.config._attn_implementation == "eager":
        visible = torch.zeros_like(visible, dtype=model.dtype).masked_fill(~visible, torch.finfo(model.dtype).min)
    return {"attention_mask": visible, "position_ids": torch.arange(mask.shape[1], device=mask.device).expand(mask.shape)}


class MeanPaddedForward:
    """The pooler mean_padded:N: every text padded to N positions, and the mean over all of them, padding included.

    Padding attends to the text like any token, and no token attends to it. Its last states depend on the text, so the mean
    depends on N. Source: Mirror-BERT's released code (Liu et al. 2021), agg_mode "mean", N 50 in training and
    `encode`, 64 in its evaluation.
    """

    def __init__(self, model: Any, pad: int, length: int) -> None:
        """pad: the padding token; length: N."""
        self.model, self.pad, self.length = model, pad, length

    def __call__(self, ids: Tensor, groups: Groups) -> Tensor:
        """Return float32 (n, d) vectors. ids: (tokens,) of a batch, text after text; groups: its runs of equal length, up
        to N."""
        lengths = torch.tensor([length for texts, length in groups for _ in range(texts)])
        mask = (torch.arange(self.length) < lengths[:, None]).to(ids.device)
        padded = ids.new_full(mask.shape, self.pad).masked_scatter(mask, ids)
        restore(self.model)
        states: Tensor = self.model(input_ids=padded, attention_mask=mask.long()).last_hidden_state
        return states.float().mean(1)


def pad_right(ids: Tensor, mask: Tensor, length: int, pad: int) -> tuple[Tensor, Tensor]:
    """Return ids, mask (n, L) as (n, length), padded right; ValueError where L is greater."""
    more = length - ids.shape[1]
    if more < 0:
        raise ValueError(f"texts of {ids.shape[1]} tokens for a mean over {length} positions")
    grow = functional.pad
    return grow(ids, (0, more), value=pad), grow(mask, (0, more))


def attention_mask(model: Any, mask: Tensor) -> Tensor:
    """Return the attention mask to pass to `model` for a mask (n, L), 1 on real tokens.

    With (n, L), transformers tests in every pass whether all of it is 1, and waits for a GPU to answer. On a GPU, BERT and
    RoBERTa therefore get the mask that transformers would make of it, (n, 1, L, L) bool.
    """
    if mask.device.type == "cpu" or not known_family(model) or model.config._attn_implementation != "sdpa":
        return mask
    return mask.bool()[:, None, None].expand(-1, -1, mask.shape[1], -1)


def soft_inputs(
    model: Any, ids: Tensor, mask: Tensor, *, positions: Tensor | None, rows: Tensor | None, vectors: Tensor | None,
    slots: Sequence[tuple[Tensor, Tensor]], shift: int,
) -> dict[str, Any]:
    """Return the arguments of transformers' BertModel and RobertaModel for a padded batch under a soft prompt.

    ids, mask: (n, L), mask true on real tokens; positions: (n, L), None: the model's own, `shift` later; rows: (n, L) row of
    `vectors` (m, d) in the place of the word embedding, -1 for none; slots: of each layer the keys and values (n, P, d) that
    each row's tokens attend to, empty for no prefix. Raises EncoderError for another family, for positions that
    the model lacks, for a prefix of another depth, and under gradient checkpointing, where transformers drops a prefix.
    """
    check_family(model)
    real = mask.bool()
    foreseen = positions is None and shift + ids.shape[1] <= room(model.embeddings)
    positions = own_positions(model.embeddings, ids, shift) if positions is None else positions
    positions = positions.masked_fill(~real, 0)  # padding's positions are never used, but must be in the table
    if not foreseen:  # only then is a GPU waited for
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
    """Return the slots as transformers' cache of past keys and values: (n, heads, P, d / heads) each."""
    from transformers import DynamicCache

    cache, heads, kind = DynamicCache(), model.config.num_attention_heads, model.dtype
    device = model.device.type
    if torch.is_autocast_enabled(device):  # the type of the keys that they are put before
        kind = torch.get_autocast_dtype(device)
    for layer, pair in enumerate(slots):
        keys, values = (part.to(kind).unflatten(2, (heads, -1)).transpose(1, 2) for part in pair)
        cache.update(keys, values, layer)
    return cache


def wide_mask(model: Any, real: Tensor, slots: int) -> Tensor:
    """Return a mask (n, 1, L, P + L) by which tokens attend to every slot and to real tokens: bool for sdpa, else 0 and the
    lowest number."""
    visible = torch.cat([real.new_ones(len(real), slots), real], 1)[:, None, None].expand(-1, -1, real.shape[1], -1)
    if model.config._attn_implementation == "sdpa":
        return visible
    open_mask = torch.zeros(visible.shape, dtype=model.dtype, device=real.device)
    return open_mask.masked_fill(~visible, torch.finfo(model.dtype).min)


def known_family(model: Any) -> bool:
    """Return whether `model` is an encoder of BERT's or RoBERTa's families with absolute positions, whatever its linear
    layers are."""
    config: Any = getattr(model, "config", None)
    if getattr(config, "model_type", None) not in _ZERO_BASED | _PAD_BASED or config.is_decoder:
        return False
    if type(model).__module__.partition(".")[0] != "transformers":  # code of the folder's own, or of the user's
        return False
    return getattr(config, "position_embedding_type", None) in (None, "absolute")


def check_family(model: Any) -> None:
    """Raise EncoderError for a model that may not honour a soft prompt: DistilBERT and MPNet ignore a prefix, say."""
    if not known_family(model):
        raise EncoderError(
            f"{type(model).__name__} takes no positions, learned words or prefixes of keys and values from outside here: "
            "models of the families BERT and RoBERTa do"
        )


def padding_index(embeddings: Any) -> int | None:
    """Return the padding index, after which the positions of RoBERTa and its relatives begin. None: they begin at 0."""
    return getattr(getattr(embeddings, "position_embeddings", None), "padding_idx", None)


def own_positions(embeddings: Any, ids: Tensor, shift: int = 0) -> Tensor:
    """Return (n, L) position ids as transformers counts them in `ids` (n, L), plus `shift` for real tokens."""
    pad = padding_index(embeddings)
    if pad is None:
        return torch.arange(shift, shift + ids.shape[1], device=ids.device).expand_as(ids)
    real = ids.ne(pad).long()  # RoBERTa: from the padding index on; a padding token inside a text keeps that position
    return (real.cumsum(1) + shift) * real + pad


def room(embeddings: Any) -> int:
    """Return the number of tokens that a model has positions for."""
    pad, count = padding_index(embeddings), embeddings.position_embeddings.num_embeddings
    return int(count if pad is None else count - pad - 1)


def check_positions(embeddings: Any, positions: Tensor) -> None:
    """Raise EncoderError, one line, for a position that the model's table does not hold."""
    last, count = int(positions.max()), embeddings.position_embeddings.num_embeddings
    if last >= count:
        raise EncoderError(
            f"a token would stand at position {last}, and the model's last one is {count - 1} (the slots of a prefix count, "
            "too): take a shorter maximum length or a shorter prefix"
        )


def check_layers(slots: int, layers: int) -> None:
    """Raise EncoderError where a prefix has another number of layers than the model."""
    if slots != layers:
        raise EncoderError(f"the prefix has keys and values for {slots} layers, and the model has {layers} layers")


def replace_words(words: Tensor, rows: Tensor | None, vectors: Tensor | None) -> Tensor:
    """Return word embeddings (..., d), replaced by row `rows` (...) of `vectors` (m, d) wherever the row is not -1."""
    if rows is None or vectors is None:
        return words
    learned = functional.embedding(rows.clamp(min=0), vectors.to(words.dtype))
    return torch.where(rows.ge(0).unsqueeze(-1), learned, words)


class PackedForward:
    """A model's pass over packed batches, without padding. Hooks and adapters work as in the model's own pass."""

    def __init__(self, model: Any, bidirectional: bool = False) -> None:
        """bidirectional: tokens of a causal model attend to the tokens after them, too."""
        self.model, self.bidirectional = model, bidirectional
        self.takes = inspect.signature(model.forward).parameters
        self.knows_places = adapt(model) or "position_ids" in self.takes
        self._configs = list({id(part.config): part.config for part in transformers_models(model)}.values())
        self._calls = 0  # attention's calls in a pass, once that is known

    def __call__(
        self, ids: Tensor, groups: Groups, layers: tuple[int, ...], soft: Soft | None = None, *, slots: Slots | None = None,
        heads: Sequence[Tensor] | None = None, draw: Draw | None = None, last: tuple[int, Tensor] | None = None,
    ) -> list[Tensor]:
        """Return the hidden states `layers` (0 embeddings ... -1 last layer), each (tokens, d).

        ids: (tokens,) of a batch, text after text; groups: its runs of equal length; slots: keys and values before each
        text, instead of the prefix of `soft`; heads, draw, last: as in `Row`. EncoderError: `soft` is for a model of another
        family or depth, or puts a token beyond its positions. UnknownAttentionError: the model has no such pass.
        """
        slots = soft.prefix.by_layer() if slots is None and soft is not None and soft.prefix is not None else slots
        row = Row(groups, ids.device, slots, heads, draw, last, self.bidirectional)
        inputs = self._inputs(ids, groups) if soft is None else self._soft_inputs(ids, groups, soft)
        more = {"use_cache": False} if "use_cache" in self.takes else {}
        if any(index != -1 for index in layers):
            more["output_hidden_states"] = True
        with one_row(self._configs, row):
            output = self.model(**{name: values[None] for name, values in inputs.items()}, **more)
        if not row.calls or row.calls != (self._calls or row.calls):  # some layer mixed texts by other means
            raise UnknownAttentionError(_NOT_ASKED)
        self._calls = row.calls
        return [(output.last_hidden_state if index == -1 else output.hidden_states[index])[0] for index in layers]

    def _inputs(self, ids: Tensor, groups: Groups, shift: int = 0) -> dict[str, Tensor]:
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        if "position_ids" in self.takes:
            inputs["position_ids"] = positions(self.model, ids, groups, shift)
        if "token_type_ids" in self.takes and getattr(self.model.config, "type_vocab_size", None):
            inputs["token_type_ids"] = torch.zeros_like(ids)  # some models hold these for as many tokens as a text has
        return inputs

    def _soft_inputs(self, ids: Tensor, groups: Groups, soft: Soft) -> dict[str, Tensor]:
        check_family(self.model)
        embeddings, inputs = self.model.embeddings, self._inputs(ids, groups, soft.shift)
        if soft.positions is not None:
            inputs["position_ids"] = soft.positions
        longest = max(length for _, length in groups)
        if soft.positions is not None or soft.shift + longest > room(embeddings):  # only then is a GPU waited for
            check_positions(embeddings, inputs["position_ids"])
        if soft.rows is not None:
            words = embeddings.word_embeddings(inputs.pop("input_ids"))
            inputs["inputs_embeds"] = replace_words(words, soft.rows, soft.vectors)
        if soft.prefix is not None:
            check_layers(len(soft.prefix.keys), self.model.config.num_hidden_layers)
        return inputs


def positions(model: Any, ids: Tensor, groups: Groups, shift: int = 0) -> Tensor:
    """Return (tokens,) position ids of a packed batch, as the model counts them in each text, plus `shift` for real ones."""
    embeddings = getattr(model, "embeddings", None)
    if padding_index(embeddings) is not None:
        return torch.cat([own_positions(embeddings, group, shift).flatten() for group in views(ids, groups)])
    counted = [np.tile(np.arange(shift, shift + length), texts) for texts, length in groups]
    return to_device(torch.from_numpy(np.concatenate(counted)), ids.device)


def why_padded(
    forward: PackedForward, alone: Callable[[Tensor, Groups, tuple[int, ...]], list[Tensor]], rows: Sequence[list[int]]
) -> str | None:
    """Return None where a model gives texts the same states in a row as alone; else the reason, for the end of a sentence.

    alone: the model's own pass, a PaddedForward; rows: token ids of some texts; the shortest is also read reversed.
    """
    model, name = forward.model, type(forward.model).__name__
    if any(getattr(part.config, "attn_temperature_tuning", False) for part in transformers_models(model)):
        return "its attention is scaled by a token's place in the batch"  # Llama 4, from place 8,192 on: no probe has them
    if not forward.knows_places:
        return f"{name} takes no position_ids"
    device = main_device(model)
    longest_first = sorted(filter(None, rows), key=len, reverse=True)
    texts = [torch.tensor(ids, device=device) for ids in (*longest_first, longest_first[-1][::-1])]
    lengths = np.array([len(ids) for ids in texts])
    try:
        states = forward(torch.cat(texts), batching.groups(lengths), (-1,))[0].float()
    except UnknownAttentionError as error:
        return str(error)
    except Exception as error:  # a model may raise anything for a row that its authors did not foresee
        asked = all(part._can_set_attn_implementation() for part in transformers_models(model))
        return f"{name} fails on a row of texts ({type(error).__name__})" if asked else _NOT_ASKED
    want = torch.cat([alone(ids, [(1, len(ids))], (-1,))[0] for ids in texts]).float()
    if model.dtype == torch.float32:
        far, bound = (states - want).abs().max(), _FLOAT32 * max(1.0, float(want.abs().max()))
    else:
        rounding = _FLOAT16 if model.dtype == torch.float16 else _BFLOAT16
        far, bound = (states - want).norm(), rounding * float(want.norm())
    return None if float(far) <= bound else "a text's states beside others are not those that it has alone"
