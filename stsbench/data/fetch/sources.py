"""Finding a set: --data-dir, then $STSBENCH_DATA, then the user cache, then a download; or the packaged sample."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from stsbench.data.fetch.lock import read_lock
from stsbench.data.sets import labelled, readers
from stsbench.data.sets.catalog import Entry, catalog, entry
from stsbench.data.sets.sets import LabelledSet, PairSet
from stsbench.errors import DataError, MissingDataError
from stsbench.files import cache_root, sha256_file

WAYS = (
    "give the data by --data-dir DIR (a folder with SentEval's downstream/), "
    "by $STSBENCH_DATA or the user cache (`stsbench data fetch`; without network `stsbench data fetch --from BUNDLE`), "
    "or use --sample"
)

# Kinds of labelled texts -> reader of one file; "classes" is read file by file, one per class.
LABELLED: dict[str, Callable[[Path, str], labelled.Items]] = {
    "sst": labelled.read_sst, "trec": labelled.read_trec, "mrpc": labelled.read_mrpc,
    "sick-e": labelled.read_sick_entailment,
}


@dataclass(frozen=True)
class Location:
    """A folder with every file of a set, and its name in records ("user cache", "sample", a path)."""

    root: Path
    origin: str


def load(
    set_id: str, *, data_dir: Path | None = None, text_version: str = "senteval", sample: bool = False,
    offline: bool = False, strict: bool = False,
) -> PairSet | LabelledSet:
    """Read one set: scored pairs, or labelled texts, as its catalog entry says.

    A file whose sha256 is not the catalog's makes the set `known=False` with a warning that names it; `strict` refuses.
    The sample has its own text version, hence its own digest, and is compared with nothing.
    Raises DataError for an unknown id, a missing or malformed file, or nothing found and no network.
    """
    sample = sample or text_version == "sample"
    item = entry(set_id, "senteval" if sample else text_version)
    location = locate(item, data_dir=data_dir, sample=sample, offline=offline)
    warnings = [] if sample else check(item, location.root)
    if strict and warnings:
        raise DataError(f"{warnings[0]} (refused: --strict-data)")
    data = read(item, location.root, text_version="sample" if sample else item.text_version)
    if warnings:
        warnings += _miscounted(item, data)
    return replace(data, origin=location.origin, known=not warnings, warnings=tuple(warnings))


def locate(
    item: Entry, *, data_dir: Path | None = None, sample: bool = False, offline: bool = False
) -> Location:
    """The first place that holds all of the set's files; an explicit `data_dir` or `sample` is the only place searched.

    Raises DataError naming the missing path, also where a place has only part of the set: places are never mixed.
    """
    if sample:
        root = Path(__file__).resolve().parents[1] / "sample"
        _complete(item, root, "the sample data in the package")
        return Location(root, "sample")
    if data_dir is not None:
        if not data_dir.is_dir():
            raise MissingDataError(f"--data-dir {data_dir}: no such folder")
        _complete(item, data_dir, "--data-dir")
        return Location(data_dir, str(data_dir))
    folders: list[tuple[Path, str]] = []
    if configured := os.environ.get("STSBENCH_DATA"):
        if not Path(configured).is_dir():
            raise DataError(f"$STSBENCH_DATA names {configured}, which is not a folder")
        folders.append((Path(configured), configured))
    folders.append((data_root(), "user cache"))
    for root, origin in folders:
        if len(missing(item, root)) < len(item.files):
            _complete(item, root, origin)
            return Location(root, origin)
    return _fetched(item, offline, [str(root) for root, _ in folders])


def training_text(name: str, *, data_dir: Path | None = None, offline: bool = False) -> tuple[Path | None, str]:
    """A file of training text called `name`, without a folder, and how to get it where there is none.

    It is looked for in train/ of `data_dir`, $STSBENCH_DATA and the user cache; one that the catalog knows is fetched unless
    `offline`. Raises DataError where a download breaks off.
    """
    if not name or Path(name).name != name:
        return None, ""
    configured = os.environ.get("STSBENCH_DATA")
    folders = [*filter(None, (data_dir, Path(configured) if configured else None)), data_root()]
    for root in folders:
        if (path := root / "train" / name).is_file():
            return path, ""
    text = catalog().training.get(name)
    if text is None:
        return None, ""
    if not downloads_are_off(offline):
        from stsbench.data.fetch.download import NoConnectionError
        from stsbench.data.fetch.fetch import fetch_training

        try:
            fetch_training(text, data_root())
            return data_root() / text.path, ""
        except NoConnectionError:
            pass
    looked = f"nor are they in train/ of {' or '.join(map(str, folders))}"
    return None, f", or fetch the published file by `stsbench data fetch {name}` ({looked})"


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
    """One line for every present file of the set whose sha256 is not the catalog's (for raw text: lock.json's)."""
    lines = []
    locked = read_lock(root) if item.text_version == "raw" else {}
    for name, known in item.files.items():
        path = path_in(root, name)
        expected, keeper = (known, "the catalog") if known else (locked.get(name, ""), f"{root / 'lock.json'}")
        if not path.is_file():
            continue
        if not expected:
            lines.append(f"{path} was not fetched by stsbench and its digest is unknown: it cannot be checked")
        elif sha256_file(path) != expected:
            lines.append(f"{path} differs from the file known to {keeper} (sha256 {expected[:12]}…)")
    return lines


def read(item: Entry, root: Path, text_version: str | None = None) -> PairSet | LabelledSet:
    """A set whose files are all below `root`, in file order; `text_version` replaces the entry's own."""
    paths = [path_in(root, name) for name in item.files]
    named = list(item.counts) if len(item.counts) == len(paths) else [item.task] * len(paths)
    if item.kind == "classes" or item.kind in LABELLED:
        return _labelled(item, zip(paths, named, strict=True), text_version or item.text_version)
    rows = readers.PairRows()
    if item.kind == "sts-year":
        rows = readers.read_sts_year(paths[0].parent, tuple(item.counts))
    else:
        for path, subset in zip(paths, named, strict=True):
            rows.extend(_pairs(item, path, subset))
    return PairSet(
        id=item.id, task=item.task, text_version=text_version or item.text_version,
        first=tuple(rows.first), second=tuple(rows.second),
        gold=np.array(rows.gold, dtype=np.float64), subsets=tuple(rows.subsets),
    )


def _pairs(item: Entry, path: Path, subset: str) -> readers.PairRows:
    if item.kind == "stsb":
        return readers.read_stsb(path, subset)
    if item.kind == "sick":
        return readers.read_sick(path, subset)
    return readers.read_raw(path, subset, low=1.0 if item.task == "SICK-R" else 0.0)


def _labelled(item: Entry, files: Iterable[tuple[Path, str]], text_version: str) -> LabelledSet:
    items = labelled.Items()
    for number, (path, split) in enumerate(files):
        # SentEval gives the first of two class files label 1: positive texts, and SUBJ's objective ones.
        classes = item.kind == "classes"
        items.extend(labelled.read_class(path, 1 - number) if classes else LABELLED[item.kind](path, split))
    return LabelledSet(
        id=item.id, task=item.task, text_version=text_version, first=tuple(items.first), second=tuple(items.second),
        labels=np.array(items.labels, dtype=np.int64), splits=tuple(items.splits),
    )


def _complete(item: Entry, root: Path, origin: str) -> None:
    absent = missing(item, root)
    if absent:
        more = f" ({len(absent)} of {len(item.files)} files of {item.id} are absent)" if len(item.files) > 1 else ""
        raise MissingDataError(f"{path_in(root, absent[0])} is missing{more}: {origin} must hold all of {item.id}")


def _miscounted(item: Entry, data: PairSet | LabelledSet) -> list[str]:
    counts, what = data.counts, "pairs" if isinstance(data, PairSet) else "items"
    if item.kind == "classes":
        ones = int(np.count_nonzero(data.labels)) if isinstance(data, LabelledSet) else 0
        counts = dict(zip(item.counts, (ones, len(data) - ones), strict=True))
    return [
        f"{item.id} {part} holds {counts.get(part, 0)} {what}, the catalog says {count}"
        for part, count in item.counts.items() if counts.get(part, 0) != count
    ]


_OFFLINE: ContextVar[bool] = ContextVar("offline", default=False)


@contextmanager
def no_downloads(offline: bool) -> Iterator[None]:
    """A block in which nothing is fetched if `offline`: for readers that are not told, such as a protocol's own."""
    token = _OFFLINE.set(offline or _OFFLINE.get())
    try:
        yield
    finally:
        _OFFLINE.reset(token)


def downloads_are_off(offline: bool) -> bool:
    """Whether nothing may be fetched: --offline, a block of `no_downloads`, or the Hub client's $HF_HUB_OFFLINE."""
    return offline or _OFFLINE.get() or os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on")


def _fetched(item: Entry, offline: bool, folders: list[str]) -> Location:
    from stsbench.data.fetch import fetch

    looked = f"{item.id} ({item.text_version} text) is not in {' or '.join(folders)}"
    if downloads_are_off(offline):
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
    return Location(root, "user cache")
