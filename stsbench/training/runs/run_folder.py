"""Run folders: the manifest of how the run was started (recipe, commands, earlier run), checks whether a run may begin or
go on in a folder, and a lock that allows one training at a time."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from stsbench.config import flatten
from stsbench.errors import DataError, StsbenchError
from stsbench.files import atomic_write, clear_leftovers, leftover, lock_file
from stsbench.parsing import read_json_object
from stsbench.training.recipes.recipe import Recipe, resolved_yaml
from stsbench.training.recipes.recipes import check_whole, load_recipe

_MANIFEST = "begun.json"
_KEYS = {"warm_start": "origin"}  # field -> its key in the file
LOCK = ".lock"


@dataclass
class RunManifest:
    """How a run was started: where its development data were, when, and by which commands (the later ones resumed it).

    stage: the only stage trained, None for all; start_from: the earlier run as --from named it; warm_start: the description
    of that run (warm_start.describe_warm_start; its key in the file is "origin"); data: stage, or "labelled" -> its training
    text; method_file: sha256 of FILE.py, where the method is FILE.py:CLASS; dev_absent: no development data were found, and
    nothing is scored; dev_sample: written by older versions, which then used the package's sample.
    """

    sample: bool
    data_dir: str | None
    started: str
    commands: list[list[str]] = field(default_factory=list)
    stage: str | None = None
    start_from: str | None = None
    warm_start: dict[str, Any] | None = None
    data: dict[str, dict[str, Any]] = field(default_factory=dict)
    method_file: str | None = None
    dev_sample: bool = False
    dev_absent: bool = False


def check_folder(folder: Path, recipe: Recipe, resume: bool, was_there: bool = False) -> None:
    """Raise StsbenchError unless a run by this recipe may begin (or, with `resume`, go on) in `folder`, whose lock is held.

    Partial files of a killed process are deleted. Where it was killed before it wrote its recipe, the run begins anew, even
    with `resume`. was_there: whether the folder held anything before the lock was taken.
    """
    if resume and (_holds_something(folder) or not was_there):
        _check_recipe(recipe, folder)
    else:
        check_output(folder, resume)
    for written in (folder, folder / "checkpoints"):
        clear_leftovers(written)


def check_output(folder: Path, resume: bool) -> None:
    """Raise StsbenchError where `folder` is a file, or is not empty and no run is resumed."""
    if folder.exists() and not folder.is_dir():
        raise StsbenchError(f"--output {folder} is a file: name a folder")
    if not resume and _holds_something(folder):
        raise StsbenchError(f"{folder} is already there: --resume continues it, or choose another --output")


def _holds_something(folder: Path) -> bool:
    """Return whether the folder contains anything but a lock and partial files of a killed process."""
    return folder.is_dir() and any(path.name != LOCK and not leftover(path) for path in folder.iterdir())


def _check_recipe(recipe: Recipe, folder: Path) -> None:
    """Raise StsbenchError, naming the first difference, unless the run in the folder has this recipe."""
    path = folder / "recipe.yaml"
    if not path.is_file():
        raise StsbenchError(f"--resume: {folder} holds no run (no recipe.yaml); start it without --resume")
    before = flatten(load_recipe(recipe.method, str(check_whole(path))).model_dump())
    now = flatten(recipe.model_dump())
    for key in sorted({*before, *now}, key=lambda key: key.startswith(("name", "description", "source"))):
        if before.get(key) != now.get(key):
            raise StsbenchError(
                f"--resume: {key} was {before.get(key)!r} when {folder} began and is {now.get(key)!r} now; "
                f"resume without changes, or train on from it: --backbone {folder} with another --output"
            )


def claim(folder: Path, recipe: Recipe, manifest: RunManifest) -> None:
    """Write the recipe, unless the folder has one, and the manifest."""
    if not (folder / "recipe.yaml").is_file():
        with atomic_write(folder / "recipe.yaml") as stream:
            stream.write(resolved_yaml(recipe))
    with atomic_write(folder / _MANIFEST) as stream:
        stored = {_KEYS.get(name, name): value for name, value in vars(manifest).items()}
        stream.write(json.dumps(stored, indent=1) + "\n")


def open_manifest(
    folder: Path, resume: bool, *, sample: bool, data_dir: Path | None, command: Sequence[str], stage: str | None = None,
    start_from: Path | None = None, method_file: str | None = None,
) -> RunManifest:
    """Return the manifest of a new run, or that of a resumed run with this command and, if given, another place of the
    development data. Raises StsbenchError, one line, if a resumed run's stage, method file or earlier run would change."""
    earlier = None if start_from is None else str(start_from.resolve())
    if not (resume and (folder / _MANIFEST).is_file()):
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        return RunManifest(sample, None if data_dir is None else str(data_dir), now, [list(command)], stage, earlier,
                           method_file=method_file)
    stored = read_manifest(folder)
    if stage is not None and stage != stored.stage:
        began = f"stage {stored.stage} alone" if stored.stage else "all stages"
        raise StsbenchError(f"--resume: {folder} began with {began}: leave out --stage, or start another run")
    if earlier is not None and earlier != stored.start_from:
        began = f"from {stored.start_from}" if stored.start_from else "from no other run"
        raise StsbenchError(f"--resume: {folder} began {began}: leave out --from, or start another run")
    if stored.method_file not in (None, method_file):
        raise StsbenchError(f"--resume: the method file is not what {folder} began with: put it back or start another run")
    if sample or data_dir is not None:
        stored.sample, stored.data_dir = sample, None if data_dir is None else str(data_dir)
        stored.dev_sample = stored.dev_absent = False
    stored.commands.append(list(command))
    return stored


def read_manifest(folder: Path) -> RunManifest:
    """Return the manifest in the folder's begun.json. Raises DataError where it cannot be read."""
    path = folder / _MANIFEST
    try:
        stored = read_json_object(path)
        manifest = RunManifest(**{name: stored.pop(key) for name, key in _KEYS.items() if key in stored}, **stored)
        return TypeAdapter(RunManifest).validate_json(json.dumps(vars(manifest)), strict=True)
    except (StsbenchError, TypeError, ValueError) as error:
        raise DataError(f"{path} cannot be read ({' '.join(str(error).split())}): start the run anew") from error


@contextmanager
def run_lock(folder: Path) -> Iterator[None]:
    """Create the folder and hold FOLDER/.lock, which the system releases however the process ends.

    A folder that stays empty is removed again, with the parents created for it. Raises StsbenchError where another process
    holds the lock. On systems without such locks (Windows), nothing is locked.
    """
    path = folder / LOCK
    made = [parent for parent in folder.parents if not parent.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        stream = path.open("a")
    except OSError as error:
        raise StsbenchError(f"cannot write {path}: {error.strerror or error}") from error
    with stream:
        locked = lock_file(stream.fileno())
        # The last holder may have deleted the file since it was opened, and another process may have created a new one.
        gone = locked and (not path.exists() or not os.path.samestat(os.fstat(stream.fileno()), path.stat()))
        if locked is False or gone:
            raise StsbenchError(f"{path.parent}: another process is training into it")
        try:
            yield
        finally:
            if [entry.name for entry in folder.iterdir()] == [LOCK]:
                with contextlib.suppress(OSError):
                    path.unlink()
                    for emptied in (folder, *made):
                        emptied.rmdir()
