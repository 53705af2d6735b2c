"""An encoder whose texts are shared out over processes; everything else it leaves to the encoder of this process."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse import issparse

from stsbench.encoders.base import Counts, Encoded, Encoder, EncoderOptions, Progress
from stsbench.encoders.parallel.devices import chosen_devices
from stsbench.encoders.parallel.pool import Workers
from stsbench.encoders.wrapper import Call, Wrapper
from stsbench.errors import EncoderError

_PART = 8192  # texts a job at most: bounds what is in a pipe


@dataclass(frozen=True)
class _Part:
    rows: Any  # int64 (n,): where the texts stand among all
    texts: list[str]
    reads: tuple[Call, ...]


class ParallelEncoder(Wrapper):
    """`base`, computed by `workers`. A text's vector moves by rounding alone: it stands in another batch."""

    computes_in = "processes"

    def __init__(self, base: Encoder, workers: Workers, reads: tuple[Call, ...] = ()) -> None:
        """EncoderError: the encoder is fitted on each set, so that no other process could know it."""
        check_shareable(base)
        super().__init__(base)
        self._workers, self._reads = workers, reads
        self.cacheable, self.processes = base.cacheable, workers.count

    def ready(self) -> None:
        """Load nothing here: the processes load it."""

    def on(self, base: Encoder, call: Call) -> Encoder:
        """Return another base in the same processes, which read texts by the same calls."""
        return ParallelEncoder(base, self._workers, (*self._reads, call))

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

    def counts(self, texts: Sequence[str]) -> Counts:
        """As one of the processes counts them: this one does not hold the model."""
        return next(iter(self._workers.run(_counted, [list(texts)])))

    def with_dropout(self, seed: int) -> Encoder:
        """Return it in this process."""
        return self.base.with_dropout(seed)


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
