"""Does a text's vector depend on the texts that share its batch?

Some models do not honour the attention mask: their texts share a batch with texts of their own length alone. Others compute
otherwise from some length on, and the longest text of a batch decides for all of it: BigBird attends sparsely above a few
hundred tokens; rotary positions of the type "longrope" turn at other frequencies beyond the length that the model was first
trained for. There, only texts above that length stay among themselves. (The type "dynamic" begins to differ beyond the last
position of the model, where every text is cut.)
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

# Both begin alike: a causal model's first state is then the same in both.
SHORT = "A cat sleeps."
LONG = "A cat " + "that the old man from the small town saw in the green garden near the river " * 3 + "sleeps."
PROBES = (SHORT, LONG)
# Largest difference that rounding explains, of vectors whose largest number is 1: kernels differ with a batch's shape.
_ROUNDING = {"float64": 1e-5, "float32": 1e-5, "bfloat16": 5e-2, "float16": 1e-2}

NO_LIMIT = sys.maxsize
_FIRST_LENGTH = "original_max_position_embeddings"


def depends_on_batch(encode: Callable[[list[str]], Any], dtype: str) -> bool:
    """Whether SHORT has another vector beside LONG than alone.

    encode: texts, all in one batch, to (n, d) vectors.
    """
    alone, batched = np.asarray(encode([SHORT]))[0], np.asarray(encode([SHORT, LONG]))[0]
    size = max(1.0, float(np.abs(alone).max(initial=0)))
    return not float(np.abs(alone - batched).max(initial=0)) <= _ROUNDING[dtype] * size


def sharing_limit(model: Any) -> int:
    """The length in tokens up to which texts of any lengths may share a batch of `model`; NO_LIMIT: all may; 0: none may."""
    limits = [
        int(settings.get(_FIRST_LENGTH) or getattr(config, _FIRST_LENGTH, None) or 0)
        for config in _configs(model)
        for settings in _rotary_settings(config)
        if "longrope" in (settings.get("rope_type"), settings.get("type"))
    ]
    if _attention(model) == "block_sparse":
        config = model.config  # transformers' BigBirdModel.forward: full attention up to here
        limits.append((5 + 2 * config.num_random_blocks) * config.block_size)
    return min(limits, default=NO_LIMIT)


def restore(model: Any) -> None:
    """Undo what an earlier batch changed: one short batch turns a BigBird's sparse attention off for good."""
    declared = _attention(model)
    if declared is not None and getattr(model, "attention_type", declared) != declared:
        model.set_attention_type(declared)


def _attention(model: Any) -> str | None:
    return getattr(getattr(model, "config", None), "attention_type", None)


def _configs(model: Any) -> Iterable[Any]:
    """The configuration of every module that has one, each once. A text model within a larger one has its own."""
    return {id(config): config for module in model.modules() if (config := vars(module).get("config"))}.values()


def _rotary_settings(config: Any) -> list[Mapping[str, Any]]:
    """How positions turn, if they do: one set of settings, or one for each kind of layer. A model's own code may keep them
    under the name that transformers gave them before version 5."""
    settings = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None)
    if not isinstance(settings, Mapping):
        return []
    kinds = [kind for kind in settings.values() if isinstance(kind, Mapping)]
    return kinds or [settings]
