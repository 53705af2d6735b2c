"""The forward pass without padding: a batch is one row of tokens, text after text, through the model's own modules.

A padded batch multiplies what it then masks; here no row is computed that no text owns, and attention runs over texts of
equal length without a mask (encoders/forward/attention.py). A text's states are those that it has alone: `why_padded` tries
that out on each model, once.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stsbench.encoders.forward import batching
from stsbench.encoders.forward.attention import Draw, Row, UnknownAttentionError, one_row, to_device, transformers_models
from stsbench.encoders.forward.batching import Groups
from stsbench.encoders.forward.checkpoint import main_device
from stsbench.encoders.forward.padded import (
    check_family,
    check_layers,
    check_positions,
    own_positions,
    padding_index,
    replace_words,
    room,
)
from stsbench.encoders.forward.pooling import views
from stsbench.encoders.forward.soft import Slots, Soft

# Largest difference that rounding explains. In float32: of a number, where the largest is 1; else: of all, by their norms.
_FLOAT32, _FLOAT16, _BFLOAT16 = 1e-5, 1e-2, 5e-2
_NOT_ASKED = "its attention does not go through transformers' interface"


class PackedForward:
    """A model's pass over packed batches. Hooks and adapters act as in its own pass."""

    def __init__(self, model: Any, bidirectional: bool = False) -> None:
        """bidirectional: a causal model's tokens attend to what follows, too."""
        self.model, self.bidirectional = model, bidirectional
        self.takes = inspect.signature(model.forward).parameters
        self._configs = list({id(part.config): part.config for part in transformers_models(model)}.values())
        self._calls = 0  # of attention in a pass, once that is known

    def __call__(
        self, ids: Tensor, groups: Groups, wanted: tuple[int, ...], soft: Soft | None = None, *, slots: Slots | None = None,
        heads: Sequence[Tensor] | None = None, draw: Draw | None = None, last: tuple[int, Tensor] | None = None,
    ) -> list[Tensor]:
        """The hidden states `wanted` (0 embeddings ... -1 last layer), each (tokens, d).

        ids: (tokens,) of a batch, text after text; groups: its runs of equal length; slots: what stands before each text, in
        the place of the prefix of `soft`; heads, draw, last: of `Row`. EncoderError: `soft` is for a model of another family
        or depth, or puts a token beyond its positions. UnknownAttentionError: the model has no such pass.
        """
        slots = soft.prefix.by_layer() if slots is None and soft is not None and soft.prefix is not None else slots
        row = Row(groups, ids.device, slots, heads, draw, last, self.bidirectional)
        inputs = self._inputs(ids, groups) if soft is None else self._soft_inputs(ids, groups, soft)
        more = {"use_cache": False} if "use_cache" in self.takes else {}
        if any(index != -1 for index in wanted):
            more["output_hidden_states"] = True
        with one_row(self._configs, row):
            output = self.model(**{name: values[None] for name, values in inputs.items()}, **more)
        if not row.calls or row.calls != (self._calls or row.calls):  # some layer mixed texts by other means
            raise UnknownAttentionError(_NOT_ASKED)
        self._calls = row.calls
        return [(output.last_hidden_state if index == -1 else output.hidden_states[index])[0] for index in wanted]

    def _inputs(self, ids: Tensor, groups: Groups, shift: int = 0) -> dict[str, Tensor]:
        inputs = {
            "input_ids": ids, "attention_mask": torch.ones_like(ids),
            "position_ids": positions(self.model, ids, groups, shift),
        }
        if "token_type_ids" in self.takes and getattr(self.model.config, "type_vocab_size", None):
            inputs["token_type_ids"] = torch.zeros_like(ids)  # some models hold these for as many tokens as a text has
        return inputs

    def _soft_inputs(self, ids: Tensor, groups: Groups, soft: Soft) -> dict[str, Tensor]:
        check_family(self.model)
        embeddings, inputs = self.model.embeddings, self._inputs(ids, groups, soft.shift)
        if soft.positions is not None:
            inputs["position_ids"] = soft.positions
        longest = max(length for _, length in groups)
        if soft.positions is not None or soft.shift + longest > room(embeddings):  # else no wait for a GPU
            check_positions(embeddings, inputs["position_ids"])
        if soft.rows is not None:
            words = embeddings.word_embeddings(inputs.pop("input_ids"))
            inputs["inputs_embeds"] = replace_words(words, soft.rows, soft.vectors)
        if soft.prefix is not None:
            check_layers(len(soft.prefix.keys), self.model.config.num_hidden_layers)
        return inputs


def positions(model: Any, ids: Tensor, groups: Groups, shift: int = 0) -> Tensor:
    """(tokens,) position ids of a packed batch, as the model counts them in each text, real tokens' `shift` later."""
    embeddings = getattr(model, "embeddings", None)
    if padding_index(embeddings) is not None:
        return torch.cat([own_positions(embeddings, group, shift).flatten() for group in views(ids, groups)])
    counted = [np.tile(np.arange(shift, shift + length), texts) for texts, length in groups]
    return to_device(torch.from_numpy(np.concatenate(counted)), ids.device)


def why_padded(
    forward: PackedForward, alone: Callable[[Tensor, Groups, tuple[int, ...]], list[Tensor]], rows: Sequence[list[int]]
) -> str | None:
    """None where a model gives texts the same states in a row as alone; else the reason, for the end of a sentence.

    alone: the model's own pass, a PaddedForward; rows: token ids of some texts; the shortest is read backwards, too.
    """
    model, name = forward.model, type(forward.model).__name__
    if any(getattr(part.config, "attn_temperature_tuning", False) for part in transformers_models(model)):
        return "its attention is scaled by a token's place in the batch"  # Llama 4, from place 8,192 on: no try-out has them
    if "position_ids" not in forward.takes:
        return f"{name} takes no position_ids"
    device = main_device(model)
    longest_first = sorted(filter(None, rows), key=len, reverse=True)
    texts = [torch.tensor(ids, device=device) for ids in (*longest_first, longest_first[-1][::-1])]
    lengths = np.array([len(ids) for ids in texts])
    try:
        states = forward(torch.cat(texts), batching.groups(lengths), (-1,))[0].float()
    except UnknownAttentionError as error:
        return str(error)
    except Exception as error:  # whatever a model makes of a row that its authors did not foresee
        asked = all(part._can_set_attn_implementation() for part in transformers_models(model))
        return f"{name} fails on a row of texts ({type(error).__name__})" if asked else _NOT_ASKED
    want = torch.cat([alone(ids, [(1, len(ids))], (-1,))[0] for ids in texts]).float()
    if model.dtype == torch.float32:
        far, bound = (states - want).abs().max(), _FLOAT32 * max(1.0, float(want.abs().max()))
    else:
        rounding = _FLOAT16 if model.dtype == torch.float16 else _BFLOAT16
        far, bound = (states - want).norm(), rounding * float(want.norm())
    return None if float(far) <= bound else "a text's states beside others are not those that it has alone"
