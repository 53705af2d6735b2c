"""A run's log: one JSON object a line, written at once, cut back to a checkpoint on resume."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from stsbench.errors import StsbenchError


class RunLog:
    """log.jsonl of one run; `silent` for the processes that do not write it."""

    def __init__(self, path: Path, keep: int = 0, silent: bool = False) -> None:
        """Open for appending after the first `keep` bytes; what stands behind them was written after the checkpoint that
        the run goes on from, and will be written again."""
        self.path, self._stream = path, None
        if silent:
            return
        try:
            self._stream = path.open("ab")
            if self._stream.tell() < keep:
                raise StsbenchError(f"{path} is shorter than its checkpoint says: the file was changed; start the run anew")
            self._stream.truncate(keep)
        except OSError as error:
            raise StsbenchError(f"cannot write {path}: {error.strerror or error}") from error

    def write(self, kind: str, **values: Any) -> dict[str, Any]:
        """Append one line and return it."""
        line = {"kind": kind, **values}
        if self._stream is not None:
            try:
                self._stream.write(json.dumps(line, allow_nan=False).encode() + b"\n")
                self._stream.flush()
            except OSError as error:
                raise StsbenchError(f"cannot write {self.path}: {error.strerror or error}") from error
        return line

    def position(self) -> int:
        """Bytes written, all of them on the disk."""
        if self._stream is None:
            return 0
        os.fsync(self._stream.fileno())
        return self._stream.tell()

    def close(self) -> None:
        """Close the file."""
        if self._stream is not None:
            self._stream.close()
