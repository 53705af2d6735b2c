"""Moving the known files of an unpacked archive into a data folder, after comparing each with the catalog."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from stsbench.data.fetch.lock import read_lock, remember
from stsbench.data.sets.catalog import catalog, entries
from stsbench.data.sets.languages import copied_files, is_copied
from stsbench.errors import DataError
from stsbench.files import lock_file, sha256_file

_WORKPLACE = ".unpack-"


@dataclass(frozen=True)
class FetchReport:
    """What was installed. changed: files that differ from the catalog or the lock; missing: known files not there."""

    root: Path
    installed: tuple[str, ...]
    changed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


@contextmanager
def alone(root: Path) -> Iterator[None]:
    """One process at a time fetches into `root`; a second one waits, then finds the files present."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        stream = (root / ".fetch.lock").open("w")
    except OSError as error:
        raise DataError(f"cannot write to {root}: {error.strerror or error}") from error
    with stream:
        lock_file(stream.fileno(), wait=True)  # without locks two fetches at once are the user's risk
        yield


@contextmanager
def workplace(root: Path) -> Iterator[Path]:
    """A temporary folder inside `root` (so that moving out of it is a rename), removed afterwards. Under `alone` only."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        for left in root.glob(f"{_WORKPLACE}*"):  # of a fetch that was killed
            shutil.rmtree(left, ignore_errors=True)
        folder = Path(tempfile.mkdtemp(dir=root, prefix=_WORKPLACE))
    except OSError as error:
        raise DataError(f"cannot write to {root}: {error.strerror or error}") from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def expected(root: Path) -> dict[str, str]:
    """Every file a data folder may hold -> its sha256 from catalog or lock ("" for a raw file never seen)."""
    locked = read_lock(root)
    raw = {name: digest or locked.get(name, "") for item in entries("raw") for name, digest in item.files.items()}
    others = [*(text.path for text in catalog().training.values()), *copied_files(root)]
    return catalog().files | raw | {name: locked.get(name, "") for name in others}


def install(files: Mapping[str, Path], root: Path, *, source: str, strict: bool = False) -> FetchReport:
    """Move the known ones of `files` (name in the archive -> where it is unpacked) into `root`; others are ignored.

    SentEval archives begin at `STS/…`, at `downstream/STS/…` or higher: the beginning is found from the known names.
    Raises DataError, `root` untouched, when nothing is known, and with `strict` when a file differs or is missing.
    """
    known = {name: "" for name in files if is_copied(name)} | expected(root)
    known_files = _known_names(files, known)
    if not known_files:
        raise DataError(f"{source} contains none of the benchmark's files")
    digests = {name: sha256_file(files[inside]) for name, inside in known_files.items()}
    changed = tuple(name for name, digest in digests.items() if known[name] not in ("", digest))
    missing = tuple(name for name in catalog().files if name not in known_files)
    if strict and (changed or missing):
        fault = f"{changed[0]} differs from the catalog" if changed else f"{missing[0]} is missing"
        raise DataError(f"{source}: {fault} ({len(changed)} changed, {len(missing)} missing; refused: --strict)")
    try:
        for name, inside in known_files.items():
            target = root / name
            target.parent.mkdir(parents=True, exist_ok=True)
            files[inside].replace(target)
    except OSError as error:
        raise DataError(f"cannot write to {root}: {error.strerror or error}") from error
    remember(root, {name: digest for name, digest in digests.items() if not known[name]})
    return FetchReport(root, tuple(known_files), changed, missing)


def _known_names(names: Collection[str], known: dict[str, str]) -> dict[str, str]:
    """Catalog name -> name inside the archive, for the one leading folder under which most known files stand."""
    begins: Counter[str] = Counter()
    for name in names:
        parts = name.split("/")
        for cut in range(len(parts)):
            if f"downstream/{'/'.join(parts[cut:])}" in known or "/".join(parts[cut:]) in known:
                begins["".join(f"{part}/" for part in parts[:cut])] += 1
    best: dict[str, str] = {}
    for begin, _ in begins.most_common(2):  # `x/` and `x/downstream/` both count the same files
        hits = {}
        for name in known:
            for inside in (begin + name, begin + name.removeprefix("downstream/")):
                if inside in names:
                    hits[name] = inside
        best = max(best, hits, key=len)
    return best
