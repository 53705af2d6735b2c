"""Batching of texts: sorted by length, packed to a token budget, and restored to their order afterwards.

A batch holds texts of nearly equal length, so little or nothing is padded; the budget bounds memory where a fixed
number of texts would not. Longest first: what does not fit into memory fails on the first batch, not after an hour.

A text's vector may depend on the texts that share its batch. Some models do not honour the attention mask: their texts share
a batch with texts of equal length only. Others compute differently from some length on, and the longest text of a batch
decides for all of it: BigBird attends sparsely above a few hundred tokens; rotary positions of the type "longrope" have
other frequencies beyond the length that the model was first trained for. With these models, texts above that length do not
share a batch with others. (The type "dynamic" differs only beyond the model's last position, where every text is cut.)
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

_Item = TypeVar("_Item")
_Made = TypeVar("_Made")

Groups = list[tuple[int, int]]  # (texts, tokens of each), in the order of a batch
Slots = Sequence[tuple["Tensor", "Tensor"]]  # each layer's keys and values: (P, d) for all texts, or (n, P, d)
# Both texts begin with the same tokens, so that a causal model's first state is the same in both.
SHORT = "A cat sleeps."
LONG = "A cat " + "that the old man from the small town saw in the green garden near the river " * 3 + "sleeps."
PROBES = (SHORT, LONG)
# Largest difference that rounding explains, of vectors whose largest number is 1: kernels differ with a batch's shape.
_ROUNDING = {"float64": 1e-5, "float32": 1e-5, "bfloat16": 5e-2, "float16": 1e-2}

NO_LIMIT = sys.maxsize
_FIRST_LENGTH = "original_max_position_embeddings"


def longest_first(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return positions (n,) of the texts in the order they are encoded; equal lengths keep their order."""
    return np.argsort(-lengths, kind="stable")


def batch_end(lengths: NDArray[np.int64], start: int, budget: int) -> int:
    """Return the end of the batch that begins at `start`: its padded size (texts x longest) stays within `budget`.

    lengths: (n,), descending. A batch has at least one text, whatever the budget.
    """
    return min(len(lengths), start + max(1, budget // max(1, int(lengths[start]))))


def groups(lengths: NDArray[np.int64]) -> Groups:
    """Return runs of equal length in a sorted batch: [(texts, tokens of each), ...]."""
    edges = np.flatnonzero(np.diff(lengths)) + 1
    bounds = [0, *edges.tolist(), len(lengths)]
    return [(stop - start, int(lengths[start])) for start, stop in pairwise(bounds) if stop > start]


def flatten(ids: Sequence[Sequence[int]], order: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return all token ids, text after text in `order`: (tokens,)."""
    total = sum(len(row) for row in ids)
    return np.fromiter(chain.from_iterable(ids[i] for i in order.tolist()), dtype=np.int64, count=total)


@dataclass(frozen=True)
class Chunk:
    """Tokenised texts, longest first, without those that have no token."""

    texts: int  # how many, those without a token included
    truncated: NDArray[np.bool_]  # (texts,) which were cut
    order: NDArray[np.int64]  # (n,) indices among the texts of those with a token
    lengths: NDArray[np.int64]  # (n,) tokens of each, in that order
    ids: NDArray[np.int64]  # (tokens,), text after text
    marks: NDArray[np.int64] | None  # (n,) indices of the mask tokens in `ids`, for the pooler mask


@contextmanager
def ahead(make: Callable[[_Item], _Made], items: Iterable[_Item], *, threaded: bool) -> Iterator[Iterator[_Made]]:
    """Yield an iterator over make(item) of all items, in order. threaded: compute the next result in a thread while the
    caller uses one.

    An error of `make` is raised at its item's turn. The thread ends with the block, also after an error.
    """
    if not threaded:
        yield map(make, items)
        return
    pool = ThreadPoolExecutor(1, "stsbench-ahead")

    def results() -> Iterator[_Made]:
        waiting: deque[Future[_Made]] = deque()
        for item in items:
            waiting.append(pool.submit(make, item))
            if len(waiting) > 1:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    try:
        yield results()
    finally:
        pool.shutdown(cancel_futures=True)


@dataclass(frozen=True)
class KeyValues:
    """The keys and values of a prefix: (layers, P, d) each, heads side by side in d."""

    keys: Tensor
    values: Tensor

    def by_layer(self) -> Slots:
        """Return keys and values of each layer."""
        return list(zip(self.keys, self.values, strict=True))


@dataclass(frozen=True)
class Soft:
    """A soft prompt's inputs for one packed batch of `tokens` tokens, text after text (encoders/forward/passes.py).

    positions: (tokens,) position ids, None: the model's own, plus `shift`; rows: (tokens,) row of `vectors` (m, d) that
    replaces the word embedding, -1 for the token's own, None: no learned words; prefix: keys and values that every token
    attends to besides its text.
    """

    positions: Tensor | None = None
    rows: Tensor | None = None
    vectors: Tensor | None = None
    prefix: KeyValues | None = None
    shift: int = 0


def depends_on_batch(encode: Callable[[list[str]], Any], dtype: str) -> bool:
    """Return whether SHORT has another vector in a batch with LONG than alone.

    encode: returns the (n, d) vectors of n texts, computed in one batch.
    """
    alone, batched = np.asarray(encode([SHORT]))[0], np.asarray(encode([SHORT, LONG]))[0]
    size = max(1.0, float(np.abs(alone).max(initial=0)))
    return not float(np.abs(alone - batched).max(initial=0)) <= _ROUNDING[dtype] * size


def sharing_limit(model: Any) -> int:
    """Return the length in tokens up to which texts of any lengths may share a batch of `model`; NO_LIMIT: all may; 0:
    none may."""
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
    """Restore the attention type that a model declares: one short batch turns BigBird's sparse attention off for good."""
    declared = _attention(model)
    if declared is not None and getattr(model, "attention_type", declared) != declared:
        model.set_attention_type(declared)


def _attention(model: Any) -> str | None:
    return getattr(getattr(model, "config", None), "attention_type", None)


def _configs(model: Any) -> Iterable[Any]:
    """Return the configs of all modules, each once: a text model within a larger one has its own."""
    return {id(config): config for module in model.modules() if (config := vars(module).get("config"))}.values()


def _rotary_settings(config: Any) -> list[Mapping[str, Any]]:
    """Return the settings of rotary positions: one set, or one for each kind of layer; [] without such positions. A model's
    own code may keep them under the name that transformers used before version 5."""
    settings = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None)
    if not isinstance(settings, Mapping):
        return []
    kinds = [kind for kind in settings.values() if isinstance(kind, Mapping)]
    return kinds or [settings]
