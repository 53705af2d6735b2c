"""What makes DiffAug's views differ: a prefix, an adapter or LoRA for each view, behind one interface; and by how much.

Its authors watch two measures during stage 1: how far the views part, and how large the prefix is beside the text.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from stsbench.encoders.forward.batching import KeyValues
from stsbench.encoders.prompt.modules import Bottlenecks, attached
from stsbench.errors import StsbenchError
from stsbench.training.modules.backbone import Backbone
from stsbench.training.modules.lora import add_lora, merged, using
from stsbench.training.modules.soft_prompt import Prefix, SoftPrompt

from .options import DiffAugOptions


class ViewModules(nn.Module):
    """The modules of all views: set 0 is the first view's, the last set that of every other view."""

    def __init__(self, backbone: Backbone, options: DiffAugOptions) -> None:
        super().__init__()
        self.options = options
        self.sets = 1 if options.views == "same" else 2
        config: Any = backbone.model.config
        std = getattr(config, "initializer_range", 0.02)
        self.prefix: PrefixEncoder | None = None
        self.bottlenecks: Bottlenecks | None = None
        if options.module == "prefix":
            length = self.sets * options.prefix_length
            rate = float(getattr(config, "hidden_dropout_prob", 0.1))
            self.prefix = PrefixEncoder(length, backbone.width, config.num_hidden_layers, rate, std)
        elif options.module == "adapter":
            self.bottlenecks = Bottlenecks(
                config, sets=self.sets, rank=options.rank, activation=options.adapter_activation
            )
        else:  # its weights live inside the backbone's linear layers, and are named lora there
            add_lora(backbone.model, self.sets, options.rank, options.lora_scale)

    def of_view(self, view: int) -> int:
        """Return the set of a view, counted from 0."""
        return min(view, self.sets - 1)

    def at(self, backbone: Backbone, ids: Tensor, mask: Tensor, indices: Tensor, which: Tensor) -> Tensor:
        """Return (n, d) last states at `places` (n,), each row under its own set. ids, mask: (n, L); which: (n,) set
        numbers."""
        if self.prefix is not None:
            soft = SoftPrompt(prefix=self.prefix(self.visible(which)))
            return backbone.at(ids, mask, indices, soft)
        if backbone.chunk is not None:  # a chunk is computed again when the module no longer acts
            raise StsbenchError(
                f"training.chunk must be null with options.module {self.options.module}: only a prefix goes with it"
            )
        if self.bottlenecks is not None:
            with attached(backbone.model, self.bottlenecks, which):
                return backbone.at(ids, mask, indices)
        parts, rows = [], []
        for number in which.unique().tolist():  # peft has one set act at a time
            chosen = (which == number).nonzero().squeeze(1)
            with using(backbone.model, number):
                parts.append(backbone.at(ids[chosen], mask[chosen], indices[chosen]))
            rows.append(chosen)
        states = torch.cat(parts)
        return torch.empty_like(states).index_copy(0, torch.cat(rows), states)

    def acting(self, backbone: Backbone, number: int) -> AbstractContextManager[Any]:
        """Set `number` at work inside the backbone; a prefix has to be handed over, see `prefixed`."""
        if self.bottlenecks is not None:
            return attached(backbone.model, self.bottlenecks, number)
        return nullcontext() if self.prefix is not None else using(backbone.model, number)

    def prefixed(self, number: int) -> Callable[[int], Prefix] | None:
        """Return rows -> a prefix of which each row sees the slots of set `number`; None without prefixes."""
        encoder = self.prefix
        if encoder is None:
            return None
        device = encoder.embedding.weight.device
        return lambda rows: encoder(self.visible(torch.full((rows,), number, device=device)))

    def visible(self, which: Tensor) -> Tensor:
        """Return (n, P) bool, the slots of each row's set. which: (n,)."""
        length = self.options.prefix_length
        slots = torch.arange(self.sets * length, device=which.device) // length
        return slots == which.unsqueeze(1)

    def tested(self) -> tuple[KeyValues, ...]:
        """Return the prefixes of the test, by options.at_test; several are averaged over."""
        if self.prefix is None:
            return ()
        whole, length = self.prefix.plain(), self.options.prefix_length
        if self.options.at_test == "both":
            return (whole,)
        parts = [KeyValues(whole.keys[:, start : start + length], whole.values[:, start : start + length])
                 for start in (0, length)]
        return {"first": (parts[0],), "second": (parts[1],), "average": tuple(parts)}[self.options.at_test]

    def combined(self) -> Bottlenecks | None:
        """Return the adapter of the test: the sum of both sets, or one of them."""
        if self.bottlenecks is None:
            return None
        at = {"first": 0, "second": 1}.get(self.options.at_test)
        return self.bottlenecks.summed() if at is None else self.bottlenecks.one(at)

    def model(self, backbone: Backbone) -> Any:
        """Return the plain transformers model of the test: with LoRA a copy that holds the sum of both sets, or one of
        them."""
        if self.options.module != "lora":
            return backbone.model
        at: Any = {"first": 0, "second": 1}.get(self.options.at_test, "sum")
        return merged(backbone.model, at)


def is_module(name: str) -> bool:
    """Return whether a parameter of the method, by its name, is of the views' modules."""
    return name.startswith("modules_of_views.") or "lora_" in name


class PrefixEncoder(nn.Module):
    """Embedding(P, d) -> Linear(d, d) -> tanh -> Linear(d, 2 * layers * d), cut into a key and a value a layer and slot.

    Li and Liang (2021), Prefix-Tuning, section 4.3, as DiffAug's code has it: layer m reads block 2m as keys and block
    2m + 1 as values. Weights from N(0, std^2), biases 0.
    """

    def __init__(self, length: int, width: int, layers: int, dropout: float, std: float = 0.02) -> None:
        """length: P, slots of all prefixes together; dropout: on keys and values, anew for each row of a batch."""
        super().__init__()
        self.length, self.layers = length, layers
        self.embedding = nn.Embedding(length, width)
        self.inner = nn.Linear(width, width)
        self.outer = nn.Linear(width, 2 * layers * width)
        self.dropout = nn.Dropout(dropout)
        for module in (self.embedding, self.inner, self.outer):
            nn.init.normal_(module.weight, std=std)
        nn.init.zeros_(self.inner.bias)
        nn.init.zeros_(self.outer.bias)

    @property
    def effective(self) -> int:
        """Return numbers that a test needs: 2 * layers * P * d."""
        return self.length * int(self.outer.out_features)

    def slots(self) -> Tensor:
        """Return (2 * layers, P, d) keys and values by turns, without dropout."""
        blocks: Tensor = self.outer(torch.tanh(self.inner(self.embedding.weight))).unflatten(1, (2 * self.layers, -1))
        return blocks.transpose(0, 1)

    def forward(self, visible: Tensor) -> Prefix:
        """Return the prefix of n rows, of which each sees some slots. visible: (n, P) bool."""
        slots = self.dropout(self.slots().unsqueeze(1).expand(-1, len(visible), -1, -1))
        return Prefix(slots[0::2], slots[1::2], visible)

    def plain(self) -> KeyValues:
        """Return all slots as they are tested: (layers, P, d) keys and values, without gradient."""
        slots = self.slots().detach()
        return KeyValues(slots[0::2].contiguous(), slots[1::2].contiguous())


def divergence(first: Tensor, second: Tensor) -> tuple[float, float]:
    """Return the mean over n texts of ||f(x) - f(x+)||_2, of the vectors as they are and of length 1. first, second: (n, d).

    Wang and Lu (2022), DiffAug, section 5.2: representation divergence, not squared.
    """
    raw = (first - second).norm(dim=1).mean()
    normalised = (functional.normalize(first, dim=1) - functional.normalize(second, dim=1)).norm(dim=1).mean()
    return float(raw), float(normalised)


def convergence(backbone: Backbone, modules: ViewModules, ids: Tensor, mask: Tensor, which: Tensor) -> float:
    """Return kappa = 1 / 2M sum over layers of (mean row norm of the text's keys - the prefix's) and the same of values.

    Rows are (d,), all heads side by side; the text's: of every real token of the n rows ids (n, L), each under the prefix of
    its set `which` (n,). Signed. Wang and Lu (2022), DiffAug, section 5.2: weight convergence.
    """
    assert modules.prefix is not None
    layers = backbone.model.encoder.layer
    visible = modules.visible(which)
    prefix = modules.prefix(visible)
    states = backbone(ids, mask, tuple(range(len(layers))), SoftPrompt(prefix=prefix))
    real, total = mask.bool(), 0.0
    for number, (layer, state) in enumerate(zip(layers, states, strict=True)):
        attention = layer.attention.self
        for linear, slots in ((attention.key, prefix.keys), (attention.value, prefix.values)):
            of_text = linear(state[real]).norm(dim=1).mean()
            total += float(of_text - slots[number][visible].norm(dim=1).mean())
    return total / (2 * len(layers))


def by_dropout(backbone: Backbone, ids: Tensor, mask: Tensor, indices: Tensor) -> tuple[float, float]:
    """Return `divergence` of two passes that differ by dropout alone, without prefix: the reference. Modes are put back."""
    training = backbone.training
    backbone.train()
    try:
        first, second = backbone.at(ids.repeat(2, 1), mask.repeat(2, 1), indices.repeat(2)).split(len(ids))
        return divergence(first, second)
    finally:
        backbone.train(training)
