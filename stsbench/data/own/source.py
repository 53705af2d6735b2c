"""Where the rows of a user's data lie: in one file, in a folder of files, in a dataset of the Hub, or in memory, from where
they are written once as a file, to be read as a file of the user's is."""

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
_HUB = "stsbench.hub_data"  # entry points: what finds the files of a dataset of the Hub, of rows or of a retrieval set


@dataclass(frozen=True)
class Source:
    """Files of rows. name: what the data are called, never a path; origin: where they were read from, for the record; parts:
    name of a part -> its files; the one part of data that are not divided is called ""; notes: lines that a user must know.
    """

    name: str
    origin: str
    parts: dict[str, tuple[Path, ...]]
    notes: tuple[str, ...] = ()


def open_source(path: Path, splits: bool = False) -> Source:
    """Return what `path` names: a file, a folder that `datasets` saved, a folder of files, each of which is a part, or a
    dataset of the Hub.

    splits: the parts are splits, so that a dataset of the Hub is read with all of them where none is named. Raises
    DataError, one line, for what cannot be read.
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
    """Return the function that fetches a dataset of the Hub, of "rows" or "documents", and says which files it has."""
    return resolve(_HUB, kind)


_TEXTS = {2: ("anchor", "positive"), 3: ("anchor", "positive", "negative")}  # columns of rows of so many texts
_SCORED = ("sentence1", "sentence2", "score")
_FORMS = "rows are texts, tuples of two or three texts, tuples of two texts and a score, or mappings of columns to values"


def rows_file(rows: Any, name: str, columns: Sequence[str] = (), cached: bool = True) -> Path:
    """Return a file with these rows, which is read as a file of the user's is.

    rows: texts; tuples of two or three texts, or of two texts and a score; mappings, or a table with named columns (of
    pandas, polars, pyarrow or datasets), with the columns of a file of pairs. name: what messages call them. columns: of
    tuples; without them by what they hold. Texts without a line break become a .txt, one a line; all else a .jsonl, a
    row a line, where line breaks and tabs are text as everything is. Numbers stand in it as in a .csv; what is neither
    text nor number has no column.

    The file lies in the cache of training data, unless `cached` is False: then this process removes it. Its name is a
    digest of the rows: the same rows are the same file for every seed, for a run that is resumed and for the one after
    it, and are read and tokenised once. A run folder keeps the digest; who gives a run away gives its data away beside
    it, as of any training text.
    Raises DataError, which names the row (from 1), for one that cannot be written.
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
    """Return whether these are rows, and not the name of a file."""
    return not isinstance(rows, str) and not hasattr(rows, "__fspath__")


def _lines(rows: Any, name: str, columns: Sequence[str]) -> tuple[Callable[[], Iterator[bytes]], str]:
    """Return what gives the file's lines, as often as it is called; and the file's suffix."""
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
    # a file that begins with the mark of an archive, or of bytes' order, is not read as text
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
    """Return a row with named columns; a missing value is null, which the reader refuses where it needs the column."""
    return {str(column): _cell(value) for column, value in row.items() if value is None or isinstance(value, str | Real)}


def _cell(value: Any) -> str | None:
    """Return a value as a .csv has it."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Integral):
        return str(int(value))
    return None if math.isnan(value) else repr(float(value))


def _table(rows: Any, name: str) -> Callable[[], Iterator[dict[str, Any]]] | None:
    """Return what gives a table's rows one by one, through Arrow; None: no table. The classes of datasets have their
    names."""
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
    """Return the class of a row; -1, which datasets has of rows without one, as SNLI's files write it."""
    return None if number is None else "-" if number < 0 else name_of(number)


@contextmanager
def in_users_words(files: Mapping[str, str]) -> Iterator[None]:
    """Let an error in the block name rows in memory as the user did, "data, row 3: ...", and not by the file that they
    became, and options of what is measured as arguments. files: name -> that file."""
    try:
        yield
    except StsbenchError as error:
        message = str(error)
        for name, file in files.items():
            message = re.sub(rf"{re.escape(file)}:(?=\d)", f"{name}, row ", message).replace(file, name)
        if "stsbench " not in message:  # whole commands are commands in Python, too
            message = re.sub(r"--(protocol|tasks|columns) ((?:[^\s,;()]|,(?=\S))+)", r'\1="\2"', message)
            message = re.sub(r'" (tasks|columns)="', r'", \1="', message)
        if message == str(error):
            raise
        raise type(error)(message) from error
