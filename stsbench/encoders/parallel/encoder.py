"""An encoder whose texts are shared out over processes; everything else it leaves to the encoder of this process."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import issparse

from stsbench.encoders.base import Counts, Encoded, Encoder, EncoderOptions, EncoderSpec, Progress, TokenTable
from stsbench.encoders.parallel.devices import chosen_devices
from stsbench.encoders.parallel.pool import Workers
from stsbench.encoders.roles import TextTask
from stsbench.errors import EncoderError

if TYPE_CHECKING:
    import torch

_PART = 8192  # texts a job at most: bounds what is in a pipe


_Call = tuple[str, tuple[Any, ...]]  # "for_role", "for_task" or "behind", with its arguments: how texts are to be read


@dataclass(frozen=True)
class _Part:
    rows: Any  # int64 (n,): where the texts stand among all
    texts: list[str]
    reads: tuple[_Call, ...]


class ParallelEncoder(Encoder):
    """`encoder`, computed by `workers`. A text's vector moves by rounding alone: it stands in another batch."""

    def __init__(self, encoder: Encoder, workers: Workers, reads: tuple[_Call, ...] = ()) -> None:
        """EncoderError: the encoder is fitted on each set, so that no other process could know it."""
        check_shareable(encoder)
        self._encoder, self._workers, self._reads = encoder, workers, reads
        self.spec, self.cacheable, self.notes = encoder.spec, encoder.cacheable, encoder.notes
        self.dimension, self.engine, self.attention = encoder.dimension, encoder.engine, encoder.attention
        self.similarity_fn_name = encoder.similarity_fn_name
        self.prompts, self.trained_on = encoder.prompts, encoder.trained_on
        self.training_overlap = encoder.training_overlap
        self.default_prompt, self.adapters = encoder.default_prompt, encoder.adapters
        self.default_route = encoder.default_route
        self.equal_lengths, self.libraries, self.processes = encoder.equal_lengths, encoder.libraries, workers.count

    computes_in = "processes"

    @property
    def reads_by_task(self) -> bool:
        """Whether the encoder does."""
        return self._encoder.reads_by_task

    @property
    def identity(self) -> EncoderSpec:
        """The encoder's."""
        return self._encoder.identity

    def run(self, texts: Sequence[str], progress: Progress | None = None) -> Encoded:
        """Vectors of n distinct texts, dense. EncoderError: they are sparse, a text has none, or a process ended."""
        order = np.array(sorted(range(len(texts)), key=lambda row: -len(texts[row])), dtype=np.int64)
        parts = max(1, min(len(texts), max(self.processes, -(-len(texts) // _PART))))
        rows = [order[start::parts] for start in range(parts)]  # of every length, so that each takes as long
        jobs = [_Part(share, [texts[row] for row in share.tolist()], self._reads) for share in rows]
        vectors: Any = None
        truncated = np.zeros(len(texts), dtype=bool)
        for indices, encoded, apart_lengths in self._workers.run(encode_part, jobs, progress):
            if issparse(encoded.vectors):
                raise EncoderError(f"{self.spec.name} gives sparse vectors, which one process computes: leave --processes "
                                   "and --devices out")
            if vectors is None:
                vectors = np.zeros((len(texts), encoded.vectors.shape[1]), encoded.vectors.dtype)
            vectors[indices], truncated[indices] = encoded.vectors, encoded.truncated
            if apart_lengths:
                self.keep_lengths_apart()
        return Encoded(vectors, truncated)

    def for_role(self, role: str | None, prompt: str | None = None) -> Encoder:
        """The same model in the same processes, behind the prompt of a role or `prompt`."""
        return self._reading("for_role", role, prompt)

    def behind(self, prompt: str) -> Encoder:
        """The same model in the same processes, behind one prompt."""
        return self._reading("behind", prompt)

    def for_task(self, task: TextTask) -> Encoder:
        """The same model in the same processes, as it reads texts of a task."""
        return self._reading("for_task", task)

    def _reading(self, method: str, *arguments: Any) -> Encoder:
        encoder = getattr(self._encoder, method)(*arguments)
        if encoder is self._encoder:
            return self
        return ParallelEncoder(encoder, self._workers, (*self._reads, (method, arguments)))

    @property
    def device(self) -> torch.device:
        """That of the encoder in this process, where a tensor is given back."""
        return self._encoder.device

    @property
    def uses_torch(self) -> bool:
        """Whether the encoder does."""
        return self._encoder.uses_torch

    def counts(self, texts: Sequence[str]) -> Counts:
        """As one of the processes counts them: this one does not hold the model."""
        return next(iter(self._workers.run(_counted, [list(texts)])))

    def with_dropout(self, seed: int) -> Encoder:
        """In this process."""
        return self._encoder.with_dropout(seed)

    def token_table(self, which: str) -> TokenTable:
        """Read in this process."""
        return self._encoder.token_table(which)


def encode_part(encoder: Encoder, part: _Part, progress: Progress) -> tuple[Any, Encoded, bool]:
    """What a worker does: the rows it was given, their vectors, and whether its batches hold texts of one length."""
    for method, arguments in part.reads:
        encoder = getattr(encoder, method)(*arguments)
    encoded = encoder.run(part.texts, progress)
    return part.rows, encoded, encoder.equal_lengths


def _counted(encoder: Encoder, texts: list[str], progress: Progress) -> Counts:
    torch: Any = sys.modules.get("torch")
    return replace(encoder.counts(texts), threads=torch.get_num_threads() if torch and encoder.uses_torch else None)


def check_shareable(encoder: Encoder) -> None:
    """EncoderError for an encoder that only one process can hold."""
    if encoder.fitted_per_set:
        raise EncoderError(f"{encoder.spec.name} is fitted on each set of texts, by one process: leave --processes and "
                           "--devices out")


@contextmanager
def in_processes(
    encoder: Encoder, options: EncoderOptions, devices: str | None = None, processes: int | None = None
) -> Iterator[Encoder]:
    """`encoder` itself, or computed by a process for each device; they end with the block.

    options: what `load_encoder` made it of, the model's name among them. EncoderError as `chosen_devices`.
    """
    names = chosen_devices(devices, processes, options.device)
    if not names:
        yield encoder
        return
    workers = Workers(options.model, options, names, encoder)
    try:
        yield ParallelEncoder(encoder, workers)
    finally:
        workers.close()
