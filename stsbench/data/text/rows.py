"""Reader of training rows from text, CSV, TSV and JSON-lines files of any size, and the roles of their columns."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

from stsbench.data.sets.lines import check_text, numbered_lines, without_end
from stsbench.data.sets.readers import json_value
from stsbench.errors import DataError

ROLES = (
    "sentence", "anchor", "positive", "negative", "negative2", "premise", "hypothesis", "sentence1", "sentence2", "label",
    "score",
)  # in the order in which rows hold them
LABEL = "label"  # the role that holds class names
SCORE = "score"  # the role that holds numbers
VALUES = frozenset((LABEL, SCORE))  # roles that hold values instead of texts to encode
# Headers that need no data.columns, as role -> column: first the required columns, then the optional ones.
_KNOWN: tuple[tuple[dict[str, str], dict[str, str]], ...] = (
    ({"anchor": "sent0", "positive": "sent1"}, {"negative": "hard_neg"}),
    ({"anchor": "anchor", "positive": "positive"}, {"negative": "negative", "negative2": "negative2"}),
    ({"premise": "premise", "hypothesis": "hypothesis"}, {"label": "label"}),
    ({"sentence1": "sentence1", "sentence2": "sentence2"}, {"score": "score"}),
    ({"sentence": "sentence"}, {}),
    ({"sentence": "text"}, {}),
)
Lines = Iterator[tuple[int, str]]
OnBytes = Callable[[bytes], object]  # is called with every byte of the file as it is read
_EXTENSIONS = {".txt": "text", ".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".json": "jsonl"}
DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
USUAL = {"csv": ",", "tsv": "\t"}
_LOOKED_AT = 50  # lines that are examined to find the delimiter
_PACKED = {".gz", ".zip", ".xz", ".bz2", ".zst"}
_UNCLOSED = {
    "unexpected end of data": "a quote opened in this row is never closed",
    "field larger than field limit (131072)": "a field of more than 131,072 characters, or a quote that is never closed",
}
_RETURN = "new-line character seen in unquoted field"  # beginning of Python's message, whose end differs by version


def assign_roles(
    header: Sequence[str], columns: Mapping[str, str], where: Mapping[str, str], location: str
) -> dict[str, str]:
    """Return role -> column, in the order of ROLES, then other roles by name.

    header: the file's columns; columns: the user's role -> column, or empty for a known header; where: columns that must
    also be present; location: `file:line` of the header. Raises DataError, with the option to set, for a column that is
    missing or occurs twice, and for an unknown header.
    """
    roles = dict(columns)
    if not roles:
        fitting = [{**must, **may} for must, may in _KNOWN if set(must.values()) <= set(header)]
        if len(fitting) != 1:
            which = "more than one known header fits" if fitting else "no known header"
            raise DataError(
                f"{location}: {which}; say with --set 'data.columns={{sentence: ...}}' or --set 'data.columns={{anchor: "
                f"..., positive: ...}}' which of the columns is what: {', '.join(header)}"
            )
        roles = {role: column for role, column in fitting[0].items() if column in header}
    needed = dict.fromkeys((*roles.values(), *where))
    if twice := next((column for column in needed if header.count(column) > 1), None):
        raise DataError(f"{location}: the column {twice!r} occurs twice; see data.columns and data.where")
    if missing := [column for column in needed if column not in header]:
        which = f"column {missing[0]!r} is" if len(missing) == 1 else f"columns {', '.join(map(repr, missing))} are"
        remedy = _remedy(header, roles, where)
        raise DataError(f"{location}: the {which} missing (the file has {', '.join(header)}); give {remedy}")
    if set(roles) <= VALUES:
        raise DataError(f"{location}: data.columns names no text column")
    return dict(sorted(roles.items(), key=lambda item: ([*ROLES, item[0]].index(item[0]), item[0])))


def is_known_header(names: Sequence[str]) -> bool:
    """Return whether a table with these columns, of which there are at least two, needs no data.columns."""
    return len(names) > 1 and any(set(must.values()) <= set(names) for must, _ in _KNOWN)


def _remedy(header: Sequence[str], columns: Mapping[str, str], where: Mapping[str, str]) -> str:
    """Return the --set options that correct `columns` and `where` for this header, with known columns filled in and "..."
    for the others."""
    words = []
    if not set(columns.values()) <= set(header):
        chosen = _suggested(header, columns)
        words.append(f"--set 'data.columns={{{', '.join(f'{role}: {column}' for role, column in chosen.items())}}}'")
        if "..." in chosen.values():
            words[0] += " (... being one of these columns; leave out a role that the file does not have)"
        if chosen.get("anchor") == "premise" and LABEL in header and LABEL not in where:
            return f"{words[0]} and --set 'data.where={{{LABEL}: ...}}' for the rows of one {LABEL} only"
    if not set(where) <= set(header):
        words.append("--set 'data.where={}' for all rows, or a column and its value in the braces")
    return " and ".join(words)


def _suggested(header: Sequence[str], columns: Mapping[str, str]) -> dict[str, str]:
    """Return role -> column of the header for the roles of `columns`, as far as a known header tells, and "..." for the
    others where the header has unused columns."""
    for must, may in _KNOWN:
        if set(must) <= set(columns) and all(header.count(column) == 1 for column in must.values()):
            known = {role: column for role, column in {**must, **may}.items() if role in columns and column in header}
            break
    else:
        if {"anchor", "positive"} <= set(columns) and {"premise", "hypothesis"} <= set(header):
            return {"anchor": "premise", "positive": "hypothesis"}
        known = {role: column for role, column in columns.items() if column in header}
    spare = len(set(header) - set(known.values())) > 0
    return {**known, **{role: "..." for role in columns if role not in known and spare}}


def file_format(path: Path, format: str = "auto") -> str:
    """Return text, csv, tsv or jsonl, for "auto" by the file's extension. Raises DataError for an unknown format."""
    name = _EXTENSIONS.get(path.suffix.lower(), "") if format == "auto" else format
    if format == "auto" and path.suffix.lower() in _PACKED:
        raise DataError(f"{path} is compressed ({path.suffix}): decompress it first")
    if name not in _EXTENSIONS.values():
        subject = f"extension {path.suffix!r}" if format == "auto" else f"data.format {format!r}"
        raise DataError(f"{path}: the {subject} is not a known format: name it .txt, .csv, .tsv or .jsonl, or "
                        "set data.format of a training to text, csv, tsv or jsonl")
    return name


class RowReader:
    """Iterator, for one pass, over (number of a row's first line, its texts in the order of `roles`).

    An empty line in a table of several columns, in a JSON-lines file, or between rows of several lines is not a row; its
    texts are (). left_out: the number of rows that `where` has excluded so far.
    """

    def __init__(
        self, path: Path, kind: str, columns: Mapping[str, str], where: Mapping[str, str], on_bytes: OnBytes | None,
        lines_per_row: int = 1,
    ) -> None:
        self.path, self.left_out = path, 0
        self._wanted = list(where.values())
        mark = _mark(path, kind, columns, where) if kind in USUAL else ""
        lines = numbered_lines(path, on_bytes)
        records: Iterator[tuple[int, Any]] = (
            READERS[kind](lines, path) if mark == USUAL.get(kind, "") else separated(lines, path, mark)
        )
        if lines_per_row > 1:
            if kind != "text":
                raise DataError(f"{path}: data.lines_per_row joins lines of plain text, and this is {kind}: leave it at 1")
            records = _joined(records, lines_per_row)
        header = next(records, None) if kind in ("csv", "tsv") else None
        first = next(records, None)
        while kind in ("jsonl", "text") and first is not None and first[1] is None:
            first = next(records, None)
        if first is None:
            raise DataError(f"{path} has a header but no rows" if header else f"{path} is empty")
        self._records = chain([first], records)
        if kind == "text":
            if columns or where:
                raise DataError(f"{path} is plain text, without columns: leave out data.columns and data.where")
            self.roles: tuple[str, ...] = ("sentence",)
            self._pick: Callable[[int, Any], list[str]] = lambda line, text: [text]
            return
        location = f"{path}:{header[0] if header else first[0]}"
        names = list(header[1] or [""]) if header else list(first[1])
        chosen = assign_roles(names, columns, where, location)
        self.roles = tuple(chosen)
        if header:
            self._pick = self._from_fields(names, [*chosen.values(), *where])
            return
        # Optional columns of the known header that the first row lacks: a later row must not have them.
        absent = {column for must, may in _KNOWN if must.items() <= chosen.items()
                  for role, column in may.items() if role not in chosen}
        self._pick = self._from_object([*chosen.values(), *where], set() if columns else absent)

    def __iter__(self) -> Iterator[tuple[int, tuple[str, ...]]]:
        count = len(self.roles)
        for line, record in self._records:
            if record is None:
                yield line, ()
                continue
            values = self._pick(line, record)
            if values[count:] == self._wanted:
                yield line, tuple(values[:count])
            else:
                self.left_out += 1

    def _from_fields(self, names: list[str], columns: list[str]) -> Callable[[int, Any], list[str]]:
        indices = [names.index(column) for column in columns]

        def pick(line: int, record: list[str]) -> list[str]:
            if len(record) != len(names):
                raise DataError(f"{self.path}:{line}: {len(record)} fields, but the header names {len(names)}")
            return [record[i] for i in indices]

        return pick

    def _from_object(self, columns: list[str], unexpected: set[str]) -> Callable[[int, Any], list[str]]:
        numeric = self.roles.index(SCORE) if SCORE in self.roles else None  # a JSON number is also accepted

        def pick(line: int, record: dict[str, Any]) -> list[str]:
            for column in unexpected & record.keys():
                raise DataError(f"{self.path}:{line}: the key {column!r}, which the first row lacks; see data.columns")
            return [
                _text(record, column, f"{self.path}:{line}", number=i == numeric) for i, column in enumerate(columns)
            ]

        return pick


def read_rows(
    path: Path, format: str = "auto", columns: Mapping[str, str] | None = None, where: Mapping[str, str] | None = None,
    on_bytes: OnBytes | None = None, lines_per_row: int = 1,
) -> RowReader:
    """Return a reader of the rows of `path`, which has read the header already.

    columns: role -> column, empty for a known header (see stsbench.data.text.rows); where: column -> value of the rows to
    keep. In plain text each line is a row, or `lines_per_row` lines joined by spaces, fewer before a line of white space
    and at the end. In a TSV quotes are text; in a CSV quoted cells may hold line ends. Every fault of the file, here and
    while iterating, raises a DataError that names the file and the line on which the bad row starts.
    """
    return RowReader(path, file_format(path, format), columns or {}, where or {}, on_bytes, lines_per_row)


def _mark(path: Path, kind: str, columns: Mapping[str, str], where: Mapping[str, str]) -> str:
    """Return the delimiter under which a table's header has the requested or known columns, else the one that splits all its
    first lines into equally many cells."""
    usual = USUAL[kind]
    line = next((line for _, line in numbered_lines(path)), "")
    needed = {*columns.values(), *where}
    for mark in dict.fromkeys((usual, *DELIMITERS)):
        names = cells(line, mark)
        alone = mark == usual and names in (["sentence"], ["text"])
        if needed <= set(names) if needed else alone or is_known_header(names):
            return mark
    marks = delimiters(path, usual)
    return marks[0] if len(marks) == 1 else usual


def cells(line: str, mark: str) -> list[str]:
    """Return a line's cells, split at `mark` and stripped of white space; [] where a quote is not closed."""
    try:
        return [field.strip() for field in next(csv.reader([line], delimiter=mark), [])]
    except csv.Error:
        return []


def delimiters(path: Path, usual: str, least: int = 2, lines: int | None = _LOOKED_AT) -> list[str]:
    """Return the delimiters that split all rows of a file's first `lines` (None: all lines) into equally many cells, at
    least `least`; `usual` comes first."""
    listed, fitting = list(islice(numbered_lines(path), lines)), []
    for mark in dict.fromkeys((usual, *DELIMITERS)):
        counts: set[int] = set()
        try:
            reader = _tsv if mark == usual == "\t" else partial(separated, delimiter=mark)
            for _, fields in reader(iter(listed), path):
                counts |= {len(fields)} if fields else set()
        except DataError as error:
            # In the first lines of a longer file an open quote may be closed later.
            if lines is None or len(listed) < lines or "never closed" not in str(error):
                continue
        if len(counts) == 1 and min(counts) >= least:
            fitting.append(mark)
    return fitting


def _joined(records: Iterator[tuple[int, str]], count: int) -> Iterator[tuple[int, str | None]]:
    """Yield (first line, `count` joined lines), fewer before a line of white space, which itself yields (line, None)."""
    start, parts = 0, list[str]()
    for number, text in records:
        if text.strip():
            start = start if parts else number
            parts.append(text.strip())
        if parts and (len(parts) == count or not text.strip()):
            yield start, " ".join(parts)
            parts = []
        if not text.strip():
            yield number, None
    if parts:
        yield start, " ".join(parts)


def _tsv(lines: Lines, path: Path) -> Iterator[tuple[int, list[str] | None]]:
    columns = 0
    for number, line in lines:
        fields = without_end(line).split("\t")
        columns = columns or len(fields)
        yield number, fields if columns == 1 or fields != [""] else None


def separated(lines: Lines, path: Path, delimiter: str = ",") -> Iterator[tuple[int, list[str] | None]]:
    """Yield (first line, fields) of each record of a CSV; fields are None for an empty line in a table of many columns."""
    reader = csv.reader((line for _, line in lines), strict=True, delimiter=delimiter)
    columns = 0
    while True:
        start = reader.line_num + 1
        try:
            fields = next(reader, None)
        except csv.Error as error:
            raise DataError(f"{path}:{start}: {_csv_fault(str(error))}") from error
        if fields is None:
            return
        columns = columns or len(fields)
        yield start, fields or ([""] if columns == 1 else None)


def _csv_fault(message: str) -> str:
    """Return a description of a fault of a record, with advice, from the message of Python's reader."""
    if message.startswith(_RETURN):
        advice = "put the field between quotes, or save the file with line feeds alone"
        return f"not valid CSV: a carriage return within a field: {advice}"
    advice = ": write a quote within a quoted field twice" if "expected after" in message else ""
    return _UNCLOSED.get(message, f"not valid CSV: {message}{advice}")


def _jsonl(lines: Lines, path: Path) -> Iterator[tuple[int, dict[str, Any] | None]]:
    for number, line in lines:
        if not line.strip():
            yield number, None
            continue
        item = json_value(line, f"{path}:{number}")
        if not isinstance(item, dict):
            raise DataError(f"{path}:{number}: expected one JSON object per line")
        yield number, item


READERS: dict[str, Callable[[Lines, Path], Iterator[tuple[int, Any]]]] = {
    "text": lambda lines, path: ((number, without_end(line)) for number, line in lines),
    "csv": separated, "tsv": _tsv, "jsonl": _jsonl,
}


def _text(record: dict[str, Any], key: str, location: str, number: bool = False) -> str:
    if key not in record:
        raise DataError(f"{location}: the key {key!r} is missing")
    value = record[key]
    if number and isinstance(value, int | float) and not isinstance(value, bool):
        return repr(value)
    if not isinstance(value, str):
        raise DataError(f"{location}: the value of {key!r} is not text but {json.dumps(value)[:40]}")
    check_text(value, location, repr(key))
    return value
