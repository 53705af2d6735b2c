"""The sentences of the STS data as training text: ConSERT's, SG-OPT's and Mirror-BERT's, which hold those of test sets."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stsbench.data.fetch.sources import check, locate, path_in
from stsbench.data.sets.catalog import Entry, entry
from stsbench.data.sets.readers import lines_of, pair_of, read_sick, read_stsb
from stsbench.data.text.store import training_cache
from stsbench.errors import DataError
from stsbench.files import atomic_write


@dataclass(frozen=True)
class Collection:
    """A training text made of sets of the catalog. tested: the data whose test sentences are among its own."""

    sets: tuple[str, ...]
    tested: tuple[str, ...]


_YEARS = ("sts12", "sts13", "sts14", "sts15", "sts16")
_STSB = ("stsb/train", "stsb/dev", "stsb/test")
NAMED = {  # in the place of a file's name
    "sts-texts": Collection(
        (*(f"{year}/test" for year in _YEARS), *_STSB, "sick-r/train", "sick-r/trial", "sick-r/test"),
        (*_YEARS, "stsb", "sick-r", "sick-e"),
    ),
    # STS-B's pairs are drawn from those of the years: 9 to 62 % of the distinct sentences of STS12 to STS16 are among them
    "stsb-texts": Collection(_STSB, (*_YEARS, "stsb")),
    "stsb-train-texts": Collection(_STSB[:1], _YEARS),  # 35, 40, 52, 15 and 3 % of the years' sentences are among them
}
# A training split of the catalog -> what else is tested on its sentences. MTEB's SICK-R has the pairs of all splits.
TESTED_BY_SPLIT = {"stsb/train": NAMED["stsb-train-texts"].tested, "sick-r/train": ("sick-r/mteb",)}


@dataclass(frozen=True)
class STSTexts:
    """A file with a sentence a line. counts: of sentences, by the data's name, sts12 ... sick-r; warnings: on the files."""

    path: Path
    counts: dict[str, int]
    warnings: tuple[str, ...] = ()


def sts_texts(
    data_dir: Path | None = None, *, name: str = "sts-texts", sample: bool = False, offline: bool = False
) -> STSTexts:
    """Both sentences of every pair. sts-texts: STS12 to STS16 (the unscored ones, too), STS-B and SICK, all splits, 89,192;
    stsb-texts: STS-B, all splits, 17,256; stsb-train-texts: its training split, 11,498.

    In the order of the files, repetitions kept, runs of white space as one space. Written into the cache of training data.
    name: one of NAMED; data_dir, sample, offline: where the data are, as in a test.
    Raises DataError, one line, for data that are not here or cannot be read.
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
        for pair in _pairs(item, [path_in(location.root, name) for name in item.files]):
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


def _pairs(item: Entry, paths: list[Path]) -> Iterator[tuple[str, str]]:
    if item.kind == "sts-year":
        for path in paths:
            if path.name.startswith("STS.input."):
                yield from _unscored(path)
        return
    read = read_stsb if item.kind == "stsb" else read_sick
    for path in paths:
        rows = read(path)
        yield from zip(rows.first, rows.second, strict=True)


def _unscored(path: Path) -> Iterator[tuple[str, str]]:
    """Every pair of a subset, whether it has a score or not."""
    for number, line in enumerate(lines_of(path), start=1):
        cells = line.split("\t")
        if len(cells) != 2:
            raise DataError(f"{path}:{number}: expected two sentences with one tab between, found {len(cells) - 1} tabs")
        yield pair_of(cells[0], cells[1], path, number)
