"""A folder that appears whole or not at all, and the copy of a trained model."""

from __future__ import annotations

import glob
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from stsbench.encoders.transformer.find import trained_model
from stsbench.errors import StsbenchError
from stsbench.files import lock_file, machine


@contextmanager
def new_folder(folder: Path, replace: bool = False) -> Iterator[Path]:
    """A hidden folder beside `folder`, to be filled; it takes that name when the block ends well, else it is deleted.

    What killed processes left of earlier ones is deleted. replace: an existing folder gives way; only one process may do so
    at a time, and whatever else is being built for that name is deleted. A kill between the two renames leaves the old
    folder under a hidden name. Raises StsbenchError when the folder exists and is not empty (without `replace`), and when it
    cannot be written.
    """
    if not replace and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise StsbenchError(f"{folder} is already there: choose another folder")
    building: Path | None = None
    lock: int | None = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _sweep(folder, replace)
        building = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}.", suffix=f".{machine()}.part"))
        building.chmod(0o755)  # mkdtemp's 0700 would hide the model from colleagues
        lock = _lock(building)
        yield building
        for path in building.rglob("*"):
            if path.is_file():
                _to_disk(path)
        if replace and folder.exists():
            _swap(building, folder)
        else:
            building.rename(folder)
    except (OSError, SafetensorError) as error:
        raise StsbenchError(f"cannot write {folder}: {getattr(error, 'strerror', None) or error}") from error
    finally:
        if building is not None:
            shutil.rmtree(building, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def _sweep(folder: Path, every: bool) -> None:
    """Delete what was being built for `folder`: by processes of this machine that are dead, or all of it."""
    whose = "*" if every else f"*.{machine()}"
    for left in folder.parent.glob(f".{glob.escape(folder.name)}.{whose}.part"):
        lock = None if every else _lock(left)
        if every or lock is not None:
            shutil.rmtree(left)
        if lock is not None:
            os.close(lock)


def _lock(folder: Path) -> int | None:
    """Hold a lock on a folder, which the system releases when the process dies. None: another process holds it, the folder
    has just gone, or there are no locks here."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return None
    if lock_file(handle):
        return handle
    os.close(handle)
    return None


def _to_disk(path: Path) -> None:
    with path.open("rb") as stream:
        os.fsync(stream.fileno())


def _swap(building: Path, folder: Path) -> None:
    old = building.with_name(building.name.replace(".part", ".old.part"))
    folder.rename(old)
    try:
        building.rename(folder)
    except OSError:
        old.rename(folder)
        raise
    shutil.rmtree(old)


def copy_model(run: Path, output: Path) -> list[Path]:
    """Copy the model that the training run `run` kept to `output`, a new folder; returns the files.

    Raises StsbenchError: no training run, no model yet, several seeds, or `output` is there or cannot be written.
    """
    best = trained_model(run)
    if best == run:
        raise StsbenchError(f"{run} is not a run folder of `stsbench train`: it has no recipe.yaml")
    with new_folder(output) as building:
        shutil.copytree(best, building, dirs_exist_ok=True)
    return sorted(path for path in output.rglob("*") if path.is_file())
