"""Modules trained around a model: heads on the pooled vector, and bottleneck adapters.

Adapters are narrow layers behind each sublayer of BERT or RoBERTa, in several sets, one of which each text uses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from stsbench.errors import EncoderError, StsbenchError

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": functional.relu, "gelu": functional.gelu}


class LMTransform(nn.Module):
    """LayerNorm(activation(W x + b)), W of (d, d): BERT's cls.predictions.transform, RoBERTa's lm_head up to its decoder."""

    def __init__(self, width: int, activation: str, eps: float) -> None:
        """activation: by its name in transformers, e.g. "gelu"; eps: LayerNorm's."""
        super().__init__()
        from transformers.activations import get_activation

        self.width, self.activation, self.eps = width, activation, eps
        self.dense = nn.Linear(width, width)
        self.act = get_activation(activation)
        self.norm = nn.LayerNorm(width, eps=eps)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return (..., d) transformed states of (..., d) hidden states."""
        transformed: Tensor = self.norm(self.act(self.dense(hidden)))
        return transformed


class MLPHead(nn.Module):
    """tanh(W x + b), W of (d, d) from N(0, std^2), b = 0; never a checkpoint's own pooler.

    Gao, Yao and Chen (2021), SimCSE, footnote 9. std: the backbone's `initializer_range`, 0.02 for BERT and RoBERTa. The
    random numbers come from torch's global generator.
    """

    def __init__(self, width: int, std: float = 0.02) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)
        nn.init.normal_(self.dense.weight, std=std)
        nn.init.zeros_(self.dense.bias)

    def forward(self, vectors: Tensor) -> Tensor:
        """Return (..., d) transformed vectors of (..., d) vectors."""
        return torch.tanh(self.dense(vectors))


def check_head(head: str, pooler: str) -> None:
    """Raise StsbenchError where a method's options.head, an MLP, is set with another pooler than cls."""
    if head != "none" and pooler != "cls":
        raise StsbenchError(f"options.head {head} stands on the pooler cls, not on {pooler}: set options.head none")


class Bottlenecks(nn.Module):
    """h + f(h W_down) W_up behind self-attention's output and behind the feed-forward output of every layer.

    Houlsby et al. (2019), without biases: 4 layers d r weights a set. DiffAug's Adapter (Wang and Lu 2022, Table 3) has two
    sets, one a view. down: (sets, layers, 2, d, r), from N(0, std^2) by torch's global generator, std the config's
    initializer_range; up: (sets, layers, 2, r, d), zero, so that training starts from the model alone. Index 0 of the third
    dimension is self-attention's.

    A file holds `tensors()` ("down" and "up") beside `settings()`; `load` reads them back.
    """

    def __init__(self, config: Any, *, sets: int = 2, rank: int = 4, activation: str = "relu") -> None:
        """config: a transformers config, read for num_hidden_layers, hidden_size and initializer_range."""
        super().__init__()
        if activation not in _ACTIVATIONS:
            raise StsbenchError(f"adapters have no activation {activation} (there are {', '.join(_ACTIVATIONS)})")
        self.activation = activation
        shape = (sets, int(config.num_hidden_layers), 2)
        width = int(config.hidden_size)
        self.down = nn.Parameter(torch.empty(*shape, width, rank))
        self.up = nn.Parameter(torch.zeros(*shape, rank, width))
        nn.init.normal_(self.down, std=float(getattr(config, "initializer_range", 0.02)))

    @property
    def sets(self) -> int:
        """Return the number of sets of adapters."""
        return int(self.down.shape[0])

    @property
    def rank(self) -> int:
        """Return r, the width of each bottleneck."""
        return int(self.down.shape[-1])

    def forward(self, hidden: Tensor, layer: int, sublayer: int, which: Tensor | Literal["sum"] | int) -> Tensor:
        """Return hidden plus the adapter's output, of the same shape: (..., d), with a tensor `which` (n, ..., d).

        layer: from 0; sublayer: 0 behind self-attention, 1 behind the feed-forward layer; which: see `attached`.
        """
        down, up = self.down[:, layer, sublayer], self.up[:, layer, sublayer]
        if isinstance(which, int):
            down, up = down[which : which + 1], up[which : which + 1]
        # all sets side by side in one bottleneck; for each row the sets that it does not use are set to 0
        inner = _ACTIVATIONS[self.activation](hidden @ down.transpose(0, 1).flatten(1))
        if isinstance(which, Tensor):
            gate = functional.one_hot(which, self.sets).repeat_interleave(self.rank, 1).to(inner.dtype)
            inner = inner * gate.view(len(which), *[1] * (inner.ndim - 2), -1)
        return hidden + inner @ up.flatten(0, 1)

    def summed(self) -> Bottlenecks:
        """Return one set of rank sets * r whose output is the sum of all sets', with a copy of the present weights."""
        down, up = self.down.detach(), self.up.detach()
        joined = down.permute(1, 2, 3, 0, 4).flatten(3), up.permute(1, 2, 0, 3, 4).flatten(2, 3)
        return self.load({**self.settings(), "sets": 1, "rank": self.sets * self.rank}, _by_name(*joined))

    def one(self, index: int) -> Bottlenecks:
        """Return the set `index` alone, with a copy of its present weights."""
        _check_set(index, self.sets)
        return self.load({**self.settings(), "sets": 1}, _by_name(self.down.detach()[index], self.up.detach()[index]))

    def settings(self) -> dict[str, Any]:
        """Return everything but the weights, for a JSON file."""
        sets, layers, _, width, rank = self.down.shape
        return {"sets": sets, "layers": layers, "width": width, "rank": rank, "activation": self.activation}

    def tensors(self) -> dict[str, Tensor]:
        """Return the weights by name, contiguous and without gradients, for a safetensors file."""
        return {name: weight.detach().contiguous() for name, weight in self.named_parameters()}

    @classmethod
    def load(cls, settings: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Bottlenecks:
        """Return what `settings` and `tensors` describe, its weights copied to the tensors' device and type.

        StsbenchError, one line, for a setting or tensor that is missing, unknown or of another shape.
        """
        try:
            sizes = {key: int(settings[key]) for key in ("sets", "layers", "width", "rank")}
            sets, layers, width, rank = sizes.values()
            shapes = {"down": (sets, layers, 2, width, rank), "up": (sets, layers, 2, rank, width)}
            if {name: tuple(weight.shape) for name, weight in tensors.items()} != shapes:
                raise ValueError(f"tensors {shapes} expected")
            config = SimpleNamespace(num_hidden_layers=sizes["layers"], hidden_size=sizes["width"])
            with torch.device("meta"):
                made = cls(config, sets=sizes["sets"], rank=sizes["rank"], activation=settings["activation"])
        except (KeyError, TypeError, ValueError) as error:
            raise StsbenchError(f"adapters: settings and weights do not fit ({error})") from error
        made.load_state_dict({name: weight.clone() for name, weight in tensors.items()}, assign=True)
        return made


@contextmanager
def attached(model: Any, bottlenecks: Bottlenecks, which: Tensor | Literal["sum"] | int) -> Iterator[None]:
    """Run `model` (transformers' BERT or RoBERTa) with the adapters within the block; backward passes may follow it.

    which: (n,) the set of each row of the padded batch of n rows; "sum": all sets' outputs are added; a number: this set.
    They stand between the dense layer and the dropout before the residual's LayerNorm, so dropout acts on their output, too.
    """
    try:
        denses = [(layer.attention.output.dense, layer.output.dense) for layer in model.encoder.layer]
    except AttributeError as error:
        raise EncoderError(f"adapters need a BERT or RoBERTa model, not a {type(model).__name__}") from error
    if len(denses) != bottlenecks.down.shape[1]:
        raise ValueError(f"adapters of {bottlenecks.down.shape[1]} layers for a model of {len(denses)}")
    if isinstance(which, Tensor):
        if len(which) and not 0 <= int(which.min()) <= int(which.max()) < bottlenecks.sets:
            raise ValueError(f"sets {which.unique().tolist()} asked for, and there are {bottlenecks.sets}")
    elif which != "sum":
        _check_set(which, bottlenecks.sets)

    def hook(layer: int, sublayer: int) -> Any:
        def add(module: nn.Module, inputs: Any, hidden: Tensor) -> Tensor:
            if isinstance(which, Tensor) and (hidden.ndim < 3 or len(hidden) != len(which)):
                raise ValueError(f"sets of {len(which)} rows for hidden states {tuple(hidden.shape)}")
            changed: Tensor = bottlenecks(hidden, layer, sublayer, which)
            return changed

        return add

    handles: list[Any] = []
    try:
        for layer, pair in enumerate(denses):
            handles += [dense.register_forward_hook(hook(layer, sublayer)) for sublayer, dense in enumerate(pair)]
        yield
    finally:
        for handle in handles:
            handle.remove()


def _check_set(index: int, sets: int) -> None:
    if not 0 <= index < sets:
        raise ValueError(f"set {index} asked for, and there are {sets}, counted from 0")


def _by_name(down: Tensor, up: Tensor) -> dict[str, Tensor]:
    return {"down": down.unsqueeze(0), "up": up.unsqueeze(0)}
