"""Where the rows of a user's data lie: in one file, in a folder of files, or in a dataset of the Hub."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stsbench.data.sets.sets import ON_HUB, path_name
from stsbench.errors import DataError
from stsbench.files import is_temporary
from stsbench.registry import resolve

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
