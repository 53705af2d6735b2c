"""Compute vectors under a preset: the forward pass, with the preset's changes of the model, and the pooling."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from stsbench.encoders.forward.batching import Groups
from stsbench.encoders.forward.model import check_layer, layer_count, list_of_layers, main_device
from stsbench.encoders.forward.pooling import pool, views
from stsbench.encoders.prompt.reading import Pass, Reader
from stsbench.errors import EncoderError
from stsbench.extensions.decoders.base import PresetReading
from stsbench.extensions.decoders.tokenise import Rows, tokeniser

if TYPE_CHECKING:
    from stsbench.encoders.prompt.reading import Compute, Forward

_PROJECTIONS = ("o_proj", "out_proj", "c_proj", "dense")  # Llama and similar models, OPT, GPT-2, GPT-NeoX
_ATTENTION = ("attn", "attention")


@dataclass(frozen=True)
class Marks:
    """Values of n texts in a batch's order. tails, prepended: see Rows; taken: (n, k) to subtract for Contrast, or None."""

    tails: Tensor
    prepended: Tensor | None = None
    taken: Tensor | None = None

    def __getitem__(self, part: slice) -> Marks:
        prepended, taken = (None if values is None else values[part] for values in (self.prepended, self.taken))
        return Marks(self.tails[part], prepended, taken)


class Decoder(Reader):
    """Computes a causal model's vectors under one PresetReading."""

    def __init__(
        self, reading: PresetReading, model: Any, tokenizer: Any, name: str, limit: int | None, limit_name: str
    ) -> None:
        """Prepare the tokenisers. Raises EncoderError, one line, for a layer that the model lacks, or too small a limit."""
        self.reading, self.model, self.name = reading, model, name
        option = f"--preset {reading.preset}:"
        check_layer(reading.layer, model, name, f"{option} layer")
        depth = layer_count(model)
        prepend, contrast = reading.prepend, reading.contrast
        if prepend is not None and not 0 <= prepend.start <= prepend.exit <= depth:
            asked = f"start={prepend.start}, exit={prepend.exit}"
            raise EncoderError(f"{option} {asked}: {name} has {depth} layers, and 0 <= start <= exit <= {depth}")
        if contrast is not None and not 0 <= contrast.at < depth:
            raise EncoderError(f"{option} at={contrast.at}: {name} has {depth} layers, counted from 0")
        self.tokenisers = [tokeniser(tokenizer, reading, text, limit, limit_name) for text in reading.templates]
        self._other = None if contrast is None else tokeniser(tokenizer, reading, contrast.template, limit, limit_name)
        self.passes = len(self.tokenisers) + (contrast is not None)
        self._layers: Sequence[nn.Module] = ()
        if prepend or contrast:
            holder, key = list_of_layers(model, name, "the preset changes")
            self._layers = list(getattr(holder, key))
        self._projection = None if contrast is None else output_projection(self._layers[contrast.at], name)

    def __call__(self, texts: Sequence[str]) -> tuple[list[list[int]], NDArray[np.bool_]]:
        """Return the token ids of n texts in the first template, and bool (n,), True for truncated texts."""
        rows = self.tokenisers[0](texts)
        return rows.ids, rows.cut

    def read(
        self, forward: Forward, texts: Sequence[str], compute: Compute
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Return float32 (n, d) vectors of n texts, and bool (n,), True for truncated texts."""
        cut = np.zeros(len(texts), dtype=np.bool_)
        total: Any = 0
        taken = None
        if self._other is not None:
            rows = self._other(texts)
            taken = compute(rows.ids, _Pass(rows, self._attended, forward))
        for tokenise in self.tokenisers:
            rows = tokenise(texts)
            cut |= rows.cut
            total = total + compute(rows.ids, _Pass(rows, self._vectors, forward, taken))
        return np.asarray(total / np.float32(len(self.tokenisers)), dtype=np.float32), cut

    def check(self, forward: Forward, ids: Sequence[list[int]]) -> None:
        """Raise EncoderError for a model that is not causal, or whose attention cannot be switched to both directions.

        ids: of two texts with a common beginning, whose last state is compared, as it depends on what follows only without a
        causal mask. The first state would not do: as an attention sink it hardly depends on the text.
        """
        device, kind = main_device(self.model), type(self.model).__name__
        preset, causal = f"--preset {self.reading.preset}", not self.reading.bidirectional
        fixed = EncoderError(f"{preset}: the attention of a {kind} cannot be switched to both directions")
        try:
            states = [forward(torch.tensor(row, device=device), [(1, len(row))], (-1,))[0].float() for row in ids]
        except (RuntimeError, TypeError, ValueError) as error:  # the model rejects the mask's shape
            if causal or isinstance(error, torch.OutOfMemoryError):
                raise
            raise fixed from error
        equal = [one == other for one, other in zip(*ids, strict=False)]
        last = (equal.index(False) if False in equal else len(equal)) - 1
        if last < 0:
            return
        moved = float((states[0][last] - states[1][last]).norm() / states[0][last].norm())
        far = moved > (1e-3 if self.model.dtype == torch.float32 else 5e-2)
        if causal and far:
            raise EncoderError(f"{preset}: {self.name} is no causal model: a {kind} reads what follows, too")
        if not causal and not far:
            raise fixed

    def _vectors(self, forward: Forward, ids: Tensor, groups: Groups, marks: Marks) -> Tensor:
        """Return float32 (n, d) vectors of a batch."""
        batch = _Batch(groups, ids.device)
        with self._changed(batch, marks):
            state = forward(ids, groups, (self.reading.layer,))[0]
        if self.reading.over == "all" or self.reading.pooler == "last":
            return pool(self.reading.pooler, [state], groups)
        return _pooled_tails(state, groups, marks.tails, weighted=self.reading.pooler == "weighted_mean")

    def _attended(self, forward: Forward, ids: Tensor, groups: Groups, marks: Marks) -> Tensor:
        """Return the output projection's float32 (n, k) inputs at the last positions; later layers are not computed."""
        batch, attended = _Batch(groups, ids.device), []

        def keep(module: Any, inputs: tuple[Tensor, ...]) -> None:
            attended.append(batch.rows(inputs[0], batch.last)[0].float())
            raise _EnoughError

        assert self._projection is not None
        handle = self._projection.register_forward_pre_hook(keep)
        try:
            forward(ids, groups, (-1,))
        except _EnoughError:
            pass
        finally:
            handle.remove()
        return attended[0]

    @contextmanager
    def _changed(self, batch: _Batch, marks: Marks) -> Iterator[None]:
        """Apply the preset's changes to the model for one batch, by hooks."""
        handles: list[Any] = []
        try:
            if (prepend := self.reading.prepend) is not None and marks.prepended is not None:
                handles.append(self._embed(batch, marks.prepended))
                handles += [
                    layer.register_forward_pre_hook(_moving(batch, marks.prepended), with_kwargs=True)
                    for layer in self._layers[prepend.start : prepend.exit]
                ]
            if self._projection is not None and marks.taken is not None:
                handles.append(self._projection.register_forward_pre_hook(self._taking_away(batch, marks.taken)))
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _embed(self, batch: _Batch, offsets: Tensor) -> Any:
        """Register a hook that replaces the placeholder's embedding, and return its handle."""
        prepend = self.reading.prepend
        assert prepend is not None
        table = self.model.get_input_embeddings()
        width = int(table.weight.shape[1])
        vector = torch.zeros(width)
        if prepend.token == "random":
            vector = torch.randn(width, generator=torch.Generator().manual_seed(prepend.seed))

        def embed(module: Any, inputs: Any, output: Tensor) -> Tensor:
            return batch.replaced(output, offsets, vector.to(output).expand(len(offsets), -1))

        return table.register_forward_hook(embed)

    def _taking_away(self, batch: _Batch, taken: Tensor) -> Callable[..., Any]:
        contrast = self.reading.contrast
        assert contrast is not None

        def change(module: Any, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            states, _ = batch.rows(inputs[0], batch.last)
            before = states.float()
            rest = before - taken.to(before.device)
            lengths = before.norm(dim=1, keepdim=True) / (rest.norm(dim=1, keepdim=True) + 1e-7)
            rest = rest * (lengths if contrast.alpha is None else contrast.alpha)
            return (batch.replaced(inputs[0], batch.last, rest.to(states)), *inputs[1:])

        return change


class _EnoughError(Exception):
    """Stops a forward pass whose result is not needed any further."""


@dataclass(frozen=True)
class _Pass(Pass):
    """A function of a batch of texts, with the values of each text that it needs."""

    rows: Rows
    run: Callable[[Forward, Tensor, Groups, Marks], Tensor]
    forward: Forward
    taken: NDArray[np.float32] | None = None

    def __call__(self, ids: Tensor, groups: Groups, marks: Marks) -> Tensor:
        return self.run(self.forward, ids, groups, marks)

    def marks(self, order: NDArray[np.int64], put: Callable[[Tensor], Tensor]) -> Marks:
        """Return the values of the texts in `order`, on the device of `put`."""
        prepended, taken = (
            None if values is None else put(torch.from_numpy(values[order])) for values in (self.rows.prepended, self.taken)
        )
        return Marks(put(torch.from_numpy(self.rows.tails[order])), prepended, taken)


class _Batch:
    """Positions in the states of a batch, whether they are packed, text after text, or padded at the right."""

    def __init__(self, groups: Groups, device: torch.device) -> None:
        lengths = torch.tensor([length for texts, length in groups for _ in range(texts)])
        self.tokens = int(lengths.sum())
        starts = [0, *accumulate(lengths.tolist())][:-1]
        self.starts, self.last = torch.tensor(starts, device=device), (lengths - 1).to(device)

    def rows(self, states: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the (n, d) states at one offset in each text, and their (n,) indices among all states."""
        flat = states.reshape(-1, states.shape[-1])
        width = len(flat) // len(self.starts)
        starts = self.starts if len(flat) == self.tokens else torch.arange(len(self.starts), device=offsets.device) * width
        index = (starts + offsets).to(flat.device)
        return flat.index_select(0, index), index

    def replaced(self, states: Tensor, offsets: Tensor, values: Tensor) -> Tensor:
        """Return `states` with those at one offset in each text replaced by `values` (n, d)."""
        _, index = self.rows(states, offsets)
        return states.reshape(-1, states.shape[-1]).index_copy(0, index, values.to(states)).view(states.shape)


def _moving(batch: _Batch, offsets: Tensor) -> Callable[..., Any]:
    """Return a hook before a layer that copies the last position's state to the placeholder."""

    def move(module: Any, inputs: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        states = inputs[0] if inputs else keywords["hidden_states"]
        moved = batch.replaced(states, offsets, batch.rows(states, batch.last)[0])
        return ((moved, *inputs[1:]), keywords) if inputs else (inputs, {**keywords, "hidden_states": moved})

    return move


def _pooled_tails(state: Tensor, groups: Groups, tails: Tensor, weighted: bool) -> Tensor:
    """Return float32 (n, d) means over the last `tails` (n,) tokens of each text; weighted: the i-th of them has the weight
    i, from 1."""
    parts, done = [], 0
    for group in views(state, groups):
        texts, length = group.shape[:2]
        tail = tails[done : done + texts].to(group.device)[:, None]
        counted = (torch.arange(1, length + 1, device=group.device) - (length - tail)).clamp(min=0).float()
        weights = counted if weighted else counted.clamp(max=1)
        parts.append((group.float() * weights[..., None]).sum(1) / weights.sum(1, keepdim=True))
        done += texts
    return torch.cat(parts)


def output_projection(layer: nn.Module, name: str) -> nn.Module:
    """Return the output projection of a layer's attention. Raises EncoderError where none is found."""
    part: nn.Module
    for path, part in layer.named_modules():
        parent, _, leaf = path.rpartition(".")
        if leaf in _PROJECTIONS and any(word in parent for word in _ATTENTION):
            return part
    kind = type(layer).__name__
    raise EncoderError(f"{name}: the attention of a {kind} has no output projection, which the preset changes")
