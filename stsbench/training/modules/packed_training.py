"""The packed training pass: a batch without padding, as in stsbench/encoders/forward/passes.py, with dropout.

Dropout is applied where the model applies it, with the same rates and independence; its generator is faster than torch's on
a CPU. A prefix's keys and values come before those of each text, and have the same dropout.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from stsbench.encoders.forward.attention import UnknownAttentionError
from stsbench.encoders.forward.batching import Slots, Soft, groups
from stsbench.encoders.forward.passes import PackedForward, PaddedForward, check_family, known_family, why_padded
from stsbench.errors import EncoderError
from stsbench.torch_state import fresh_torch
from stsbench.training.modules.soft_prompt import EmbeddingChange, SoftPrompt, changed_embeddings, check_factors

_LIBRARIES = ("transformers", "torch", "peft")
_TRIED = (23, 3)  # numbers of tokens of the texts on which a model is tried
_alone: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()  # model -> whether packed texts have their own states


def packable(model: Any) -> bool:
    """Return whether `PackedTraining` computes the same as `model`: a model of transformers, perhaps with peft's adapters,
    in which packed texts do not influence one another; without other hooks, and without gradient checkpointing, which would
    compute layers again outside of the packed pass."""
    if not all(map(_plain, model.modules())):
        return False
    if model not in _alone:
        _alone[model] = _tried(model)
    return _alone[model]


def _plain(module: Any) -> bool:
    """Return whether a module's forward pass is that of its class in one of the libraries."""
    # transformers leaves hooks, which change nothing, in a model that has returned hidden states
    hooks = [*module._forward_hooks.values(), *module._forward_pre_hooks.values()]
    if "forward" in vars(module) or any(not getattr(hook, "__module__", "").startswith("transformers.") for hook in hooks):
        return False
    return not getattr(module, "gradient_checkpointing", False) and type(module).__module__.partition(".")[0] in _LIBRARIES


def _tried(model: Any) -> bool:
    generator, modes = np.random.default_rng(0), {module: module.training for module in model.modules()}
    model.eval()
    try:
        rows = [generator.integers(5, model.config.vocab_size, length).tolist() for length in _TRIED]
        with fresh_torch():
            return why_padded(PackedForward(model), PaddedForward(model, 0), rows) is None
    except Exception:  # no vocabulary (CANINE), too few positions, ...: the padded pass works for every model
        return False
    finally:
        for module, training in modes.items():
            module.training = training


class Masks:
    """Dropout masks of one forward pass, seeded by one draw from torch's CPU generator.

    torch's own bernoulli_ costs 4 to 5 times as much on a CPU: 5 to 8 % of a training step.
    """

    def __init__(self) -> None:
        self.bits = np.random.SFC64(int(torch.randint(2**63 - 1, ())))

    def __call__(self, shape: tuple[int, ...], rate: float, dtype: torch.dtype) -> Tensor:
        """Return a tensor of independent elements: 0 with probability `rate` (to 2^-32), else 1 / (1 - rate)."""
        count = int(np.prod(shape))
        words = self.bits.random_raw((count + 1) // 2).view(np.int32)[:count]  # 32 random bits an element
        kept = torch.from_numpy(words).ge(round(rate * 2**32) - 2**31)
        return kept.to(dtype).mul_(1 / (1 - rate)).view(shape)


class _Drawn(TorchFunctionMode):
    """A mode in which torch's dropout, of any module, gets its masks from `masks`."""

    def __init__(self, masks: Masks) -> None:
        super().__init__()
        self.masks = masks

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is functional.dropout and 0 < kwargs["p"] < 1 and kwargs["training"]:
            return args[0] * self.masks(args[0].shape, kwargs["p"], args[0].dtype)
        return func(*args, **(kwargs or {}))


class PackedTraining:
    """One packed forward pass of `model` over one batch, on a CPU. ids, mask: (n, L), mask 1 on real tokens.

    Every row has at least one real token. Gradients reach the same parameters as in the padded pass. soft: the batch's soft
    prompt; heads: (n, layers, H) factors of each head's output, or None. Raises EncoderError if `soft` has positions beyond
    the model's, or the model takes none; ValueError if its shapes are not those of the batch.
    """

    def __init__(
        self, model: Any, ids: Tensor, mask: Tensor, soft: SoftPrompt | None = None, heads: Tensor | None = None
    ) -> None:
        self.model = model
        self.shape = mask.shape
        self.mask = mask
        lengths = mask.sum(1)
        descending, self.order = lengths.sort(descending=True, stable=True)
        self.groups = groups(descending.numpy())
        flat = self.order.unsqueeze(1) * mask.shape[1] + torch.arange(mask.shape[1])
        self.indices = flat[mask[self.order].bool()]  # (tokens,), places in the padded batch, text after text, longest first
        self.starts = descending.cumsum(0) - descending  # (n,), the index of each text's first token
        self.tokens = ids.flatten()[self.indices]
        self.heads = None if heads is None else heads[self.order].unbind(1)  # each layer's (n, H), rows as in `order`
        if soft is not None or heads is not None:
            check_family(model)
        if heads is not None:
            check_factors(heads, len(ids), model)
        self.soft: Soft | None = None
        self.slots: Slots | None = None  # rows as in `order`, too
        self.change: EmbeddingChange | None = None
        if soft is not None:
            soft.check(ids, model.config.num_hidden_layers)
            parts = (soft.positions, soft.rows)
            positions, rows = (None if part is None else part.flatten()[self.indices] for part in parts)
            self.soft = Soft(positions, rows, soft.vectors, shift=soft.shift)
            self.slots = None if soft.prefix is None else soft.prefix.by_layer(self.order) or None
            self.change = soft.change

    def states(self, layers: tuple[int, ...]) -> list[Tensor]:
        """Return the hidden states `layers` (0 embeddings ... -1 last layer), each (n, L, d), zero on padding."""
        rows, length = self.shape
        return [
            state.new_zeros(rows * length, state.shape[1]).index_copy(0, self.indices, state).view(rows, length, -1)
            for state in self._run(layers)
        ]

    def at(self, indices: Tensor) -> Tensor:
        """Return the (n, d) last states of one real token a row, in column `indices` (n,) of the padded batch."""
        before = self.mask.cumsum(1).gather(1, indices.unsqueeze(1)).squeeze(1)[self.order] - 1
        rows = self.starts + before
        if known_family(self.model):
            with _only(self.model, rows):
                states = self._run((-1,), (len(self.model.encoder.layer) - 1, rows))[0]
        else:
            states = self._run((-1,))[0].index_select(0, rows)
        return torch.empty_like(states).index_copy(0, self.order, states)

    def _changed(self, embedded: Tensor) -> Tensor:
        """Return the changed embeddings, (1, tokens, d), of the packed embeddings, (1, tokens, d)."""
        assert self.change is not None
        return self.change.packed(embedded[0], self.indices, self.shape[1])[None]

    def _run(self, layers: tuple[int, ...], last: tuple[int, Tensor] | None = None) -> list[Tensor]:
        masks = Masks()
        try:
            with _Drawn(masks), changed_embeddings(self.model, self._changed if self.change else None):
                return PackedForward(self.model)(
                    self.tokens, self.groups, layers, self.soft, slots=self.slots, heads=self.heads, draw=masks,
                    last=last,
                )
        except UnknownAttentionError as error:  # may occur only in texts longer than those of `_tried`
            raise EncoderError(f"{type(self.model).__name__} cannot be trained without padding: {error}") from error


@contextmanager
def _only(model: Any, rows: Tensor) -> Iterator[None]:
    """Let the last layer of a BERT or RoBERTa compute only `rows` after attention, which saves a sixth of MiniLM's work."""
    hook = model.encoder.layer[-1].attention.output.register_forward_pre_hook(
        lambda module, inputs: tuple(states.index_select(1, rows) for states in inputs)
    )
    try:
        yield
    finally:
        hook.remove()
