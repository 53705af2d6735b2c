"""Leakage of test sets: their texts in a training file, exact, up to case and punctuation, or as near duplicates; and
sentences that sets of scored pairs share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stsbench.data.own.overlap import KnownTexts, Shared, overlapping_pairs, sentences, shared_texts
from stsbench.data.own.table import arrow_rows, saved_files
from stsbench.data.sets.lines import numbered_lines
from stsbench.data.sets.sentences import normalise
from stsbench.data.sets.sets import DataSet
from stsbench.data.text.rows import READERS, USUAL, delimiters, file_format, separated
from stsbench.errors import DataError, StsbenchError
from stsbench.metrics.bootstrap import distinct

NEAR = 0.7  # least Jaccard similarity of character 4-grams of near duplicates
_GRAM = 4
_HASHES, _BANDS = 64, 16  # texts whose Jaccard is .7 share a band in 99 % of cases, those of .5 in 64 %
Words = NDArray[np.uint64]


@dataclass(frozen=True)
class OverlapReport:
    """Counts of a set's distinct normalised sentences and of its pairs; a user's repeated pairs count once."""

    target: str
    others: tuple[str, ...]
    sentences: int  # distinct in target
    shared: int  # texts that any other set holds, too
    by_other: dict[str, int]  # texts that this one other set holds, too
    pairs: int
    touched_pairs: int  # pairs with at least one shared sentence

    @property
    def percent(self) -> float:
        """Return shared sentences in percent of the target's distinct sentences; 0.0 for a set without sentences."""
        return 100.0 * self.shared / self.sentences if self.sentences else 0.0


def overlap(target: DataSet, others: Sequence[DataSet]) -> OverlapReport:
    """Return the overlap of `target`'s distinct sentences with `others`; sentences of punctuation alone do not count.

    Raises DataError for a set that does not hold scored pairs.
    """
    mask = overlapping_pairs(target, others)
    sentences_of_target = sentences([target])
    common_with = {other.id: sentences_of_target & sentences([other]) for other in others}
    shared: set[str] = set().union(*common_with.values())
    return OverlapReport(
        target=target.id, others=tuple(common_with), sentences=len(sentences_of_target), shared=len(shared),
        by_other={name: len(common) for name, common in common_with.items()}, pairs=distinct(target.items),
        touched_pairs=distinct(target.items[mask]),
    )


def leakage(path: Path, tests: Sequence[DataSet], *, near: float | None = NEAR) -> list[Shared]:
    """Return what a training file shares with each of `tests`, of which the split test counts where they have one.

    path: a .txt, .csv, .tsv, .jsonl or .parquet file, or a folder that `datasets` saved, every text of a row being compared.
    near: the Jaccard of character 4-grams, above 0 and at most 1, of near duplicates, candidates for which come from MinHash
    (Broder 1997; 64 hashes in 16 bands); None: they are not looked for. Raises DataError naming the file and line of what
    cannot be read.
    """
    if near is None:
        return shared_texts(_training_texts(path), tests)
    if not 0 < near <= 1:
        raise StsbenchError(f"near must be above 0 and at most 1, not {near}")
    return shared_texts(_training_texts(path), tests, partial(NearTexts, near=near))


def _training_texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of every text of a file, without its header. Raises DataError where no row holds a text."""
    rows = texts = 0
    for line, cells in _training_rows(path):
        rows += 1
        for text in filter(None, map(str.strip, cells)):
            texts += 1
            yield line, text
    if rows and not texts:
        raise DataError(f"{path}: no row holds a text: it must be .txt, a text a line, or a table of texts")


def _training_rows(path: Path) -> Iterator[tuple[int, Iterable[str]]]:
    """Yield (line, texts) of every row."""
    if path.is_dir() or path.suffix.lower() == ".parquet":
        rows = arrow_rows(path, saved_files(path) if path.is_dir() else [path], mark=[])
        for number, (location, row) in enumerate(rows, 1):
            if lists := next((name for name, cell in row.items() if cell == []), None):
                raise DataError(f"{location}: the column {lists} holds lists or records, whose texts are not compared: give "
                                "each text a column of its own, or leave it out")
            yield number, _texts_in(list(row.values()))
        return
    kind = file_format(path)
    marks = delimiters(path, USUAL[kind]) if kind in USUAL else []
    lines = numbered_lines(path)
    records = READERS[kind](lines, path) if not marks or marks[0] == USUAL[kind] else separated(lines, path, marks[0])
    width = 0
    for line, record in records:
        if kind in USUAL and record and width == 1 < len(record):
            raise DataError(f"{path}:{line}: {len(record)} fields, but the first line has one: put texts between quotes")
        # A header's names are words; where the first line holds sentences, the file has none.
        if kind not in USUAL or width or any(" " in cell.strip() for cell in record or ()):
            yield line, _texts_in(record)
        width = width or len(record or ())


def _texts_in(value: Any) -> Iterator[str]:
    """Yield the texts of a line, of a row's cells, and of what JSON nests in them."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts_in(part)


class NearTexts(KnownTexts):
    """Test texts that are looked up by near duplicates, too. near: the least Jaccard of their character 4-grams."""

    def __init__(self, sets: Sequence[list[str]], near: float) -> None:
        super().__init__(sets)
        self.near = near
        numbers, bands = _bands(self.plain)
        self.bands = []
        for keys in bands.T:
            order = np.argsort(keys, kind="stable")
            self.bands.append((keys[order], numbers[order]))

    def matches(self, texts: Sequence[str]) -> Iterator[tuple[int, int, int, float]]:
        """Yield (position in `texts`, number of a test text, index into KINDS, similarity), each pair once."""
        yield from super().matches(texts)
        yield from self._near([normalise(text) for text in texts])

    def _near(self, plain: Sequence[str]) -> Iterator[tuple[int, int, int, float]]:
        numbers, bands = _bands(plain)
        candidates: set[tuple[int, int]] = set()
        for keys, (known, tests) in zip(bands.T, self.bands, strict=True):
            first, last = (np.searchsorted(known, keys, side) for side in ("left", "right"))
            for i in np.flatnonzero(last > first):
                candidates.update((int(numbers[i]), int(test)) for test in tests[first[i] : last[i]])
        for at, test in sorted(candidates):
            one, other = plain[at], self.plain[test]
            if one != other and (similarity := jaccard(one, other)) >= self.near:
                yield at, test, 2, similarity


def jaccard(one: str, other: str) -> float:
    """Return the Jaccard similarity of two texts' character 4-grams."""
    first, second = ({text[i : i + _GRAM] for i in range(len(text) - _GRAM + 1)} for text in (one, other))
    return len(first & second) / len(first | second) if first or second else 0.0


def _bands(texts: Sequence[str]) -> tuple[NDArray[np.int64], Words]:
    """Return int64 (m,) which texts have 4-grams, and uint64 (m, bands): equal where two texts share a band's least
    hashes."""
    numbers = np.array([number for number, text in enumerate(texts) if len(text) >= _GRAM], dtype=np.int64)
    if not len(numbers):
        return numbers, np.empty((0, _BANDS), dtype=np.uint64)
    grams, starts = _grams([texts[number] for number in numbers.tolist()])
    draw = np.random.default_rng(0)
    factors, shifts = (draw.integers(0, 2**63, _HASHES, dtype=np.uint64) * 2 + 1 for _ in range(2))
    least = np.stack([np.minimum.reduceat((grams * factor + shift) >> np.uint64(32), starts)
                      for factor, shift in zip(factors, shifts, strict=True)], axis=1)
    keys = np.zeros((len(numbers), _BANDS), dtype=np.uint64)
    for rows in np.split(least.reshape(len(numbers), _BANDS, -1), _HASHES // _BANDS, axis=2):
        keys = keys * np.uint64(0x9E3779B97F4A7C15) + rows[:, :, 0] + np.uint64(1)
    return numbers, keys


def _grams(texts: Sequence[str]) -> tuple[Words, NDArray[np.int64]]:
    """Return a number for each 4-gram of all texts, one text after the other, and where each text's begin."""
    letters = np.frombuffer("".join(texts).encode("utf-32-le"), dtype="<u4").astype(np.uint64)
    lengths = np.array([len(text) for text in texts], dtype=np.int64)
    every = np.zeros(len(letters) - _GRAM + 1, dtype=np.uint64)
    for step in range(_GRAM):
        every = every * np.uint64(1_000_003) + letters[step : len(letters) - _GRAM + 1 + step]
    every ^= every >> np.uint64(29)
    ends = np.cumsum(lengths)
    inside = np.ones(len(every), dtype=bool)
    for back in range(1, _GRAM):  # a 4-gram that reaches into the next text is none
        across = ends[:-1] - back
        inside[across[(across >= 0) & (across < len(every))]] = False
    counts = lengths - _GRAM + 1
    return every[inside], np.concatenate([[0], np.cumsum(counts)[:-1]])
