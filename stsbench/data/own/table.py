"""Reader of a user's own tables: CSV, TSV, JSON lines, Parquet, or a folder that `datasets` saved. Columns are known by
their usual names or similar ones, by position, or by the user's choice."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stsbench.data.own.source import TABLES, Source
from stsbench.data.sets.lines import check_no_nul, check_text, numbered_lines, without_end
from stsbench.data.sets.parquet_pages import BOUNDED, pages
from stsbench.data.sets.readers import parse_score
from stsbench.data.sets.sets import path_name
from stsbench.data.text.rows import DELIMITERS, READERS, cells, delimiters, separated
from stsbench.errors import DataError
from stsbench.wording import printable, sized

_KINDS = {".csv": ",", ".tsv": "\t", ".jsonl": "jsonl", ".json": "jsonl", ".parquet": "parquet"}

_MOST_BATCH = 256_000_000  # bytes of a Parquet file that are unpacked at a time
_MOST_TIMES = 1000  # rows may take so many times their file's size: texts are rarely compressed more than tenfold
_OF_TEXTS = {"anchor", "document", "negative", "passage", "positive", "query", "sentence", "text"}  # no scores, no labels
_PACKED = {".gz", ".zip", ".xz", ".bz2", ".zst"}
# Characters without width, which `str.strip` keeps: a text of them alone is as empty as a text of spaces.
_INVISIBLE = "\u200b\u200c\u200d\u2060\ufeff\u00ad" + "\t\n\r\x0b\x0c\x1c\x1d\x1e\x1f \x85\xa0\u2028\u2029\u3000"

Rows = Iterator[tuple[str, dict[str, Any]]]  # ("FILE:LINE", column -> value)


@dataclass(frozen=True)
class Form:
    """The columns of one kind of data, and the names under which files have them.

    what: the kind's name in messages. texts: the columns of texts; text_names: other sets of names for them, compared
    without case, _, - and spaces. value: the column of scores or labels, "" for none; value_names: other names for it.
    numeric: whether its values are numbers, by which a file without a header is recognised. optional: a column that a file
    may have. numbered: the text column that may be repeated, as negative_1, negative_2 and so on, or by naming it twice in
    --columns; a row holds the further texts as "negative 2" and so on. usual: the usual names, for messages. blank: whether
    a text may be empty. option: the option that names the columns."""

    what: str
    texts: tuple[str, ...]
    usual: str
    text_names: tuple[tuple[str, ...], ...] = ()
    value: str = ""
    value_names: tuple[str, ...] = ()
    numeric: bool = False
    optional: str = ""
    numbered: str = ""
    blank: bool = False
    option: str = "--columns"

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the required columns."""
        return (*self.texts, self.value) if self.value else self.texts

    def names(self, header: Sequence[str], location: str, strict: bool = True) -> dict[str, str]:
        """Return column of the form -> the header's column; {} if a required column is missing, or DataError if `strict`."""
        plain = {_plain(name): name for name in header}
        names = {column: column for column in (*self.columns, self.optional) if column and column in header}
        if not set(self.texts) <= set(names):
            fitting = [several for several in self.text_names if set(several) <= set(plain)]
            if len(fitting) == 1 or (fitting and fitting[0] == self.texts):
                names |= {column: plain[name] for column, name in zip(self.texts, fitting[0], strict=True)}
        if self.value and self.value not in names:
            values = [name for name in self.value_names if name in plain]
            if len(values) == 1:
                names[self.value] = plain[values[0]]
            elif values and strict:
                listed = " and ".join(repr(plain[name]) for name in values)
                raise DataError(f"{location}: which column holds the {self.value}s, {listed}? call it {self.value}")
        if self.numbered:
            left = [name for name in header if name not in names.values()]
            more = [name for name in left if re.fullmatch(rf"{self.numbered}\d+", _plain(name))]
            columns = [f"{self.numbered} {number}" for number in range(2, 2 + len(more))]
            names |= dict(zip(columns if self.numbered in names else [self.numbered, *columns], more, strict=False))
        lacking = [column for column in self.columns if column not in names]
        if lacking and not strict:
            return {}
        if lacking:
            there, suggestion = ", ".join(map(repr, header)), self.suggestion(header)
            what = f"no column {' or '.join(lacking)} (there are {there})"
            ready = f"; of these: {self.option} {suggestion}" if suggestion else ""
            raise DataError(f"{location}: {what}: {self.what} need {self.usual}{ready}")
        return names

    def suggestion(self, header: Sequence[str]) -> str:
        """Return a value of --columns to suggest for this header: columns that fit by name, and the next unused one for each
        that remains; "" where there are too few, or where the header may itself be a row."""
        plain = {_plain(name): name for name in header}
        value = {self.value: name} if (name := self.value_column(header)) else {}
        groups = [[plain[name] for name in group] for group in self.text_names if set(group) <= set(plain)]
        texts = groups[0] if groups else [
            name for name in header if name not in value.values() and not _plain(name).endswith(("id", "idx", "index"))
        ][:len(self.texts)]
        left = [name for name in header if name not in (*texts, *value.values())]
        if self.value and not value and left and not _OF_TEXTS & {_plain(left[0])}:
            value = {self.value: left[0]}
        chosen = {**dict(zip(self.texts, texts, strict=False)), **value}
        # A name that looks like a sentence may be the first row of a file without a header, which would be lost.
        sentences = any(len(name.split()) > 2 or set(name) & set(",=.!?") for name in chosen.values())
        if len(chosen) < len(self.columns) or sentences or self.option != "--columns":
            return ""
        return ",".join(f"{column}={name}" for column, name in chosen.items())

    def value_column(self, header: Sequence[str]) -> str:
        """Return the header's column with a usual name of scores or labels, as the header spells it; "" for none."""
        plain = {_plain(name): name for name in header}
        return next((plain[name] for name in (self.value, *self.value_names) if name and name in plain), "")

    def is_row(self, fields: Sequence[str]) -> bool:
        """Return whether a file's first line is a row of texts and a number, so that the file has no header."""
        if not self.numeric or len(fields) != len(self.columns):
            return False
        return is_number(fields[-1].replace(",", ".")) and not any(map(is_number, fields[:-1]))


def table_rows(source: Source, form: Form, warnings: list[str], columns: Mapping[str, str] | None = None) -> Rows:
    """Yield ("FILE:LINE", column of the form -> value) for each row; empty lines are skipped. Values are those of the file,
    texts stripped of white space and, unless `form.blank`, not empty; the optional column is present where the file has it,
    and holds the part's name where the source has parts.

    columns: column of the form -> the file's column, or its position from 1 in a file without a header; by default as
    `Form.names` finds them. Departures from the form (delimiter, names, no header) are added to `warnings`. Raises
    DataError naming file and line.
    """
    warnings += source.notes
    for part, files in source.parts.items():
        rows = 0
        for path in files:
            for location, row in _file_rows(path, form, warnings, columns):
                if part and form.optional in row:
                    already = f"its file is the {form.optional} {part!r} already"
                    raise DataError(f"{location}: a column {form.optional}, but {already}: leave the column out")
                rows += 1
                yield location, row | ({form.optional: part} if part else {})
        if part and not rows:
            raise DataError(f"{files[0]} holds no row: leave the file out")


def _file_rows(path: Path, form: Form, warnings: list[str], columns: Mapping[str, str] | None) -> Rows:
    names: dict[str, str] | None = None
    for location, fields in _rows(path, form, warnings, columns or {}):
        if names is None:
            names = _column_names(form, columns, [*fields], location) if columns else form.names([*fields], location)
            if changed := [f"{column} is {name!r}" for column, name in names.items() if column != name and not columns]:
                warnings.append(f"{path_name(path)}: {', '.join(changed)}")
        yield location, _row(form, names, fields, location)


TEXT = Form(
    what="texts", texts=("text",), blank=True, option="--column",
    text_names=(("text",), ("sentence",), ("review",), ("content",), ("document",), ("question",), ("utterance",)),
    usual="text, sentence, review, content, document, question or utterance; or --column with the name of another, or its "
          "position in a file without header",
)


def column_of_texts(path: Path, column: int | str | None, warnings: list[str]) -> Iterator[tuple[int, str]]:
    """Yield (line number, for Parquet and Arrow the row number; text) of one column of a table. column: its name, its
    position from 1, or None to look for the usual names. Empty texts are kept, empty lines skipped. Raises DataError naming
    file and line."""
    columns = None if column is None else {"text": str(column)}
    for location, row in table_rows(Source(path.name, str(path), {"": (path,)}), TEXT, warnings, columns):
        yield int(location.rpartition(":")[2].removeprefix(" row ")), row["text"]


def column_names(path: Path) -> list[str]:
    """Return the names in a table's header. Raises DataError for a file that is not a table."""
    kind = _KINDS.get(path.suffix.lower())
    if kind not in DELIMITERS:
        return [*next(_rows(path, TEXT, [], {}), ("", {}))[1]]
    line = next((line for _, line in numbered_lines(path) if line.strip()), "")
    return max((cells(line, mark) for mark in dict.fromkeys((kind, *DELIMITERS))), key=len)


def named_columns(path: Path, names: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield ("FILE:LINE", name -> value) for each row of a table, of the columns `names`. Raises DataError, one line."""
    form = Form(what="tables", texts=tuple(names), usual=", ".join(names))
    for location, row in _rows(path, form, [], {name: name for name in names}):
        if lacking := [name for name in names if name not in row]:
            raise DataError(f"{location}: no column {lacking[0]!r} (there are {', '.join(map(repr, row))})")
        yield location, {name: row[name] for name in names}


def is_table(path: Path) -> bool:
    """Return whether a path is a table by its suffix, or a folder, as `datasets` saves them: both are read by columns, not
    by lines."""
    return path.suffix.lower() in _KINDS or path.is_dir()


def _row(form: Form, names: Mapping[str, str], fields: Mapping[str, Any], location: str) -> dict[str, Any]:
    row = {}
    for column, name in names.items():
        if name not in fields:
            if column == form.optional:
                raise DataError(f"{location}: {column} must be a text")
            raise DataError(f"{location}: no column {name} (there are {', '.join(map(repr, fields))})")
        row[column] = fields[name]
        if column != form.value:
            text = fields[name]
            if column not in (*form.columns, form.optional) and text in ("", None):  # a row may lack further texts
                del row[column]
                continue
            empty = isinstance(text, str) and (not text.strip() or (not text.isascii() and not text.strip(_INVISIBLE)))
            if not isinstance(text, str) or (empty and not form.blank):
                raise DataError(f"{location}: {column} {'is empty' if isinstance(text, str) else 'must be a text'}")
            check_text(text, location, column)
            check_no_nul(text, location, column)
            row[column] = text.strip()
    return row


def read_columns(words: str, form: Form) -> dict[str, str]:
    """Parse "sentence1=q1,sentence2=q2" and return column of the form -> column of the file. `form.numbered` may be named
    several times. Raises DataError, one line."""
    chosen: dict[str, str] = {}
    known = [column for column in (*form.columns, form.optional) if column]
    for part in words.split(",") if words else ():
        column, equals, name = (word.strip() for word in part.partition("="))
        if column and column == form.numbered and column in chosen:
            column = f"{column} {2 + sum(one.startswith(f'{form.numbered} ') for one in chosen)}"
            known = [*known, column]
        if not equals or not name or column not in known or column in chosen:
            usage = f"write {'=...,'.join(known)}=..., each once, with the file's names or positions"
            raise DataError(f"columns {words!r}: {usage}")
        chosen[column] = name
    return chosen


def csv_rows(path: Path) -> Rows:
    """Yield the rows of a .csv with a header, using the delimiter that splits the header into most columns."""
    line = next((line for _, line in numbered_lines(path) if line.strip()), "")
    mark = max((",", ";", "\t"), key=lambda mark: len(cells(line, mark)))
    header: list[str] | None = None
    for number, record in _records(path, mark, ","):
        if record is None:
            continue
        if header is None:
            header = [name.strip() for name in record]
        elif len(record) != len(header):
            raise DataError(f"{path}:{number}: {len(record)} fields, but the header names {len(header)}")
        else:
            yield f"{path}:{number}", dict(zip(header, record, strict=True))


def _column_names(form: Form, columns: Mapping[str, str], header: Sequence[str], location: str) -> dict[str, str]:
    """Return the user's choice of columns, completed by `Form.names`."""
    if missing := [name for name in columns.values() if name not in header]:
        raise DataError(f"{location}: no column {missing[0]!r} (there are {', '.join(map(repr, header))})")
    if set(form.columns) <= set(columns):
        return dict(columns)
    rest = [name for name in header if name not in columns.values()]
    return {**form.names([*rest, *columns], location), **columns}


def _plain(name: str) -> str:
    return "".join(letter for letter in name.strip().lower() if letter not in "_- ")


def _rows(path: Path, form: Form, warnings: list[str], columns: Mapping[str, str]) -> Rows:
    if path.is_dir():
        return arrow_rows(path, saved_files(path))
    kind = _KINDS.get(path.suffix.lower())
    if path.suffix.lower() in _PACKED:
        raise DataError(f"{path} is compressed ({path.suffix}): unpack it first")
    if kind is None:
        raise DataError(
            f"{path}: {form.what} are a .csv, .tsv, .jsonl or .parquet file, or a folder that datasets saved, with the "
            f"columns {', '.join(form.columns)}"
        )
    if kind == "jsonl":
        records = READERS["jsonl"](numbered_lines(path), path)
        return ((f"{path}:{number}", record) for number, record in records if record is not None)
    if kind == "parquet":
        return arrow_rows(path, [path])
    positions = bool(columns) and all(name.isdecimal() for name in columns.values())
    return _by_position(path, kind, form, columns) if positions else _table(path, kind, form, warnings, columns)


def _by_position(path: Path, usual: str, form: Form, columns: Mapping[str, str]) -> Rows:
    """Yield the rows of a file without a header; the positions, "1" and so on, serve as the columns' names."""
    marks = delimiters(path, usual, max(2, *map(int, columns.values())))
    if len(marks) > 1 and usual != "\t":
        raise _doubt(path, marks)
    mark = marks[0] if marks else usual
    first = True
    for number, record in _records(path, mark, usual):
        if record is None:
            continue
        if first and form.names([field.strip() for field in record], "", strict=False):
            raise DataError(f"{path}:{number}: it has a header ({', '.join(record)}): give {form.option} its names, or none")
        first = False
        yield f"{path}:{number}", {str(i): field for i, field in enumerate(record, 1)}


def _doubt(path: Path, marks: Sequence[str]) -> DataError:
    listed = " and as well by ".join(DELIMITERS[mark] for mark in marks)
    return DataError(f"{path}: its columns can be separated by {listed}: put its texts between quotes, or save it as .tsv")


def _table(path: Path, usual: str, form: Form, warnings: list[str], columns: Mapping[str, str]) -> Rows:
    """Yield the rows of a CSV or TSV, using the delimiter under which its first line is a valid header or row."""

    def fits(line: str, mark: str) -> bool:
        fields = cells(line, mark)
        if columns:
            return set(columns.values()) <= set(fields)
        return bool(form.names(fields, "", False)) or form.is_row(fields)

    line = next((line for _, line in numbered_lines(path) if line.strip()), "")
    fitting = [mark for mark in dict.fromkeys((usual, *DELIMITERS)) if fits(line, mark)]
    if fitting and all(len(cells(line, mark)) == 1 for mark in fitting):
        fitting = [usual]  # a single column: its header holds no delimiter
    if len(fitting) != 1:
        marks = delimiters(path, usual)
        if len(fitting := [mark for mark in fitting if mark in marks] or fitting) > 1 and usual != "\t":
            raise _doubt(path, fitting)
        fitting = fitting or (marks if len(marks) == 1 else [])
    mark = fitting[0] if fitting else usual
    if mark != usual:
        warnings.append(f"{path_name(path)}: its columns are separated by {DELIMITERS[mark]}")
    elif not fitting and "\r" in without_end(line).rstrip("\r"):
        raise DataError(f"{path}:1: its lines end in carriage returns alone: save it with line feeds")
    elif not fitting and len(cells(line, usual)) < 2 and line:
        raise DataError(
            f"{path}:1: one column: no {', '.join(DELIMITERS.values())} separate columns; {form.what} need {form.usual}"
        )
    header: list[str] | None = None
    for number, record in _records(path, mark, usual):
        location = f"{path}:{number}"
        if record is None:
            continue
        if header is None:
            header = [name.strip() for name in record]
            bare = not columns and form.is_row(header)
            if len(set(header)) < len(header) and not bare:
                positions = ",".join(f"{column}={at}" for at, column in enumerate(form.columns, 1))
                raise DataError(f"{location}: the header names a column twice; of a file without a header name the "
                                f"positions, as in {form.option} {positions if form.option != TEXT.option else 1}")
            if not bare:
                _column_names(form, columns, header, location) if columns else form.names(header, location)
                continue
            header = list(form.columns)
            warnings.append(f"{path_name(path)}: it has no header; its columns are taken for {', '.join(header)}")
        if len(record) != len(header):
            raise DataError(f"{location}: {len(record)} fields, but the header names {len(header)}")
        yield location, dict(zip(header, record, strict=True))


def _records(path: Path, mark: str, usual: str) -> Iterator[tuple[int, list[str] | None]]:
    """Return the rows split at `mark`. Quotes are plain text in a .tsv, and in a .csv separated by tabs in which they do not
    enclose cells."""
    lines = numbered_lines(path)
    if mark == "\t" and (usual == "\t" or mark not in delimiters(path, usual, lines=None)):
        return READERS["tsv"](lines, path)
    return separated(lines, path, mark)


def is_number(text: str) -> bool:
    """Return whether a text is a finite number."""
    try:
        return math.isfinite(parse_score(text, ""))
    except DataError:
        return False


def saved_files(folder: Path) -> list[Path]:
    """Return the files of a folder that `datasets` saved, in order. Raises DataError for other folders, several splits."""
    if (folder / "dataset_dict.json").is_file():
        splits = ", ".join(sorted(str(part.parent) for part in folder.glob("*/state.json")))
        raise DataError(f"{folder} holds several splits: name the one to measure ({splits})")
    files = sorted(folder.glob("data-*.arrow"))
    if not (folder / "state.json").is_file() or not files:
        raise DataError(
            f"{folder} holds no {', '.join(TABLES[:-1])} or {TABLES[-1]} file, nor is it a folder that datasets saved "
            "(save_to_disk): no state.json with data-*.arrow"
        )
    return files


def _rows_at_once(path: Path, source: Any) -> int:
    """Return how many rows of a Parquet file fit into a quarter of _MOST_BATCH bytes, as a text is at most as long as its
    page. Raises DataError for a page of more than _MOST_BATCH bytes: a small file can unpack to any size."""
    longest, most = 1, 65_536
    with path.open("rb") as stream:
        groups = (source.metadata.row_group(i) for i in range(source.metadata.num_row_groups))
        for chunk in (group.column(i) for group in groups for i in range(group.num_columns)):
            try:
                for page in pages(stream, chunk):
                    if max(page.packed, page.unpacked) > _MOST_BATCH:
                        raise DataError(f"{path}: {chunk.path_in_schema} has a page of {sized(page.unpacked)}, at most "
                                        f"{sized(_MOST_BATCH)} are read: write it with smaller pages")
                    if chunk.physical_type == "BYTE_ARRAY" and (page.dictionary or page.encoding not in BOUNDED):
                        longest = max(longest, page.unpacked)
            except ValueError:  # page headers that cannot be read say nothing of sizes: read only a few rows at a time
                most = 16
    return max(1, min(most, _MOST_BATCH // 4 // longest))


def arrow_rows(path: Path, files: Sequence[Path], mark: Any = None) -> Rows:
    """Yield the rows of Parquet or Arrow files, numbered from 1 over all files. mark: the value given for columns of lists
    or records, which are not read. Raises DataError, one line."""
    import pyarrow as pa
    from pyarrow import parquet

    number = 0
    try:
        for file in files:
            is_parquet, unpacked, size = file.suffix.lower() == ".parquet", 0, file.stat().st_size
            with (parquet.ParquetFile(file) if is_parquet else pa.ipc.open_stream(file)) as source:
                schema = source.schema_arrow if is_parquet else source.schema
                nested = {field.name: mark for field in schema if pa.types.is_nested(field.type)}  # never texts
                plain = [name for name in schema.names if name not in nested]
                for batch in source.iter_batches(_rows_at_once(file, source), columns=plain) if is_parquet else source:
                    for row in batch.select(plain).to_pylist() if plain else [{}] * len(batch):
                        number += 1
                        unpacked += sum(len(text) for text in row.values() if isinstance(text, str | bytes))
                        if unpacked > max(_MOST_BATCH // 4, _MOST_TIMES * size):
                            raise DataError(f"{path}: the {sized(size)} of {file.name} unpack to over {_MOST_TIMES:,} times "
                                            "as much: write it again without repeated rows, or as .jsonl")
                        yield f"{path}: row {number}", row | nested
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise DataError(f"cannot read {path}: {os.strerror(error.errno)}") from error
        reason, after = printable(" ".join(str(error).split()))[:200].rstrip("."), f" after row {number}" if number else ""
        raise DataError(f"cannot read {path}{after}: {reason}: it is damaged or not whole, write it again") from error
