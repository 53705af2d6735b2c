"""Sources of a user's own data: a file, a folder of files, a dataset of the Hub, or rows in memory, which are written to a
file once and then read like a user's file."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from stsbench.data.sets.lines import check_text
from stsbench.data.sets.sets import ON_HUB, path_name
from stsbench.data.text.cache import built_folder
from stsbench.errors import DataError, StsbenchError
from stsbench.files import is_temporary, temporary, training_cache
from stsbench.registry import resolve
from stsbench.wording import counted

TABLES = (".csv", ".tsv", ".jsonl", ".json", ".parquet")
_HUB = "stsbench.hub_data"  # entry points: functions that find the files of a Hub dataset of rows, or of a retrieval set


@dataclass(frozen=True)
class Source:
    """Files that hold the rows of a data set.

    name: the data's name, never a path; origin: their source, for the record; parts: name of a part -> its
    files, "" being the only part of undivided data; notes: lines to show to the user."""

    name: str
    origin: str
    parts: dict[str, tuple[Path, ...]]
    notes: tuple[str, ...] = ()


def open_source(path: Path, splits: bool = False) -> Source:
    """Return the source that `path` names: a file, a folder that `datasets` saved, a folder of which each file is a part,
    or a dataset of the Hub.

    splits: whether the parts are splits; a dataset of the Hub is then read with all its splits where `path` names none.
    Raises DataError, one line, for a path that cannot be read.
    """
    if (name := path.as_posix()).startswith(ON_HUB):
        dataset = hub_files("rows")(name, splits)
        return Source(name, dataset.origin, dataset.parts)
    try:
        if not path.is_dir() or (path / "state.json").is_file() or (path / "dataset_dict.json").is_file():
            return Source(path_name(path), "rows in memory" if is_temporary(path) else str(path), {"": (path,)})
        entries = sorted(entry for entry in path.iterdir() if not entry.name.startswith("."))
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    files = [entry for entry in entries if entry.is_file() and entry.suffix.lower() in TABLES]
    if not files:
        return Source(path_name(path), str(path), {"": (path,)})
    parts: dict[str, tuple[Path, ...]] = {"": tuple(files)} if len(files) == 1 else {}
    for file in files if not parts else ():
        if file.stem in parts:
            raise DataError(f"{file} and {parts[file.stem][0].name} are both the part {file.stem!r}: rename one")
        parts[file.stem] = (file,)
    rest = [entry.name for entry in entries if entry not in files]
    notes = (f"{path_name(path)}: not read: {', '.join(rest[:5])}{' and more' if len(rest) > 5 else ''}",) if rest else ()
    return Source(path_name(path), str(path), parts, notes)


def hub_files(kind: str) -> Any:
    """Return the function that fetches a dataset of the Hub and lists its files; `kind`: "rows" or "documents"."""
    return resolve(_HUB, kind)


_TEXTS = {2: ("anchor", "positive"), 3: ("anchor", "positive", "negative")}  # number of texts in a row -> its columns
_SCORED = ("sentence1", "sentence2", "score")
_FORMS = "rows are texts, tuples of two or three texts, tuples of two texts and a score, or mappings of columns to values"


def rows_file(rows: Any, name: str, columns: Sequence[str] = (), cached: bool = True) -> Path:
    """Write rows in memory to a file and return its path, so that they are read like a user's file.

    rows: texts; tuples of two or three texts, or of two texts and a score; mappings, or a table with named columns (of
    pandas, polars, pyarrow or datasets), with the columns of a file of pairs. name: the rows' name in messages. columns:
    the columns of tuples; by default they follow from what the tuples hold. Texts without line breaks become a .txt with
    one text per line; all other rows a .jsonl with one row per line, which keeps line breaks and tabs. Numbers are written
    as in a .csv; values that are neither text nor number are left out.

    The file is kept in the cache of training data; with `cached` False this process removes it at its end. Its name is a
    digest of the rows, so equal rows are one file for every seed and for a resumed run, and are read and tokenised once.
    A run folder keeps only the digest: to share a run, share its data, too, as with any training text.
    Raises DataError, which names the row (from 1), for a row that cannot be written.
    """
    lines, suffix = _lines(rows, name, columns)
    sha, count = hashlib.sha256(suffix.encode()), 0
    for line in lines():
        sha.update(line)
        count += 1
    if not count:
        raise DataError(f"{name} holds no row")
    file = f"rows-{sha.hexdigest()[:12]}{suffix}"

    def build(folder: Path) -> None:
        with (folder / file).open("wb") as stream:
            stream.writelines(lines())

    if not cached:
        target = temporary(file)
        build(target.parent)
        return target
    return built_folder(training_cache() / "rows", sha.hexdigest()[:16], build) / file


def is_in_memory(rows: Any) -> bool:
    """Return whether `rows` are rows in memory, not the name of a file."""
    return not isinstance(rows, str) and not hasattr(rows, "__fspath__")


def _lines(rows: Any, name: str, columns: Sequence[str]) -> tuple[Callable[[], Iterator[bytes]], str]:
    """Return a function that yields the file's lines anew on each call, and the file's suffix."""
    if isinstance(rows, Mapping):
        splits = f": name one of {', '.join(map(str, rows))}" if hasattr(rows, "column_names") else ""
        raise DataError(f"{name} is a {type(rows).__name__}{splits or ', and not a list: ' + _FORMS}")
    if isinstance(rows, Set):
        raise DataError(f"{name} is a {type(rows).__name__}, whose order changes with each process: give a list, as sorted "
                        "makes one")
    if (table := _table(rows, name)) is not None:
        return lambda: (_json(_as_row(row), name, number) for number, row in enumerate(table(), 1)), ".jsonl"
    try:
        listed = list(rows)
    except TypeError:
        raise DataError(f"{name} is a {type(rows).__name__}: give a file, a table, or a list whose {_FORMS}") from None
    lines = all(isinstance(row, str) and "\n" not in row and "\r" not in row for row in listed)
    # A .txt that begins like an archive, or with a byte order mark, would not be read back as this text.
    if lines and not (listed and listed[0].startswith(("\ufeff", "BZh", "PK\x03\x04"))):
        return lambda: (_encoded(row + "\n", name, number) for number, row in enumerate(listed, 1)), ".txt"
    records = [_record(row, name, number, columns) for number, row in enumerate(listed, 1)]
    for number, record in enumerate(records, 1):
        if not isinstance(listed[0], Mapping) and record.keys() != records[0].keys():
            raise DataError(f"{name}, row {number} has {', '.join(record)}, and row 1 {', '.join(records[0])}")
    return lambda: (_json(record, name, number) for number, record in enumerate(records, 1)), ".jsonl"


def _encoded(line: str, name: str, number: int) -> bytes:
    check_text(line, f"{name}, row {number}", "the text")
    return line.encode()


def _json(record: Mapping[str, Any], name: str, number: int) -> bytes:
    for column, value in record.items():
        if isinstance(value, str):
            check_text(value, f"{name}, row {number}", repr(column))
    return (json.dumps(record, ensure_ascii=False) + "\n").encode()


def _record(row: Any, name: str, number: int, columns: Sequence[str]) -> dict[str, Any]:
    """Return a row of a list as column -> text."""
    where = f"{name}, row {number}"
    if isinstance(row, str):
        return {"sentence": row}
    if isinstance(row, Mapping):
        return _as_row(row)
    if not isinstance(row, tuple | list):
        raise DataError(f"{where} is a {type(row).__name__}, not a text: {_FORMS}")
    if columns and len(row) != len(columns):
        raise DataError(f"{where} has {counted(len(row), 'part')}: it should have {len(columns)}, {', '.join(columns)}")
    if columns:
        return {column: _cell(value) for column, value in zip(columns, row, strict=True)}
    scored = len(row) == 3 and isinstance(row[2], Real) and not isinstance(row[2], bool)
    texts = row[:2] if scored else row
    if bad := [part for part in texts if not isinstance(part, str)]:
        raise DataError(f"{where} holds {bad[0]!r}, which is not a text: {_FORMS}")
    if scored and not math.isfinite(row[2]):
        raise DataError(f"{where}: the score {row[2]} is not a finite number")
    if len(row) not in _TEXTS:
        raise DataError(f"{where} has {len(row)} parts: {_FORMS}")
    return dict(zip(_SCORED, (*texts, _cell(row[2])), strict=True)) if scored else dict(
        zip(_TEXTS[len(row)], texts, strict=True)
    )


def _as_row(row: Mapping[Any, Any]) -> dict[str, Any]:
    """Return column -> value of a row; a missing value is None, which readers refuse in a column that they need."""
    return {str(column): _cell(value) for column, value in row.items() if value is None or isinstance(value, str | Real)}


def _cell(value: Any) -> str | None:
    """Return a value as the text that a .csv would hold, None for NaN and for a missing value."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Integral):
        return str(int(value))
    return None if math.isnan(value) else repr(float(value))


def _table(rows: Any, name: str) -> Callable[[], Iterator[dict[str, Any]]] | None:
    """Return a function that yields a table's rows, read through Arrow, with class names instead of the class numbers of
    `datasets`; None for rows that are not a table."""
    import pyarrow as pa

    classes: dict[str, Callable[[int], str]] = {}
    if hasattr(rows, "column_names") and hasattr(rows, "with_format") and hasattr(rows, "__len__"):  # datasets.Dataset
        kinds = {column: kind for column, kind in rows.features.items() if hasattr(kind, "int2str")}
        classes = {column: kind.int2str for column, kind in kinds.items()}
        rows = rows.with_format("arrow")[:]
    elif not hasattr(rows, "columns"):
        return None
    try:
        table = pa.table(rows)
    except (TypeError, ValueError, pa.ArrowException) as error:
        why = " ".join(str(error).split())[:200]
        raise DataError(f"{name}: the {type(rows).__name__} cannot be read as a table: {why}") from error

    def records() -> Iterator[dict[str, Any]]:
        for batch in table.to_batches():
            for row in batch.to_pylist():
                yield {**row, **{column: _class(row[column], of) for column, of in classes.items()}}

    return records


def _class(number: int | None, name_of: Callable[[int], str]) -> str | None:
    """Return the name of a class; "-", as in SNLI's files, for -1, by which `datasets` marks rows without a label."""
    return None if number is None else "-" if number < 0 else name_of(number)


@contextmanager
def in_users_words(files: Mapping[str, str]) -> Iterator[None]:
    """Reword errors of the block for callers from Python: rows in memory by their name, "data, row 3: ...", instead of the
    file that they were written to, and options as arguments. files: name -> file."""
    try:
        yield
    except StsbenchError as error:
        message = str(error)
        for name, file in files.items():
            message = re.sub(rf"{re.escape(file)}:(?=\d)", f"{name}, row ", message).replace(file, name)
        if "stsbench " not in message:  # a whole command in a message stays as it is typed
            message = re.sub(r"--(protocol|tasks|columns) ((?:[^\s,;()]|,(?=\S))+)", r'\1="\2"', message)
            message = re.sub(r'" (tasks|columns)="', r'", \1="', message)
        if message == str(error):
            raise
        raise type(error)(message) from error
