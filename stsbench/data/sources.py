"""Finding a set: --data-dir, then $STSBENCH_DATA, then the user cache, then a download; or the packaged sample."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stsbench.data import readers
from stsbench.data.catalog import Entry, entry
from stsbench.data.lock import read_lock
from stsbench.data.sets import PairSet
from stsbench.errors import DataError, MissingDataError
from stsbench.files import cache_root, sha256_file

WAYS = (
    "give the data by --data-dir DIR (a folder with SentEval's downstream/), "
    "by $STSBENCH_DATA or the user cache (`stsbench data fetch`; without network `stsbench data fetch --from BUNDLE`), "
    "or use --sample"
)


@dataclass(frozen=True)
class Found:
    """A folder that holds every file of a set, and how it is called in records ("user cache", "sample", a path)."""

    root: Path
    origin: str


def load(
    set_id: str, *, data_dir: Path | None = None, view: str = "senteval", sample: bool = False,
    offline: bool = False, strict: bool = False,
) -> PairSet:
    """Read one set of scored pairs.

    A file whose sha256 is not the catalog's makes the set `known=False` with a warning that names it; `strict` refuses.
    The sample has a view and so a digest of its own and is compared with nothing.
    Raises DataError for an unknown id, a missing or malformed file, or nothing found and no network.
    """
    sample = sample or view == "sample"
    item = entry(set_id, "senteval" if sample else view)
    if item.kind == "transfer":
        raise DataError(f"{set_id} is a classification task: it holds labelled texts, not scored pairs")
    found = locate(item, data_dir=data_dir, sample=sample, offline=offline)
    warnings = [] if sample else check(item, found.root)
    if strict and warnings:
        raise DataError(f"{warnings[0]} (refused: --strict-data)")
    rows = read(item, found.root)
    if warnings:
        warnings += _miscounted(item, rows)
    return PairSet(
        id=item.id, task=item.task, view="sample" if sample else item.view, first=tuple(rows.first),
        second=tuple(rows.second), gold=np.array(rows.gold, dtype=np.float64), subsets=tuple(rows.subsets),
        origin=found.origin, known=not warnings, warnings=tuple(warnings),
    )


def locate(
    item: Entry, *, data_dir: Path | None = None, sample: bool = False, offline: bool = False
) -> Found:
    """The first place that holds all of the set's files; an explicit `data_dir` or `sample` is the only place asked.

    Raises DataError naming the missing path, also where a place holds only a part of the set: places are never mixed.
    """
    if sample:
        root = Path(__file__).with_name("sample")
        _complete(item, root, "the sample data in the package")
        return Found(root, "sample")
    if data_dir is not None:
        _complete(item, data_dir, "--data-dir")
        return Found(data_dir, str(data_dir))
    places: list[tuple[Path, str]] = []
    if own := os.environ.get("STSBENCH_DATA"):
        if not Path(own).is_dir():
            raise DataError(f"$STSBENCH_DATA names {own}, which is no folder")
        places.append((Path(own), own))
    places.append((data_root(), "user cache"))
    for root, origin in places:
        if len(missing(item, root)) < len(item.files):
            _complete(item, root, origin)
            return Found(root, origin)
    return _fetched(item, offline, [str(root) for root, _ in places])


def data_root() -> Path:
    """The data folder inside the user cache."""
    return cache_root() / "data"


def path_in(root: Path, name: str) -> Path:
    """Where a catalog file lies: below `root`, which may also be the `downstream` folder itself."""
    inside = root / name.removeprefix("downstream/")
    return inside if not (root / "downstream").is_dir() and inside.exists() else root / name


def missing(item: Entry, root: Path) -> list[str]:
    """The set's files that are not below `root`."""
    return [name for name in item.files if not path_in(root, name).is_file()]


def check(item: Entry, root: Path) -> list[str]:
    """One line for every present file of the set whose sha256 is not the catalog's (for raw views: lock.json's)."""
    lines = []
    locked = read_lock(root) if item.view == "raw" else {}
    for name, known in item.files.items():
        path = path_in(root, name)
        expected, keeper = (known, "the catalog") if known else (locked.get(name, ""), f"{root / 'lock.json'}")
        if not path.is_file():
            continue
        if not expected:
            lines.append(f"{path} was not fetched by stsbench and no digest of it is known: it cannot be checked")
        elif sha256_file(path) != expected:
            lines.append(f"{path} differs from the file known to {keeper} (sha256 {expected[:12]}…)")
    return lines


def read(item: Entry, root: Path) -> readers.Rows:
    """The pairs of a set whose files are all below `root`, in file order."""
    paths = [path_in(root, name) for name in item.files]
    if item.kind == "sts-year":
        return readers.read_sts_year(paths[0].parent, tuple(item.counts))
    rows = readers.Rows()
    for path in paths:
        if item.kind == "stsb":
            rows.extend(readers.read_stsb(path, item.task))
        elif item.kind == "sick":
            rows.extend(readers.read_sick(path, item.task))
        elif item.kind == "raw":
            rows.extend(readers.read_raw(path, item.task, low=1.0 if item.task == "SICK-R" else 0.0))
        else:
            raise DataError(f"{item.id} holds no scored pairs")
    return rows


def _complete(item: Entry, root: Path, place: str) -> None:
    absent = missing(item, root)
    if absent:
        more = f" ({len(absent)} of {len(item.files)} files of {item.id} are absent)" if len(item.files) > 1 else ""
        raise MissingDataError(f"{path_in(root, absent[0])} is missing{more}: {place} must hold all of {item.id}")


def _miscounted(item: Entry, rows: readers.Rows) -> list[str]:
    return [
        f"{item.id} {subset} holds {rows.subsets.count(subset)} pairs, the catalog says {count}"
        for subset, count in item.counts.items() if rows.subsets.count(subset) != count
    ]


def _fetched(item: Entry, offline: bool, places: list[str]) -> Found:
    from stsbench.data import fetch  # only when there is something to download

    looked = f"{item.id} ({item.view} view) is not in {' or '.join(places)}"
    if offline or os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on"):
        raise MissingDataError(f"{looked} and downloads are off (offline): {WAYS}")
    root = data_root()
    try:
        if item.hub:
            fetch.fetch_raw(item, root)
        else:
            fetch.fetch_archive(root)
    except DataError as error:
        raise MissingDataError(f"{looked} and cannot be fetched: {error}; {WAYS}") from error
    _complete(item, root, "the fetched archive")
    return Found(root, "user cache")
