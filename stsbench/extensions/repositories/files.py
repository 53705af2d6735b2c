"""Reads the files of authors' repositories into the rows that a user's tables have."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Callable, Iterator

Row = dict[str, str | float]
_VALIDATION = "dataset/csts_validation_reannotated.csv"  # the archive holds the training split, too


def _columns(content: bytes) -> Iterator[Row]:
    """Yield the pairs of a CSV file without a header: two sentences and a score."""
    for first, second, score in csv.reader(io.StringIO(content.decode("utf-8"), newline="")):
        yield {"sentence1": first, "sentence2": second, "score": float(score)}


def _semrel(content: bytes) -> Iterator[Row]:
    """Yield SemRel's pairs: both sentences stand in one cell, between them a line's end or, in Afrikaans, a tab."""
    for row in csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline="")):
        first, second = row["Text"].replace("\t", "\n").split("\n")
        yield {"sentence1": first.strip(), "sentence2": second.strip(), "score": float(row["Score"])}


def _jsts(content: bytes) -> Iterator[Row]:
    for row in map(json.loads, content.decode("utf-8").splitlines()):
        yield {"sentence1": row["sentence1"], "sentence2": row["sentence2"], "score": float(row["label"])}


def _korsts(content: bytes) -> Iterator[Row]:
    """Yield KorSTS' pairs; a quotation mark in this file quotes nothing."""
    for row in csv.DictReader(io.StringIO(content.decode("utf-8")), delimiter="\t", quoting=csv.QUOTE_NONE):
        yield {"sentence1": row["sentence1"], "sentence2": row["sentence2"], "score": float(row["score"])}


def _choices(content: bytes) -> Iterator[Row]:
    """Yield a text, the right one of its choices and the others, in their order."""
    for row in map(json.loads, content.decode("utf-8").splitlines()):
        choices = list(row["sentences"])
        right = choices.pop(row["label"])
        negatives = {f"negative_{number}": text for number, text in enumerate(choices, start=1)}
        yield {"anchor": row["input"], "positive": right, **negatives}


def _csts(content: bytes) -> Iterator[Row]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        table = archive.read(_VALIDATION).decode("utf-8")
    for row in csv.DictReader(io.StringIO(table, newline="")):
        yield {**{name: row[name] for name in ("sentence1", "sentence2", "condition")}, "score": float(row["label"])}


SHAPES: dict[str, Callable[[bytes], Iterator[Row]]] = {
    "columns": _columns, "semrel": _semrel, "jsts": _jsts, "korsts": _korsts, "choices": _choices, "csts": _csts,
}
