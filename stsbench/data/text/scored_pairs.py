"""A user's own scored sentence pairs: a table with two columns of sentences, one of scores, and perhaps one of subsets."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stsbench.data.sets.lines import check_text, numbered_lines, without_end
from stsbench.data.sets.readers import number_of
from stsbench.data.sets.sets import PairSet, named_by_content, path_name
from stsbench.data.text.rows import READERS, separated
from stsbench.errors import DataError

COLUMNS = ("sentence1", "sentence2", "score")
SUBSET = "subset"
# What else the two columns of sentences, and that of the scores, are called. Case, _, - and spaces are ignored.
_SENTENCES = [(f"{word}{one}", f"{word}{other}") for word in ("sentence", "sent", "text", "s", "question")
              for one, other in (("1", "2"), ("a", "b"), ("0", "1"))]
_SCORES = ("score", "similarity", "similarityscore", "goldscore", "gold", "relatedness", "relatednessscore", "rating",
           "label")
_USUAL = "sentence1, sentence2, score; or text1, text2, label; sent_1, sent_2, similarity and the like"
_DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
_KINDS = {".csv": ",", ".tsv": "\t", ".jsonl": "jsonl", ".json": "jsonl", ".parquet": "parquet"}
_ALL = "all"  # the one subset of pairs without subsets

Rows = Iterator[tuple[str, dict[str, Any]]]  # ("FILE:LINE", column -> value)


def read_scored_pairs(path: Path) -> PairSet:
    """The pairs of a .csv, .tsv, .jsonl or .parquet file, or of a folder that `datasets` saved, with text version "own".

    Its task is the file's name, never a path, its id a digest of the pairs. Texts are taken as they stand, without white
    space around them; scores are finite numbers in any unit, the higher the more alike. Without a column subset the pairs
    are one set. What was not as in COLUMNS (delimiter, names, no header) is among the warnings. Raises DataError
    naming file and line.
    """
    warnings: list[str] = []
    first, second, gold, subsets = list[str](), list[str](), list[float](), list[str]()
    names: dict[str, str] | None = None
    for location, fields in _rows(path, warnings):
        if names is None:
            names = _names(list(fields), location)
            if changed := [f"{column} is {name!r}" for column, name in names.items() if column != name]:
                warnings.append(f"{path_name(path)}: {', '.join(changed)}")
        _check(fields, names, location)
        for texts, column in ((first, "sentence1"), (second, "sentence2"), (subsets, SUBSET)):
            text = fields.get(names.get(column, column), _ALL if column == SUBSET else None)
            if not isinstance(text, str) or not text.strip():
                raise DataError(f"{location}: {column} {'is empty' if isinstance(text, str) else 'must be a text'}")
            check_text(text, location, column)
            texts.append(text.strip())
        score = fields[names["score"]]
        if names["score"].lower() == "label" and isinstance(score, str) and not _is_number(score):
            raise DataError(f"{location}: the label {score!r} is not a number: {_UNSUPPORTED}")
        if not math.isfinite(value := number_of(score, location)):
            raise DataError(f"{location}: the score {score!r} is not a finite number")
        gold.append(value)
    if not gold:
        raise DataError(f"{path} holds no pair")
    return named_by_content(PairSet(
        id="", task=path_name(path), text_version="own", origin=str(path), warnings=tuple(warnings), first=tuple(first),
        second=tuple(second), gold=np.array(gold), subsets=tuple(subsets),
    ))


_UNSUPPORTED = ("labelled texts of your own cannot be measured yet, only scored pairs (sts:FILE) and queries with a corpus "
                "(retrieval:FOLDER)")


def _plain(name: str) -> str:
    return "".join(letter for letter in name.strip().lower() if letter not in "_- ")


def _names(header: Sequence[str], location: str, strict: bool = True) -> dict[str, str]:
    """sentence1, sentence2, score (and subset) -> the columns that hold them; {} where there are none and not `strict`."""
    plain = {_plain(name): name for name in header}
    columns = {column: column for column in (*COLUMNS, SUBSET) if column in header}
    if not {"sentence1", "sentence2"} <= set(columns):
        pairs = [pair for pair in _SENTENCES if set(pair) <= set(plain)]
        if len(pairs) == 1 or (pairs and pairs[0] == ("sentence1", "sentence2")):
            columns |= {"sentence1": plain[pairs[0][0]], "sentence2": plain[pairs[0][1]]}
    if "score" not in columns:
        scores = [name for name in _SCORES if name in plain]
        if len(scores) == 1:
            columns["score"] = plain[scores[0]]
        elif scores and strict:
            columns_of_scores = " and ".join(repr(plain[name]) for name in scores)
            raise DataError(f"{location}: which column holds the scores, {columns_of_scores}? call it score")
    lacking = [column for column in COLUMNS if column not in columns]
    if lacking and not strict:
        return {}
    if lacking:
        labelled = "score" in columns and set(lacking) == {"sentence1", "sentence2"} and {"text", "sentence"} & set(plain)
        raise DataError(
            f"{location}: no column {' or '.join(lacking)} (there are {', '.join(map(repr, header))}): "
            + (_UNSUPPORTED if labelled else f"own pairs need {_USUAL}")
        )
    return columns


def _check(fields: dict[str, Any], names: dict[str, str], location: str) -> None:
    for column in COLUMNS:
        if names[column] not in fields:
            raise DataError(f"{location}: no column {names[column]} (there are {', '.join(map(repr, fields))})")


def _rows(path: Path, warnings: list[str]) -> Rows:
    """Each row; an empty line is none."""
    if path.is_dir():
        return _arrow(path, _saved(path))
    kind = _KINDS.get(path.suffix.lower())
    if kind is None:
        raise DataError(
            f"{path}: own pairs are a .csv, .tsv, .jsonl or .parquet file, or a folder that datasets saved, with the "
            f"columns {', '.join(COLUMNS)}"
        )
    if kind == "jsonl":
        records = READERS["jsonl"](numbered_lines(path), path)
        return ((f"{path}:{number}", record) for number, record in records if record is not None)
    return _arrow(path, [path]) if kind == "parquet" else _table(path, kind, warnings)


def _table(path: Path, usual: str, warnings: list[str]) -> Rows:
    """The rows of a file of separated values, by the delimiter under which its first line is a header or three columns."""
    line = next((line for _, line in numbered_lines(path) if line.strip()), "")
    fitting = [mark for mark in dict.fromkeys((usual, *_DELIMITERS)) if _fits(line, mark)]
    mark = fitting[0] if fitting else usual
    if mark != usual:
        warnings.append(f"{path_name(path)}: its columns are separated by {_DELIMITERS[mark]}")
    elif not fitting and "\r" in without_end(line).rstrip("\r"):
        raise DataError(f"{path}:1: its lines end in carriage returns alone: save it with line feeds")
    elif not fitting and len(next(csv.reader([line], delimiter=usual), [])) < 2 and line:
        raise DataError(
            f"{path}:1: one column: no {', '.join(_DELIMITERS.values())} separate columns; own pairs need {_USUAL}"
        )
    header: list[str] | None = None
    for number, record in _records(path, mark):
        location = f"{path}:{number}"
        if record is None:
            continue
        if header is None:
            header = [name.strip() for name in record]
            if len(set(header)) < len(header) and not _is_row(header):
                raise DataError(f"{location}: the header names a column twice")
            if not _is_row(header):
                _names(header, location)
                continue
            header = list(COLUMNS)
            warnings.append(f"{path_name(path)}: it has no header; its columns are taken for {', '.join(COLUMNS)}")
        if len(record) != len(header):
            raise DataError(f"{location}: {len(record)} fields, but the header names {len(header)}")
        yield location, dict(zip(header, record, strict=True))


def _records(path: Path, mark: str) -> Iterator[tuple[int, list[str] | None]]:
    lines = numbered_lines(path)
    return READERS["tsv"](lines, path) if mark == "\t" else separated(lines, path, mark)


def _fits(line: str, mark: str) -> bool:
    try:
        fields = [field.strip() for field in next(csv.reader([line], delimiter=mark), [])]
    except csv.Error:
        return False
    return bool(_names(fields, "", strict=False)) or _is_row(fields)


def _is_row(fields: Sequence[str]) -> bool:
    """Whether a first line is two texts and a number: a file without header."""
    return len(fields) == len(COLUMNS) and _is_number(fields[2]) and not (_is_number(fields[0]) or _is_number(fields[1]))


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(number_of(text, ""))
    except DataError:
        return False


def _saved(folder: Path) -> list[Path]:
    """The files of a folder that `datasets` saved, in their order."""
    if (folder / "dataset_dict.json").is_file():
        splits = ", ".join(sorted(str(part.parent) for part in folder.glob("*/state.json")))
        raise DataError(f"{folder} holds several splits: name the one to measure ({splits})")
    files = sorted(folder.glob("data-*.arrow"))
    if not (folder / "state.json").is_file() or not files:
        raise DataError(f"{folder} is not a folder that datasets saved (save_to_disk): no state.json with data-*.arrow")
    return files


def _arrow(path: Path, files: Sequence[Path]) -> Rows:
    """The rows of Parquet or Arrow files, numbered from 1 over all of them."""
    import pyarrow as pa
    from pyarrow import parquet

    number = 0
    try:
        for file in files:
            with (parquet.ParquetFile(file) if file.suffix.lower() == ".parquet" else pa.ipc.open_stream(file)) as source:
                batches = source.iter_batches() if file.suffix.lower() == ".parquet" else source
                for batch in batches:
                    for row in batch.to_pylist():
                        number += 1
                        yield f"{path}: row {number}", row
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {path}: {' '.join(str(error).split())[:200]}") from error
