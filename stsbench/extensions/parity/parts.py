"""Take a loaded encoder apart: its transformers model, tokenizer, prompt, pooling, and the steps after pooling."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from stsbench.encoders.base import Encoder
from stsbench.encoders.forward.model import cast, position_limit
from stsbench.encoders.forward.pooling import STATES, padded_length
from stsbench.encoders.post.encoder import PostProcessed
from stsbench.encoders.prompt.template import FullStop, Template, parse_template
from stsbench.encoders.transformer.declared import POOLING_MODES
from stsbench.encoders.transformer.lazy import LazyEncoder
from stsbench.encoders.transformer.sentence_transformer import SentenceTransformerEncoder

if TYPE_CHECKING:
    from torch import Tensor


Step = Callable[["Tensor"], "Tensor"]  # (n, d) -> (n, k)
NORMALIZE = "Normalize"
ROUNDED = ("bfloat16", "float16")
NO_ADAPTER = "no adapter"


@dataclass(frozen=True)
class Parts:
    """The parts of an encoder that turn texts into vectors, in their order."""

    model: Any  # transformers' model
    tokenizer: Any
    poolers: tuple[str, ...]  # whose vectors are concatenated
    limit: int | None  # tokens, special ones included
    positions: int | None
    template: Template = field(default_factory=Template)  # without the prompt
    prompt: str = ""
    prompts: Mapping[str, str] = field(default_factory=dict)  # name -> stored prompt
    full_stop: FullStop = False
    layer: int | None = None  # the hidden state that is pooled; None: the pooler's default
    dense: Any = None  # for the pooler cls+dense
    token_pooler: Any = None  # a learned pooler
    steps: tuple[tuple[str, Step], ...] = ()  # (name, function) after the pooling
    post: Any = None  # a fitted post-processing


def take_apart(encoder: Encoder) -> Parts | None:
    """Return the parts of an encoder; None for an encoder of another kind, or with modules of other kinds."""
    if isinstance(encoder, PostProcessed):
        inner = take_apart(encoder.base)
        return None if inner is None or encoder.spec.fitted_on is None else replace(inner, post=encoder.chain)
    if isinstance(encoder, LazyEncoder):
        return _native(encoder)
    return _librarys(encoder) if isinstance(encoder, SentenceTransformerEncoder) else None


def _native(encoder: LazyEncoder) -> Parts | None:
    config, pooler = encoder.config, encoder.config.pooler or ""
    if config.reading is not None or config.prompt.trained or pooler == "mask" or padded_length(pooler) is not None:
        return None
    loaded, steps = encoder.parts, [(NORMALIZE, _normalize)] if config.normalize else []
    template = parse_template(config.prompt.template, loaded.tokenizer.mask_token, False)
    return Parts(
        loaded.model, loaded.tokenizer, (pooler,), encoder.spec.max_length, position_limit(loaded.model, loaded.tokenizer),
        template, config.prompt.text_prompt or "", config.prompts, config.prompt.full_stop, config.layer, loaded.dense,
        loaded.token_pooler, _finished(steps, config.truncate_dim, config.rescale),
    )


def _librarys(encoder: SentenceTransformerEncoder) -> Parts | None:
    """Return the parts of a sentence-transformers model that begins with Transformer and Pooling; None for other models."""
    modules, config = list(encoder.model), encoder.config
    kinds = [type(module).__name__ for module in modules]
    if kinds[:2] != ["Transformer", "Pooling"] or config.role is not None or encoder.traits.default_route is not None:
        return None
    mode = modules[1].pooling_mode
    modes = [mode] if isinstance(mode, str) else list(mode)
    if not set(modes) <= POOLING_MODES.keys() or encoder.model.tokenizer is None:
        return None
    model, tokenizer = modules[0].model, encoder.model.tokenizer
    steps = [(kind, _through(module)) for kind, module in zip(kinds[2:], modules[2:], strict=True)]
    return Parts(
        model, tokenizer, tuple(POOLING_MODES[mode] for mode in modes), encoder.spec.max_length,
        position_limit(model, tokenizer), prompt=config.prompt.text_prompt or "", prompts=config.prompts,
        steps=_finished(steps, config.truncate_dim, config.rescale),
    )


def _finished(steps: Sequence[tuple[str, Step]], cut: int | None, rescale: bool) -> tuple[tuple[str, Step], ...]:
    """Return the steps with the user's cut to `cut` dimensions and normalisation added."""
    more = [*steps, *([(f"the cut to {cut} numbers", lambda vectors: vectors[:, :cut])] if cut is not None else [])]
    return (*more, *([(NORMALIZE, _normalize)] if rescale else []))


def _normalize(vectors: Tensor) -> Tensor:
    from torch.nn.functional import normalize

    return normalize(vectors, dim=1)


def _through(module: Any) -> Step:
    """Return a module of sentence-transformers as a function of the pooled vectors."""

    def step(vectors: Tensor) -> Tensor:
        weight = next(module.parameters(), None)
        read = vectors if weight is None else vectors.to(weight.dtype)
        made: Tensor = module({"sentence_embedding": read})["sentence_embedding"]
        return made.float()

    return step


def pooled_states(poolers: tuple[str, ...], layer: int | None) -> list[tuple[int, ...]]:
    """Return the hidden states that each pooler reads."""
    return [(layer,) if layer is not None else STATES.get(name, (-1,)) for name in poolers]


@dataclass(frozen=True)
class Int8:
    """A scheme of int8 quantisation. by_row: a scale for each row of a weight, else for the tensor; bits: of the inputs of
    linear layers, 0 for float (dynamic quantisation: torch has 7, ONNX Runtime 8); embeddings: quantised, too."""

    by_row: bool
    bits: int = 0
    embeddings: bool = False

    @property
    def words(self) -> str:
        """Return the scheme in words, for messages."""
        layers = "linear layers and embeddings" if self.embeddings else "linear layers"
        dynamic = f", {self.bits} bits of what goes into a layer" if self.bits else ""
        return f"int8 weights of the {layers}, a scale for each {'row' if self.by_row else 'tensor'}{dynamic}"


INT8 = {scheme.words: scheme for scheme in (
    Int8(False), Int8(True), Int8(False, 7), Int8(True, 7), Int8(False, 8, embeddings=True), Int8(True, 8),
)}


def changed(model: Any, how: str) -> Any:
    """Return a copy of a transformers model with changed weights: `how` is in ROUNDED, in INT8, or NO_ADAPTER."""
    import torch

    other = copy.deepcopy(model)
    if how in ROUNDED:
        return cast(other, getattr(torch, how))
    return _without_adapters(other) if how == NO_ADAPTER else _in_int8(other, INT8[how])


def _without_adapters(model: Any) -> Any:
    from peft.tuners.tuners_utils import BaseTunerLayer

    for part in model.modules():
        if isinstance(part, BaseTunerLayer):
            part.enable_adapters(enabled=False)
    return model


def _in_int8(model: Any, scheme: Int8) -> Any:
    import torch

    for part in model.modules():
        if isinstance(part, torch.nn.Linear) or (scheme.embeddings and isinstance(part, torch.nn.Embedding)):
            part.weight.data = rounded(part.weight.data, by_row=scheme.by_row)
        if scheme.bits and isinstance(part, torch.nn.Linear):
            part.register_forward_pre_hook(lambda part, values: (_steps(values[0], 2**scheme.bits - 1), *values[1:]))
    return model


def _steps(values: Any, count: int) -> Any:
    """Return a layer's input, (n, ...), rounded to multiples of 1 / `count` of each text's range of values, 0 included."""
    flat = values.flatten(1)
    low, high = flat.amin(1).clamp(max=0), flat.amax(1).clamp(min=0)
    size = ((high - low) / count).clamp_min(1e-12).view(-1, *[1] * (values.dim() - 1))
    return (values / size).round() * size


def rounded(weight: Any, *, by_row: bool) -> Any:
    """Return weights (out, in) rounded to symmetric int8: 255 values between minus and plus the largest absolute weight of
    the tensor or the row."""
    largest = weight.abs().amax(dim=1, keepdim=True) if by_row else weight.abs().amax()
    step = largest.clamp_min(1e-12) / 127
    return (weight / step).round() * step


def has_adapter(model: Any) -> bool:
    """Return whether transformers has loaded a PEFT adapter into the model."""
    return bool(getattr(model, "_hf_peft_config_loaded", False))


def moved(model: Any, copy: Any) -> tuple[int, int, float]:
    """Return (number of tensors that differ, number of tensors, largest absolute difference) of two models. Raises
    ValueError for models whose tensors differ in name or shape."""
    one, two = model.state_dict(), copy.state_dict()
    if one.keys() != two.keys() or any(one[key].shape != two[key].shape for key in one):
        raise ValueError("the two models have other weights in number or shape")
    gaps = [float((one[key].float() - two[key].float().to(one[key].device)).abs().max()) if one[key].numel() else 0.0
            for key in one]
    return sum(gap > 0 for gap in gaps), len(gaps), max(gaps, default=0.0)
