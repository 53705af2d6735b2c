"""Location and loading of data sets: from --data-dir, else $STSBENCH_DATA, the user cache or a download; or the sample."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from stsbench.data.fetch.install import read_lock
from stsbench.data.sets import readers
from stsbench.data.sets.catalog import BY_ID, Entry, catalog, entries, entry, path_in
from stsbench.data.sets.readers import normalize_pair
from stsbench.data.sets.sets import LabelledSet, PairSet
from stsbench.errors import DataError, MissingDataError
from stsbench.files import atomic_write, data_root, sha256_file, training_cache
from stsbench.hub import downloads_are_off
from stsbench.options import takes

# Kind of labelled texts -> reader of one file. The kind "classes", with one file per class, is read by `read_class`.
LABELLED: dict[str, Callable[[Path, str], list[readers.Labelled]]] = {
    "sst": readers.read_sst, "trec": readers.read_trec, "mrpc": readers.read_mrpc,
    "sick-e": readers.read_sick_entailment,
}


@dataclass(frozen=True)
class Location:
    """A folder with every file of a set, and its name in records ("user cache", "sample", a path)."""

    root: Path
    origin: str


@takes()
@takes(renamed={"split": "the split in the id, as in load_data('stsb/train')"})
def load_data(
    set_id: str, *, data_dir: str | Path | None = None, text_version: str = "senteval", sample: bool = False,
    offline: bool = False, strict: bool = False,
) -> PairSet | LabelledSet:
    """Return a data set: scored pairs or labelled texts, by its catalog entry, or pairs that a task of mteb defines.

    text_version: "senteval" or "raw"; sample: use the package's small sample of the set. Where a file's sha256 differs from
    the catalog's, the set is `known=False` with a warning that names the file, or refused if `strict`. The sample has its
    own text version, hence its own digest, and is not compared with the catalog. Raises DataError for an unknown id, a
    missing or malformed file, and where data are not found and cannot be downloaded.

    >>> import stsbench
    >>> pairs = stsbench.load_data("stsb/test", sample=True)
    >>> len(pairs), pairs.gold.shape
    (42, (42,))
    """
    sample, data_dir = sample or text_version == "sample", None if data_dir is None else Path(data_dir)
    if set_id in BY_ID:
        from stsbench.data.fetch.mteb import load_pairs

        if sample:
            raise MissingDataError(f"the sample holds nothing of {BY_ID[set_id].task}: leave --sample out")
        return load_pairs(set_id, data_dir=data_dir, offline=offline, strict=strict)
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
    """Return the first location that holds any of the set's files, or the downloaded set. With `data_dir` or `sample` only
    that location is searched.

    Raises DataError naming a missing path, also where the location holds only part of the set: locations are never mixed.
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
    """Return the path of the training text `name`, given without a folder, or None and a hint on how to fetch it.

    The file is searched in train/ of `data_dir`, $STSBENCH_DATA and the user cache; a training text of the catalog is
    downloaded unless `offline`. Raises DataError where a download breaks off.
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
        from stsbench.data.fetch.download import NoConnectionError, fetch_file

        try:
            fetch_file(text, data_root())
            return data_root() / text.path, ""
        except NoConnectionError:
            pass
    looked = f"nor are they in train/ of {' or '.join(map(str, folders))}"
    return None, f", or fetch the published file by `stsbench data fetch {name}` ({looked})"


def missing(item: Entry, root: Path) -> list[str]:
    """Return the names of the set's files that are not below `root`."""
    return [name for name in item.files if not path_in(root, name).is_file()]


def check(item: Entry, root: Path) -> list[str]:
    """Return a warning for each file of the set whose sha256 differs from the catalog or, for raw text, lock.json."""
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
    """Return a set whose files are all below `root`, in file order; `text_version` replaces the entry's own."""
    paths = [path_in(root, name) for name in item.files]
    named = list(item.counts) if len(item.counts) == len(paths) else [item.task] * len(paths)
    facts: dict[str, Any] = {"id": item.id, "task": item.task, "text_version": text_version or item.text_version}
    if item.kind == "classes" or item.kind in LABELLED:
        items: list[readers.Labelled] = []
        for number, (path, split) in enumerate(zip(paths, named, strict=True)):
            # As in SentEval, the first of the two class files has label 1: positive texts, and SUBJ's objective ones.
            classes = item.kind == "classes"
            items += readers.read_class(path, 1 - number) if classes else LABELLED[item.kind](path, split)
        one, two, labels, splits = zip(*items, strict=True) if items else ((), (), (), ())
        return LabelledSet(**facts, first=one, second=two if any(two) else (), labels=np.array(labels, dtype=np.int64),
                           splits=splits)
    rows: list[readers.ScoredPair] = []
    if item.kind == "sts-year":
        rows = readers.read_sts_year(paths[0].parent, tuple(item.counts))
    else:
        for path, subset in zip(paths, named, strict=True):
            if item.kind in ("stsb", "sick"):
                rows += (readers.read_stsb if item.kind == "stsb" else readers.read_sick)(path, subset)
            else:
                rows += readers.read_raw(path, subset, low=1.0 if item.task == "SICK-R" else 0.0)
    first, second, gold, subsets = zip(*rows, strict=True) if rows else ((), (), (), ())
    return PairSet(**facts, first=first, second=second, gold=np.array(gold, dtype=np.float64), subsets=subsets)


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


def _fetched(item: Entry, offline: bool, folders: list[str]) -> Location:
    from stsbench.data.fetch.download import WAYS, fetch_archive, fetch_file

    looked = f"{item.id} ({item.text_version} text) is not in {' or '.join(folders)}"
    if downloads_are_off(offline):
        raise MissingDataError(f"{looked} and downloads are off (offline): {WAYS}")
    root = data_root()
    try:
        if item.hub:
            fetch_file(item, root)
        else:
            fetch_archive(root)
    except DataError as error:
        raise MissingDataError(f"{looked} and cannot be fetched: {error}; {WAYS}") from error
    _complete(item, root, "the fetched archive")
    return Location(root, "user cache")


@dataclass(frozen=True)
class SetState:
    """State of a set in a folder: "ok", "changed" (files differ), "unreadable" or "missing" (some files are absent)."""

    id: str
    text_version: str
    state: str
    pairs: int | None  # number of pairs or labelled texts; None for a set that is missing or unreadable
    digest: str
    notes: tuple[str, ...] = ()


def verify(root: Path, ids: Sequence[str] = ()) -> list[SetState]:
    """Return the states below `root` of all catalog sets, or of `ids`, in every text version. Faulty data do not raise."""
    return [_state(item, root) for item in entries() if not ids or item.id in ids]


def _state(item: Entry, root: Path) -> SetState:
    absent = missing(item, root)
    if absent:
        more = f" and {len(absent) - 1} more" if len(absent) > 1 else ""
        return SetState(item.id, item.text_version, "missing", None, "", (f"{root / absent[0]}{more}",))
    differing = tuple(check(item, root))
    try:
        data = read(item, root)
    except DataError as error:
        return SetState(item.id, item.text_version, "unreadable", None, "", (str(error),))
    digest = data.digest
    if item.digest and digest != item.digest and not differing:
        differing = (f"{item.id} reads with digest {digest[:12]}…, the catalog says {item.digest[:12]}…",)
    return SetState(item.id, item.text_version, "changed" if differing else "ok", len(data), digest, differing)


@dataclass(frozen=True)
class Collection:
    """A training text made of sets of the catalog. tested: the data whose test sentences it contains."""

    sets: tuple[str, ...]
    tested: tuple[str, ...]


_YEARS = ("sts12", "sts13", "sts14", "sts15", "sts16")
_STSB = ("stsb/train", "stsb/dev", "stsb/test")
NAMED = {  # name, to be used in place of a file's name -> the training text
    "sts-texts": Collection(
        (*(f"{year}/test" for year in _YEARS), *_STSB, "sick-r/train", "sick-r/trial", "sick-r/test"),
        (*_YEARS, "stsb", "sick-r", "sick-e"),
    ),
    # STS-B is drawn from the years' pairs: its texts contain 9 to 62 % of the distinct sentences of STS12 to STS16.
    "stsb-texts": Collection(_STSB, (*_YEARS, "stsb")),
    "stsb-train-texts": Collection(_STSB[:1], _YEARS),  # contains 35, 40, 52, 15 and 3 % of the years' sentences
}
# A training split of the catalog -> what else is tested on its sentences. MTEB's SICK-R has the pairs of all splits.
TESTED_BY_SPLIT = {"stsb/train": NAMED["stsb-train-texts"].tested, "sick-r/train": ("sick-r/mteb",)}


@dataclass(frozen=True)
class STSTexts:
    """A file with one sentence per line. counts: data, sts12 ... sick-r -> number of sentences; warnings: on its sources."""

    path: Path
    counts: dict[str, int]
    warnings: tuple[str, ...] = ()


def sts_texts(
    data_dir: Path | None = None, *, name: str = "sts-texts", sample: bool = False, offline: bool = False
) -> STSTexts:
    """Write both sentences of every pair to a file in the cache of training data and return it. sts-texts: STS12 to STS16,
    unscored pairs included, STS-B and SICK, all splits, 89,192 sentences; stsb-texts: STS-B, all splits, 17,256;
    stsb-train-texts: its training split, 11,498. They keep the files' order and repetitions; white space becomes one space.

    name: one of NAMED; data_dir, sample, offline: as for `load_data`. Raises DataError, one line, for data that are missing
    or cannot be read.
    Sources: Yan et al. (2021), ConSERT, section 4.1, and the counts of its Table 1; training.py of Kim et al. (2021).
    """
    texts: list[str] = []
    counts: dict[str, int] = {}
    warnings: list[str] = []
    for set_id in NAMED[name].sets:
        item = entry(set_id)
        location = locate(item, data_dir=data_dir, sample=sample, offline=offline)
        warnings += [] if sample else check(item, location.root)
        before = len(texts)
        for pair in _read_pairs(item, [path_in(location.root, name) for name in item.files]):
            texts += pair
        family = set_id.partition("/")[0]
        counts[family] = counts.get(family, 0) + len(texts) - before
    content = "".join(f"{text}\n" for text in texts)
    folder = training_cache() / "sts-texts" / hashlib.sha256(content.encode()).hexdigest()[:16]
    path = folder / f"{name}{'-sample' if sample else ''}.txt"
    if not path.is_file():
        with atomic_write(path) as stream:
            stream.write(content)
    return STSTexts(path, counts, tuple(warnings))


def _read_pairs(item: Entry, paths: list[Path]) -> Iterator[tuple[str, str]]:
    if item.kind == "sts-year":
        for path in paths:
            if path.name.startswith("STS.input."):
                yield from (normalize_pair(*cells, path, number) for number, cells in readers.sts_cells(path))
        return
    read = readers.read_stsb if item.kind == "stsb" else readers.read_sick
    for path in paths:
        yield from (row[:2] for row in read(path))
