"""A user's own scored sentence pairs: a table with the columns sentence1, sentence2, score, and perhaps subset."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from stsbench.data.sets.readers import json_object
from stsbench.data.sets.relevance import numbered_lines
from stsbench.data.sets.sets import PairSet
from stsbench.errors import DataError

COLUMNS = ("sentence1", "sentence2", "score")
SUBSET = "subset"


def read_scored_pairs(path: Path) -> PairSet:
    """The pairs of a .csv, .tsv or .jsonl file, with text version "own"; its id is "own:" and the file's name, never a path.

    Texts are taken as they stand, without white space around them; scores are finite numbers in any unit, the higher the
    more alike. Without a column subset the pairs are one set. Raises DataError naming file and line.
    """
    if path.suffix.lower() not in (".csv", ".tsv", ".jsonl"):
        raise DataError(f"{path}: own pairs are a .csv, .tsv or .jsonl file with the columns {', '.join(COLUMNS)}")
    first, second, gold, subsets = list[str](), list[str](), list[float](), list[str]()
    for place, fields in _rows(path):
        for texts, column in ((first, "sentence1"), (second, "sentence2"), (subsets, SUBSET)):
            text = fields.get(column, path.stem if column == SUBSET else None)
            if not isinstance(text, str) or not text.strip():
                raise DataError(f"{place}: {column} {'is empty' if isinstance(text, str) else 'must be a text'}")
            texts.append(text.strip())
        gold.append(_number(fields["score"], place))
    if not gold:
        raise DataError(f"{path} holds no pair")
    return PairSet(
        id=f"own:{path.name}", task=path.name, text_version="own", origin=str(path), first=tuple(first),
        second=tuple(second), gold=np.array(gold), subsets=tuple(subsets),
    )  # fmt: skip


def _rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """("FILE:LINE", column -> value) of each row; an empty line is none."""
    if path.suffix.lower() == ".jsonl":
        for number, line in numbered_lines(path):
            if line.strip():
                item = json_object(line, path, number)
                _check(item, f"{path}:{number}")
                yield f"{path}:{number}", item
        return
    header: list[str] | None = None
    for number, record in _records(path):
        place = f"{path}:{number}"
        if not any(record):
            continue
        if header is None:
            header = [name.strip() for name in record]
            if len(set(header)) < len(header):
                raise DataError(f"{place}: the header names a column twice")
            _check(header, place)
            continue
        if len(record) != len(header):
            raise DataError(f"{place}: {len(record)} fields, but the header names {len(header)}")
        yield place, dict(zip(header, record, strict=True))


def _records(path: Path) -> Iterator[tuple[int, list[str]]]:
    """(line on which it starts, fields) of each record. Quotes in a .tsv are text; in a .csv they may hold line ends."""
    if path.suffix.lower() == ".tsv":
        yield from ((number, line.split("\t")) for number, line in numbered_lines(path))
        return
    reader = csv.reader((f"{line}\n" for _, line in numbered_lines(path)), strict=True)
    while True:
        start = reader.line_num + 1
        try:
            record = next(reader, None)
        except csv.Error as error:
            raise DataError(f"{path}:{start}: not valid CSV, a quote that is never closed for example: {error}") from error
        if record is None:
            return
        yield start, record


def _check(names: Any, place: str) -> None:
    if lacking := [name for name in COLUMNS if name not in names]:
        raise DataError(
            f"{place}: no column {' or '.join(lacking)} (there are {', '.join(map(repr, names))}): own pairs need "
            f"{', '.join(COLUMNS)}"
        )


def _number(value: object, place: str) -> float:
    try:
        if isinstance(value, bool) or not isinstance(value, str | int | float) or "_" in str(value):
            raise ValueError  # Python reads "1_0" as ten
        number = float(value)
    except (ValueError, OverflowError):
        raise DataError(f"{place}: the score {value!r} is not a number") from None
    if not math.isfinite(number):
        raise DataError(f"{place}: the score {value!r} is not a finite number")
    return number
