"""The vectors of a run: each text is encoded once, and looked up afterwards.

They are held in memory; dense vectors of more than 256 MiB in an unnamed temporary file.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse, vstack

from stsbench.encoders.base import Encoder, EncoderSpec, Progress, checked_texts
from stsbench.encoders.cache.cache import EmbeddingCache
from stsbench.encoders.cache.encode import Preparable, encode_cached, not_finite, prepare
from stsbench.encoders.similarity import GROUP
from stsbench.encoders.traits import STATE, TextTask, reading
from stsbench.errors import EncoderError
from stsbench.files import cache_root
from stsbench.metrics.similarity import SIMILARITIES, paired_similarity, zero_rows
from stsbench.registry import calling, resolve

IN_MEMORY = 1 << 28  # bytes of dense vectors
_BLOCK = 65_536  # texts that are encoded, or whose vectors are read, at a time
_UNIT = 5e-3  # largest deviation from length 1 of a vector that was normalised and then rounded to 16 bits


class HeldVectors:
    """float32 (n, d) vectors, dense or CSR, appended in blocks and read by row number.

    The file is mapped into memory only while it is read, and disappears with the process, however the process ends. It lies
    in the user's cache folder, since a system's folder for temporary files is often held in memory.
    """

    def __init__(self) -> None:
        self.shape = (0, 0)
        self._blocks: list[Any] = []
        self._file: IO[bytes] | None = None
        self._lost = ""  # why the file cannot be used any more: a block written in part would shift all rows behind it

    def append(self, vectors: Any) -> None:
        """Append (k, d) vectors. EncoderError, one line: they have another width, or the disk is full."""
        rows, width = vectors.shape
        before = self.shape[0]
        if issparse(vectors):  # a vocabulary grows with every text
            width = max(width, self.shape[1])
            self._blocks.append(vectors)
        elif before and width != self.shape[1]:
            raise EncoderError(f"vectors of {width} numbers, and of {self.shape[1]} before, from one encoder")
        elif self._file is not None or 4 * (before + rows) * width > IN_MEMORY:
            self._write(vectors)
        else:
            self._blocks.append(vectors)
        self.shape = (before + rows, width)

    def __getitem__(self, rows: NDArray[np.intp]) -> Any:
        """Return a copy of these rows. EncoderError: vectors could not be written to the disk."""
        if self._lost:
            raise EncoderError(self._lost)
        if self._file is not None:
            # Mapped anew each time: pages that were read count as this process's memory for as long as they are mapped.
            return np.memmap(self._file, dtype=np.float32, mode="r", shape=self.shape)[rows]
        if not self._blocks:
            return np.zeros(self.shape, dtype=np.float32)[rows]
        if len(self._blocks) > 1:
            sparse = issparse(self._blocks[0])
            for block in self._blocks if sparse else ():
                block.resize(block.shape[0], self.shape[1])
            self._blocks = [vstack(self._blocks).tocsr() if sparse else np.concatenate(self._blocks)]
        return self._blocks[0][rows]

    def _write(self, vectors: Any) -> None:
        if self._lost:
            raise EncoderError(self._lost)
        try:
            if self._file is None:
                cache_root().mkdir(parents=True, exist_ok=True)
                self._file = tempfile.TemporaryFile(dir=cache_root())  # noqa: SIM115 (closed with this)
            for block in (*self._blocks, vectors):
                self._file.write(np.ascontiguousarray(block, dtype=np.float32).data)
            self._file.flush()
        except OSError as error:
            self._lost = (
                f"cannot keep the vectors of {self.shape[0] + len(vectors):,} texts on disk ({error.strerror or error}): "
                f"make room in {cache_root()}, or name another folder as STSBENCH_CACHE"
            )
            raise EncoderError(self._lost) from error
        self._blocks.clear()


@dataclass
class _Encoded:
    """The vectors of distinct texts: text -> row, (n, d) vectors, bool (n,) whether a text was cut."""

    row: dict[str, int] = field(default_factory=dict)
    vectors: HeldVectors = field(default_factory=HeldVectors)
    truncated: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=bool))


class Embed:
    """Vectors of texts, each encoded once. `add` encodes; a call returns vectors, and encodes the texts not added before."""

    def __init__(self, encoder: Encoder, cache: EmbeddingCache | None = None, progress: Progress | None = None) -> None:
        encoder.use_cache(cache)
        self.encoder = encoder
        self.progress = progress
        self.task: TextTask | None = None  # see `for_task`
        self.read: dict[str, EncoderSpec] = {}  # with a task: role, or "text" for none -> spec of what has read such texts
        self.cut = 0  # pairs that a similarity without sentence vectors has cut
        self._cache, self._done = cache, _Encoded()
        self._fitted: dict[str, Embed] = {}
        self._roles: dict[tuple[str | None, str | None], Embed] = {}
        self._tasks: dict[TextTask, Embed] = {}
        self._asked, self._root = encoder, self
        self.whole = self  # holds the vectors; views for tasks that read texts in the same way share it

    @property
    def spec(self) -> EncoderSpec:
        """Return the encoder's spec."""
        return self.encoder.spec

    @property
    def identity(self) -> EncoderSpec:
        """Return the spec that records hold (`Encoder.identity`), the same for all prompts; with the state of the
        post-processing."""
        named = self._asked.identity
        if named is self._asked.spec:
            return self.spec
        state = {STATE: self.spec.options[STATE]} if STATE in self.spec.options else {}
        return replace(named, fitted_on=self.spec.fitted_on, options={**named.options, **state})

    @property
    def text_count(self) -> int:
        """Return how many distinct texts are held."""
        return len(self._done.row)

    @property
    def dimension(self) -> int:
        """Return the width of the vectors; 0 before a text of any role was encoded."""
        if self._done.row:
            return self._done.vectors.shape[1]
        return next((width for embed in self._variants() if (width := embed.dimension)), 0)

    @property
    def equal_lengths(self) -> bool:
        """Return whether some batches held texts of equal length only, as `Encoder.equal_lengths`."""
        return self.encoder.equal_lengths or any(embed.equal_lengths for embed in self._variants())

    def add(self, texts: Sequence[str]) -> None:
        """Encode those of `texts` that are not held yet. Raises EncoderError where the encoder fails."""
        done = self._done
        if self.task is not None:
            self.read["text"] = self.spec
        new = [text for text in dict.fromkeys(checked_texts(texts)) if text not in done.row]
        if not new:
            return
        if len(new) > _BLOCK and isinstance(self.encoder, Preparable):
            prepare(self.encoder, new)
        for start in range(0, len(new), _BLOCK):
            some = new[start : start + _BLOCK]
            got = encode_cached(self.encoder, some, self._cache, self.progress, tolerant=True)
            done.vectors.append(got.vectors)
            done.row.update({text: len(done.row) + i for i, text in enumerate(some)})
            done.truncated = np.concatenate([done.truncated, got.truncated])

    def __call__(self, texts: Sequence[str]) -> Any:
        """Return float32 (n, d) vectors of n texts, dense or CSR, in their order."""
        texts = checked_texts(texts)
        self.add(texts)
        return self.encoder.of_call(self._done.vectors[self._rows(texts)])

    def similarity(self, first: Sequence[str], second: Sequence[str], name: str = "cosine") -> NDArray[np.float64]:
        """Return float64 (n,) similarities of text i of `first` to text i of `second` (`paired_similarity`), computed in
        blocks; a similarity without sentence vectors (GROUP) adds the pairs that it truncates to `cut`."""
        if name not in SIMILARITIES:
            if self.task is not None:
                self.read["text"] = self.spec
            compared = resolve(GROUP, name)(self.encoder, first, second)
            self.cut += int(compared.cut.sum())
            return np.asarray(compared.values, np.float64)
        self.add([*first, *second])
        blocks = zip(self._in_blocks(first), self._in_blocks(second), strict=True)
        return np.concatenate([np.zeros(0), *(paired_similarity(a, b, name) for a, b in blocks)])

    def for_set(
        self, texts: Sequence[str], source: str, by_role: Mapping[str | None, Sequence[str]] = MappingProxyType({})
    ) -> Embed:
        """Return the Embed of the encoder fitted on `texts`, known as `source`; itself, if it needs no fitting on each set.

        by_role: the same texts by their role. An encoder that was fitted before stays as it is.
        """
        if self.spec.fitted_on is not None:
            return self
        if source not in self._fitted:
            encoder = self.encoder
            read = [(self if role is None else self.for_role(role), part) for role, part in by_role.items()]
            readings = [(reader.encoder, part) for reader, part in read] or [(encoder, texts)]
            fitted = calling(type(encoder), "fit", lambda: encoder.fit_readings(readings, texts, source),
                             raising=EncoderError)
            if fitted is encoder:
                return self
            self._fitted[source] = Embed(fitted, self._cache, self.progress)
            self._fitted[source]._asked = self._asked
        embed = self._fitted[source]
        return embed if self.task is None else embed._read_for(self.task, self.read)

    def for_task(self, task: TextTask) -> Embed:
        """Return the Embed of texts of a task, read with the encoder's prompt for the task, if it has one.

        Its `for_role` takes the role's prompt for the task, and its `read` says how texts were read.
        """
        return self._root._read_for(task, {} if self.task is None else self.read)

    def for_role(self, role: str | None, prompt: str | None = None) -> Embed:
        """Return the Embed of texts of a role, or with `prompt` (Encoder.for_role); itself where that changes nothing."""
        if self.task is None or prompt is not None:
            return self._with_prompt(role, prompt)
        embed = self._with_prompt(*reading(self.encoder.traits, self.task, role))
        self.read[role or "text"] = embed.spec
        return self.whole if embed is self else embed  # `whole` notes nothing in `read`

    def _read_for(self, task: TextTask, read: dict[str, EncoderSpec]) -> Embed:
        """Return a view for a task; tasks whose texts are read in the same way share their vectors."""
        of_task = self._of_task(task)
        reader = copy.copy(of_task._with_prompt(*reading(of_task.encoder.traits, task, None), anew=True))
        reader.task, reader.read, reader._root = task, read, self
        return reader

    def _of_task(self, task: TextTask) -> Embed:
        """Return the Embed of a task's texts for an encoder that takes the task as an input; itself for any other."""
        encoder = self.encoder.for_task(task)
        if encoder is self.encoder:
            return self
        if task not in self._tasks:
            self._tasks[task] = self._cached(encoder.anew())
        return self._tasks[task]

    def _cached(self, encoder: Encoder) -> Embed:
        embed = self._same(encoder) or Embed(encoder, self._cache, self.progress)
        embed._asked = self._asked
        return embed

    def _with_prompt(self, role: str | None, prompt: str | None, anew: bool = False) -> Embed:
        """Return the Embed of a role and a prompt. anew: fit a fitted encoder again on its texts, read with the prompt."""
        encoder = self.encoder.for_role(role, prompt)
        if encoder is self.encoder:
            return self
        if (role, prompt) not in self._roles:
            self._roles[role, prompt] = self._cached(encoder.anew() if anew else encoder)
        return self._roles[role, prompt]

    def _same(self, encoder: Encoder) -> Embed | None:
        """Return the Embed of an encoder with an equal spec, as two roles may share a prompt, or None; None for functions,
        since the spec of one is known only after it has run."""
        if encoder.spec.kind == "callable":
            return None
        return next((embed for embed in (self.whole, *self._variants()) if embed.spec == encoder.spec), None)

    def _variants(self) -> list[Embed]:
        """Return the Embeds of roles, prompts and tasks, each with vectors of its own."""
        return [embed for embed in (*self._roles.values(), *self._tasks.values()) if embed is not self.whole]

    def unusable(self, texts: Sequence[str]) -> str | None:
        """Return a line on the texts whose vectors are not finite, None if all are finite."""
        self.add(texts)
        bad = np.flatnonzero(np.concatenate([np.zeros(0, dtype=bool), *(
            ~np.isfinite(vectors).all(axis=1) for vectors in self._in_blocks(texts) if not issparse(vectors))]))
        return not_finite(self.spec, texts, bad) if len(bad) else None

    def zero(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Return bool (n,): which of n texts have a vector of zeros."""
        return np.concatenate([np.zeros(0, dtype=bool), *map(zero_rows, self._in_blocks(texts))])

    def _in_blocks(self, texts: Sequence[str]) -> Iterator[Any]:
        """Yield the vectors of n texts in blocks, since a copy of all would double the memory; in a single block where a
        vector depends on the other texts of a call."""
        step = _BLOCK if type(self.encoder).of_call is Encoder.of_call else max(len(texts), 1)
        for start in range(0, len(texts), step):
            yield self(texts[start : start + step])

    def all_normalized(self) -> bool:
        """Return whether all held vectors are dense and have length 1, apart from zero and non-finite ones; False where
        there are no others."""
        some = False
        for block in self._in_blocks([*self._done.row]):
            if issparse(block):
                return False
            lengths = np.linalg.norm(block, axis=1)
            lengths = lengths[np.isfinite(lengths) & (lengths > 0)]
            if (np.abs(lengths - 1) > _UNIT).any():
                return False
            some |= bool(len(lengths))
        return some

    def truncated(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Return bool (n,): which of n texts lost tokens to the model's limit."""
        self.add(texts)
        return self._done.truncated[self._rows(texts)]

    def _rows(self, texts: Sequence[str]) -> NDArray[np.intp]:
        return np.array([self._done.row[text] for text in texts], dtype=np.intp)
