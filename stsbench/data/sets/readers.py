"""Readers of the catalog's files: STS data as SentEval reads them, unchanged files of the Hub, and labelled texts.

Every fault raises a DataError that names `file:line`. Items stay in file order; nothing is sorted or de-duplicated.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import re
import zlib
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from stsbench.config import shorten
from stsbench.data.sets.lines import check_text
from stsbench.errors import DataError

_MAX_BYTES = 256 * 1024 * 1024  # far above any set of the catalog; stops a gzip bomb
BINARY = {"0": 0, "1": 1}
TREC_CLASSES = {"ABBR": 0, "DESC": 1, "ENTY": 2, "HUM": 3, "LOC": 4, "NUM": 5}
ENTAILMENT = {"CONTRADICTION": 0, "NEUTRAL": 1, "ENTAILMENT": 2}
ScoredPair = tuple[str, str, float, str]  # both texts, the gold score, the subset
Labelled = tuple[str, str, int, str]  # a text, a pair's second text or "", the label, the split


def read_lines(path: Path, encoding: str = "utf-8") -> list[str]:
    """Return the lines of a text file, without line ends.

    Lines are split at \\n only (a \\r before it is dropped): str.splitlines() also splits at characters such as U+2028 or
    U+0085 inside a sentence, which would shift all later gold scores. On SentEval's own files both give the same lines.
    Raises DataError naming the file (and the line, when the encoding is wrong).
    """
    return _decoded(_read_bytes(path), path, encoding)


def read_sts_year(folder: Path, subsets: Sequence[str]) -> list[ScoredPair]:
    """Return a year of STS12-16: `STS.input.<subset>.txt` zipped with `STS.gs.<subset>.txt`, subsets in the order given.

    Pairs with a blank gold line were never scored; they are dropped AFTER zipping, so the two files stay aligned.
    Raises DataError for files of different length, a line without exactly one tab, an empty sentence, a bad score.
    """
    rows = []
    for subset in subsets:
        input_path, gold_path = folder / f"STS.input.{subset}.txt", folder / f"STS.gs.{subset}.txt"
        pairs, scores = list(sts_cells(input_path)), read_lines(gold_path)
        if len(pairs) != len(scores):
            raise DataError(f"{input_path} has {len(pairs)} lines but {gold_path} has {len(scores)}: must be equal")
        for (number, cells), score in zip(pairs, scores, strict=True):
            if score.strip():
                gold = _score(score, gold_path, number, 0.0, 5.0)
                rows.append((*normalize_pair(*cells, input_path, number), gold, subset))
    return rows


def sts_cells(path: Path) -> Iterator[tuple[int, tuple[str, str]]]:
    """Yield (line number, the two sentences) of every line of an STS.input file, scored or not."""
    for number, line in enumerate(read_lines(path), start=1):
        first, *others = line.split("\t")
        if len(others) != 1:
            raise DataError(f"{path}:{number}: expected two sentences with one tab between, found {len(others)} tabs")
        yield number, (first, others[0])


def read_stsb(path: Path, subset: str = "STS-B") -> list[ScoredPair]:
    """Return one split of the STS Benchmark: tab-separated despite `.csv`, without header and quoting; columns 4, 5, 6,
    counted from 0, are read."""
    rows = []
    for number, line in enumerate(read_lines(path), start=1):
        cells = line.strip().split("\t")  # no csv module: a lone quotation mark is part of the sentence
        if len(cells) < 7:
            raise DataError(f"{path}:{number}: expected at least 7 tab-separated columns, found {len(cells)}")
        gold = _score(cells[4], path, number, 0.0, 5.0)
        rows.append((*normalize_pair(cells[5], cells[6], path, number), gold, subset))
    return rows


def read_sick(path: Path, subset: str = "SICK-R") -> list[ScoredPair]:
    """Return one SICK file: a header line, then pair_ID, sentence A, sentence B, relatedness 1-5, entailment label."""
    return [(*normalize_pair(cells[1], cells[2], path, number), _score(cells[3], path, number, 1.0, 5.0), subset)
            for number, cells in sick_cells(path)]


def sick_cells(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield (line number, columns) of every line of a SICK file except its header. Raises DataError naming the line."""
    for number, line in enumerate(read_lines(path), start=1):
        cells = line.strip().split("\t")
        if number == 1:
            if cells[0] != "pair_ID":
                raise DataError(f"{path}:1: expected SICK's header line starting with pair_ID, found {cells[0][:40]!r}")
            continue
        if len(cells) < 5:
            raise DataError(f"{path}:{number}: expected at least 5 tab-separated columns, found {len(cells)}")
        yield number, cells


def read_raw(path: Path, subset: str, low: float = 0.0, high: float = 5.0) -> list[ScoredPair]:
    """Return the pairs of a Hub file of JSON lines (plain or .gz) with sentence1, sentence2 and score, texts unchanged.

    Raises DataError for a broken gzip stream, a line that is not a JSON object, a missing or wrong field.
    """
    data = _read_bytes(path)
    if path.suffix == ".gz":
        data = _unzipped(data, path)
    rows = []
    for number, line in enumerate(_decoded(data, path), start=1):
        item = json_object(line, path, number)
        first, second = item.get("sentence1"), item.get("sentence2")
        if not isinstance(first, str) or not isinstance(second, str):
            raise DataError(f"{path}:{number}: sentence1 and sentence2 must be texts")
        check_text(first + second, f"{path}:{number}", "a sentence")
        rows.append((first, second, _score(item.get("score"), path, number, low, high), subset))
    return rows


def json_object(line: str, path: Path, number: int) -> dict[str, Any]:
    """Return the object that a line of a JSON-lines file holds. Raises DataError naming the line."""
    item = json_value(line, f"{path}:{number}")
    if not isinstance(item, dict):
        raise DataError(f"{path}:{number}: expected a JSON object")
    return item


def json_value(line: str, location: str) -> Any:
    """Return the value of a line of a JSON-lines file. Raises DataError, beginning with `location`, for invalid JSON."""
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        wrong = f"{error.msg.removesuffix(' at')} at character {error.pos + 1}"
    except RecursionError:
        wrong = "nested too deeply"
    except ValueError:  # Python refuses to parse longer integers
        wrong = "a number of more than 4,300 digits"
    raise DataError(f"{location}: not valid JSON ({wrong}): each line must be one whole object")


def _read_bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            data = stream.read(_MAX_BYTES + 1)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    data = data.removeprefix(b"\xef\xbb\xbf")  # a byte order mark is not part of the first text
    if len(data) > _MAX_BYTES:
        raise DataError(f"{path} is larger than {_MAX_BYTES // 1024**2} MiB: not a file of this data set")
    return data


def _unzipped(data: bytes, path: Path) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
            plain = stream.read(_MAX_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} is not a complete gzip file: {error}") from error
    if len(plain) > _MAX_BYTES:
        raise DataError(f"{path} unpacks to more than {_MAX_BYTES // 1024**2} MiB: not a file of this data set")
    return plain


def _decoded(data: bytes, path: Path, encoding: str = "utf-8") -> list[str]:
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DataError(f"{path}:{line}: not valid {encoding.upper()} (byte 0x{data[error.start]:02x})") from error
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()  # the last line feed ends a line and does not begin another
    return [line.removesuffix("\r") for line in lines]


def normalize_pair(first: str, second: str, path: Path, number: int) -> tuple[str, str]:
    """Return both texts with runs of whitespace as one space, as SentEval passes them on. Raises DataError for an empty
    text."""
    pair = " ".join(first.split()), " ".join(second.split())
    if not all(pair):
        raise DataError(f"{path}:{number}: a sentence is empty")
    return pair


def parse_score(value: object, location: str) -> float:
    """Return a score given as text or as a number of JSON or Parquet; it may be infinite or NaN. Raises DataError, beginning
    with `location`, for any other value."""
    try:
        if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal) or "_" in str(value):
            raise ValueError  # float("1_0") would be 10
        return float(value)
    except (ValueError, OverflowError):
        comma = "; write it with a decimal point" if re.fullmatch(r"\s*-?\d+,\d+\s*", str(value)) else ""
        raise DataError(f"{location}: the score {shorten(value)} is not a number{comma}") from None


def _score(value: object, path: Path, number: int, low: float, high: float) -> float:
    score = parse_score(value, f"{path}:{number}")
    if not math.isfinite(score) or not low <= score <= high:
        raise DataError(f"{path}:{number}: the score {score:g} is outside {low:g}-{high:g}")
    return score


def read_class(path: Path, label: int) -> list[Labelled]:
    """Return one class of MR, CR, SUBJ or MPQA: a Latin-1 file with one text per line. A line without words is ""."""
    # Lines without words are kept: CR and MPQA hold seven, and SentEval counts them.
    return [(" ".join(line.split()), "", label, "all") for line in read_lines(path, "latin-1")]


def read_sst(path: Path, split: str) -> list[Labelled]:
    """Return one split of SST2: text, tab, label 0 or 1; no header."""
    items = []
    for number, line in enumerate(read_lines(path), start=1):
        cells = line.strip().split("\t")
        if len(cells) != 2:
            raise DataError(f"{path}:{number}: expected a text and a label with one tab between, "
                            f"found {len(cells)} columns")
        items.append((_text(cells[0], path, number), "", _label(cells[1], BINARY, path, number), split))
    return items


def read_trec(path: Path, split: str) -> list[Labelled]:
    """Return one split of TREC, Latin-1: `COARSE:fine question`. The six coarse classes are the labels."""
    items = []
    for number, line in enumerate(read_lines(path, "latin-1"), start=1):
        label, colon, rest = line.strip().partition(":")
        if not colon:
            raise DataError(f"{path}:{number}: expected `CLASS:subclass question`, found no colon")
        question = _text(rest.partition(" ")[2], path, number)
        items.append((question, "", _label(label, TREC_CLASSES, path, number), split))
    return items


def read_mrpc(path: Path, split: str) -> list[Labelled]:
    """Return one split of MRPC: a header line (after a byte order mark), then label 0 or 1, two ids, two texts."""
    items = []
    for number, line in enumerate(read_lines(path), start=1):
        cells = line.strip().split("\t")
        if number == 1:
            if cells[0] != "Quality":
                raise DataError(f"{path}:1: expected MRPC's header line starting with Quality, found {cells[0][:40]!r}")
            continue
        if len(cells) != 5:
            raise DataError(f"{path}:{number}: expected 5 tab-separated columns, found {len(cells)}")
        items.append((*normalize_pair(cells[3], cells[4], path, number), _label(cells[0], BINARY, path, number), split))
    return items


def read_sick_entailment(path: Path, split: str) -> list[Labelled]:
    """Return one SICK file: sentence A, sentence B and the entailment label in the fifth column (CONTRADICTION 0 to 2)."""
    return [(*normalize_pair(cells[1], cells[2], path, number), _label(cells[4], ENTAILMENT, path, number), split)
            for number, cells in sick_cells(path)]


def _text(text: str, path: Path, number: int) -> str:
    words = " ".join(text.split())
    if not words:
        raise DataError(f"{path}:{number}: the text is empty")
    return words


def _label(text: str, classes: dict[str, int], path: Path, number: int) -> int:
    if text not in classes:
        raise DataError(f"{path}:{number}: the label {text[:40]!r} is not one of {', '.join(classes)}")
    return classes[text]
