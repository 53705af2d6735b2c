"""Cache of scored runs, in the user's cache folder: one file per run, named by a digest of everything its scores depend on.

A file is the sha256 of what follows (hex), the length of a JSON text, this text, and a matrix of bootstrap draws, one row
per score. A damaged file counts as missing, and the run is scored again. Everything in the cache can be computed again.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import mmap
import os
import platform
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from stsbench.comparison.comparability import Setting
from stsbench.evaluation.measure import RESAMPLES
from stsbench.evaluation.protocol import load_protocol
from stsbench.evaluation.run_file import RUN
from stsbench.files import atomic_write, cache_root, sha256_file
from stsbench.leaderboard.records.entries import EntryRun
from stsbench.registry import names, resolve

from .board import Cell
from .lines import ScoreLine

FORM = 7  # version of the files' layout
KEPT = 30 * 24 * 3600  # seconds after its last use until a file is deleted
DIGEST, LENGTH = 64, 16  # bytes at the beginning of a file; the matrix begins at a multiple of 64
# The code and files that scores, their draws and the checks of records may depend on.
SCORER = {
    "stsbench": ("*.py", "metrics/*.py", "evaluation/*.py", "data/sets/*.py", "data/sets/*.npz", "data/sets/*.yaml",
                 "encoders/*.py", "comparison/comparability.py"),
    "stsbench.protocols": ("*.py", "presets/*.yaml"),
    "stsbench.leaderboard": (
        "expected.yaml", "records/*.py", "ranks/board.py", "ranks/lines.py", "ranks/results.py", "ranks/scored.py",
    ),
}
NAMING = ("stsbench.data_sources", "stsbench.data_remarks")  # entry points that name data sets and remark on them


@dataclass(frozen=True)
class RunResult:
    """The result of scoring a valid run. lines: its score lines; decided: record's name -> digests of what its data
    determine; sketches: record's name -> the sketch that copies are found by."""

    lines: list[ScoreLine]
    decided: Mapping[str, Mapping[str, str]]
    sketches: Mapping[str, list[float]]


def folder() -> Path:
    """Return the folder of the cache."""
    return cache_root() / "leaderboard"


def clear() -> None:
    """Delete all cached results."""
    shutil.rmtree(folder(), ignore_errors=True)


def prune() -> None:
    """Delete cached results that no build has used for 30 days."""
    oldest = time.time() - KEPT
    for path in folder().glob("*/*"):
        try:
            if path.stat().st_mtime < oldest:
                path.unlink()
        except OSError:
            continue  # another process has deleted the file already


def cache_key(run: EntryRun) -> str:
    """Return the sha256 (hex) of a run's file, of the files it shares with other runs, and of the code that scores it."""
    digest = hashlib.sha256(f"{scorer()} {sha256_file(run.folder / RUN)} ".encode())
    records = [item.record for item in run.records]
    for file in sorted({record.observations.shared.file for record in records if record.observations.shared}):
        path = run.folder / file
        digest.update(f"{file} {sha256_file(path) if path.is_file() else 'missing'} ".encode())
    for protocol in sorted({record.protocol.name for record in records}):
        digest.update(f"{protocol} {_source(load_protocol(protocol).__module__)} ".encode())
    return digest.hexdigest()


@cache
def scorer() -> str:
    """Return the sha256 (hex) of the code that computes scores, with the versions of Python, NumPy and SciPy."""
    digest = hashlib.sha256(f"{FORM} {platform.python_version()} {np.__version__} {scipy.__version__}".encode())
    for package, patterns in SCORER.items():
        root = Path(str(import_module(package).__file__)).parent
        for path in sorted(path for pattern in patterns for path in root.glob(pattern)):
            digest.update(f"{package} {path.relative_to(root).as_posix()} {sha256_file(path)} ".encode())
    for module in (resolve(group, name).__module__ for group in NAMING for name in names(group)):
        digest.update(f"{module} {_source(module)} ".encode())
    return digest.hexdigest()


@cache
def _source(module: str) -> str:
    """Return the sha256 (hex) of a module's file; for one in a package, those of all .py and .yaml files of its folder."""
    loaded = import_module(module)
    path = Path(loaded.__file__ or "")
    siblings = [*path.parent.glob("*.py"), *path.parent.glob("*.yaml")] if loaded.__package__ else [path]
    return " ".join(map(sha256_file, sorted(filter(Path.is_file, siblings))))


def write(key: str, result: RunResult, run: EntryRun) -> None:
    """Write the result of `run` to the cache."""
    index_of = {id(measured.protocol): at for at, measured in enumerate(run.records)}
    rows: dict[int, tuple[int, np.ndarray[Any, Any]]] = {}  # columns that share their draws share a row of the matrix
    lines = []
    for line in result.lines:
        kept = {
            "setting": dataclasses.asdict(line.setting), "protocol": index_of[id(line.protocol)], "sample": line.sample,
            "cells": {column: dataclasses.asdict(cell) for column, cell in line.cells.items()}, "known": line.known,
            "draws": {column: rows.setdefault(id(drawn), (len(rows), drawn))[0] for column, drawn in line.draws.items()},
            "subsets": [[*part, dataclasses.asdict(cell)] for part, cell in line.subsets.items()],
            "digests": line.digests, "cut": line.cut, "part": line.part, "ceilings": line.ceilings,
        }
        lines.append(kept)
    decided = {name: dict(parts) for name, parts in result.decided.items()}
    header = {"decided": decided, "sketches": dict(result.sketches), "rows": len(rows), "lines": lines}
    head = json.dumps(header).encode()
    head += b" " * (-(DIGEST + LENGTH + len(head)) % 64)
    matrix = np.array([drawn for _, drawn in rows.values()], dtype="<f8").reshape(len(rows), RESAMPLES)
    content = f"{len(head):<{LENGTH}}".encode() + head + matrix.tobytes()
    with atomic_write(_path(key), "wb") as stream:
        stream.write(hashlib.sha256(content).hexdigest().encode() + content)


def read(key: str, run: EntryRun) -> RunResult | None:
    """Return the cached result of `run`; None where there is none, or the file is damaged. Draws are memory-mapped: they are
    read from the file when they are used."""
    try:
        with _path(key).open("rb") as stream:
            content = memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
        os.utime(_path(key))
    except (OSError, ValueError):  # an empty file cannot be mapped
        return None
    if hashlib.sha256(content[DIGEST:]).hexdigest().encode() != content[:DIGEST]:
        return None
    start = DIGEST + LENGTH
    length = int(bytes(content[DIGEST:start]))
    head = json.loads(bytes(content[start : start + length]))
    matrix = np.frombuffer(content, dtype="<f8", offset=start + length).reshape(head["rows"], RESAMPLES)
    return RunResult(list(_lines(head["lines"], matrix, run)), head["decided"], head["sketches"])


def _lines(lines: list[dict[str, Any]], matrix: np.ndarray[Any, Any], run: EntryRun) -> Iterator[ScoreLine]:
    for stored in lines:
        yield ScoreLine(
            Setting(**stored["setting"]), run.records[stored["protocol"]].protocol,
            {column: Cell(**values) for column, values in stored["cells"].items()},
            {column: matrix[row] for column, row in stored["draws"].items()}, stored["digests"], stored["cut"],
            {(task, subset): Cell(**values) for task, subset, values in stored["subsets"]},
            sample=stored["sample"], known=stored["known"], part=stored["part"], ceilings=stored["ceilings"],
        )


def _path(key: str) -> Path:
    return folder() / key[:2] / key
