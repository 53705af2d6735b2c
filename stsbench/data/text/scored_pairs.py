"""A user's own scored sentence pairs: a table with the columns sentence1, sentence2, score, and perhaps subset."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from stsbench.data.sets.lines import numbered_lines
from stsbench.data.sets.readers import number_of
from stsbench.data.sets.sets import PairSet, path_name
from stsbench.data.text.rows import READERS, file_format
from stsbench.errors import DataError

COLUMNS = ("sentence1", "sentence2", "score")
SUBSET = "subset"


def read_scored_pairs(path: Path) -> PairSet:
    """The pairs of a .csv, .tsv or .jsonl file, with text version "own"; its id is "own:" and the file's name, never a path.

    Texts are taken as they stand, without white space around them; scores are finite numbers in any unit, the higher the
    more alike. Without a column subset the pairs are one set. Raises DataError naming file and line.
    """
    if (kind := file_format(path)) == "text":
        raise DataError(f"{path}: own pairs are a .csv, .tsv or .jsonl file with the columns {', '.join(COLUMNS)}")
    first, second, gold, subsets = list[str](), list[str](), list[float](), list[str]()
    for place, fields in _rows(path, kind):
        for texts, column in ((first, "sentence1"), (second, "sentence2"), (subsets, SUBSET)):
            text = fields.get(column, path.stem if column == SUBSET else None)
            if not isinstance(text, str) or not text.strip():
                raise DataError(f"{place}: {column} {'is empty' if isinstance(text, str) else 'must be a text'}")
            texts.append(text.strip())
        if not math.isfinite(score := number_of(fields["score"], place)):
            raise DataError(f"{place}: the score {fields['score']!r} is not a finite number")
        gold.append(score)
    if not gold:
        raise DataError(f"{path} holds no pair")
    return PairSet(
        id=f"own:{path_name(path)}", task=path_name(path), text_version="own", origin=str(path), first=tuple(first),
        second=tuple(second), gold=np.array(gold), subsets=tuple(subsets),
    )  # fmt: skip


def _rows(path: Path, kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """("FILE:LINE", column -> value) of each row; an empty line is none."""
    header: list[str] | None = None
    for number, record in READERS[kind](numbered_lines(path), path):
        place = f"{path}:{number}"
        if record is None:
            continue
        if kind == "jsonl":
            fields = record
        elif header is None:
            header = [name.strip() for name in record]
            if len(set(header)) < len(header):
                raise DataError(f"{place}: the header names a column twice")
            _check(header, place)
            continue
        elif len(record) != len(header):
            raise DataError(f"{place}: {len(record)} fields, but the header names {len(header)}")
        else:
            fields = dict(zip(header, record, strict=True))
        _check(fields, place)
        yield place, fields


def _check(names: Any, place: str) -> None:
    if lacking := [name for name in COLUMNS if name not in names]:
        raise DataError(
            f"{place}: no column {' or '.join(lacking)} (there are {', '.join(map(repr, names))}): own pairs need "
            f"{', '.join(COLUMNS)}"
        )
