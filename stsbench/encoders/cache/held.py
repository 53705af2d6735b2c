"""The vectors that a run holds: in memory, and what is more than 256 MiB in a file without a name."""

from __future__ import annotations

import tempfile
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse, vstack

from stsbench.errors import EncoderError
from stsbench.files import cache_root

IN_MEMORY = 1 << 28  # bytes of dense vectors


class HeldVectors:
    """float32 (n, d) vectors, dense or CSR, appended in blocks and read by the numbers of their rows.

    A file that is mapped counts as memory only while it is read, and it is gone with the process, however that ends. It lies
    in the user cache, since a system's folder for temporary files is often memory itself.
    """

    def __init__(self) -> None:
        self.shape = (0, 0)
        self._blocks: list[Any] = []
        self._file: IO[bytes] | None = None
        self._lost = ""  # why the file cannot be trusted any more: half a block in it would move all rows behind it

    def append(self, vectors: Any) -> None:
        """Add k rows. EncoderError, one line: they have another width, or no room on the disk."""
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
        """The vectors of these rows, a copy. EncoderError: they could not be written."""
        if self._lost:
            raise EncoderError(self._lost)
        if self._file is not None:
            # Mapped anew each time: pages that were read count as this process's memory for as long as they are mapped.
            return np.memmap(self._file, dtype=np.float32, mode="r", shape=self.shape)[rows]
        if not self._blocks:
            return np.zeros(self.shape, dtype=np.float32)[rows]
        if len(self._blocks) > 1:
            self._blocks = [self._joined()]
        return self._blocks[0][rows]

    def _joined(self) -> Any:
        if not issparse(self._blocks[0]):
            return np.concatenate(self._blocks)
        for block in self._blocks:
            block.resize(block.shape[0], self.shape[1])
        return vstack(self._blocks).tocsr()

    def _write(self, vectors: Any) -> None:
        if self._lost:
            raise EncoderError(self._lost)
        try:
            if self._file is None:
                self._file = _nameless_file()
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


def _nameless_file() -> IO[bytes]:
    folder = cache_root()
    folder.mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryFile(dir=folder)
