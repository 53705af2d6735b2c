"""Users' own data as protocols: files or rows in memory, passed by a protocol's name, and the protocols that fit a file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence, Set
from os import fspath
from pathlib import Path
from typing import Any

from stsbench.data.own.source import is_in_memory, rows_file
from stsbench.data.own.table import Form, column_names
from stsbench.errors import DataError, StsbenchError, UsageError
from stsbench.evaluation.protocol import GROUP, kinds, load_protocol
from stsbench.files import temporary
from stsbench.registry import names

_PARTS = ("queries", "corpus", "relevant_docs")


def data_protocols() -> list[str]:
    """Return the names of the protocols that measure a user's own data, in the order of registration."""
    return [name for name, kind in kinds().items() if kind.path_setting]


def split_off_data(arguments: dict[str, Any]) -> tuple[list[str], dict[str, str]]:
    """Return the protocols for a user's own data among a call's arguments, such as "sts:FILE", and, by protocol name, the
    files that rows in memory were written to. The data are removed from `arguments`.

    sts, pairs, triplets, transfer: a path, or rows: a table of pandas, polars, pyarrow or datasets, a list of mappings, or
    of tuples in the order of the protocol's columns; retrieval: a folder, or the mapping that `_retrieval_folder` takes.
    Raises DataError, naming the argument and the row.
    """
    protocols, files = list[str](), dict[str, str]()
    for name in [name for name in arguments if name in names(GROUP)]:
        kind, data = load_protocol(name), arguments.pop(name)
        if data is None:
            continue
        if is_in_memory(data):
            if kind.path_setting == "folder":
                data = files[name] = str(_retrieval_folder(data, name))
            elif kind.form is None:
                forms = ", ".join(other for other, kind in kinds().items() if kind.form)
                raise DataError(f"{name} takes a file: rows in memory are for {forms}")
            else:
                data = files[name] = str(rows_file(data, name, _columns(data, kind.form), cached=False))
        protocols.append(f"{name}:{fspath(data)}")
    return protocols, files


def check_protocols(value: Any) -> None:
    """Raise UsageError unless `value` is one or several names of protocols; data have arguments of their own."""
    if not (isinstance(value, str) or (isinstance(value, Sequence) and all(isinstance(name, str) for name in value))):
        words = ", ".join(f"{name}=" for name in data_protocols())
        raise UsageError(f"evaluate takes a protocol's name, and data by what they are measured as: {words}; "
                         f"not a {type(value).__name__}")


def _columns(rows: Any, form: Form) -> Sequence[str]:
    """Return the column names of rows of tuples, () of other rows; the optional column where the first row has its value."""
    first = next(iter(rows), None) if isinstance(rows, list | tuple) else None
    if not isinstance(first, list | tuple):
        return ()
    return (*form.columns, form.optional) if form.optional and len(first) > len(form.columns) else form.columns


def _retrieval_folder(data: Any, name: str) -> Path:
    """Return a folder in BEIR's layout with the data of a mapping, as sentence-transformers' InformationRetrievalEvaluator
    takes them: queries and corpus, id -> text, or lists of texts, whose positions from 0 are the ids; relevant_docs, query
    id -> ids of the relevant texts, or id -> grade. Raises DataError for any other value."""
    if not isinstance(data, Mapping) or set(data) != set(_PARTS):
        raise DataError(f"{name} is a folder, or a mapping with {', '.join(_PARTS)}")
    lines: dict[str, list[str]] = {"queries.jsonl": [], "corpus.jsonl": [], "qrels.jsonl": []}
    for part in _PARTS[:2]:
        if not isinstance(data[part], Mapping | list | tuple):  # iterating over a table or a string gives no texts
            raise DataError(f"{name}, {part}: id -> text, or a list of texts, not a {type(data[part]).__name__}")
        texts = data[part] if isinstance(data[part], Mapping) else dict(enumerate(data[part]))
        lines[f"{part}.jsonl"] = [_line({"_id": str(key), "text": text}, name, part) for key, text in texts.items()]
    if not isinstance(data["relevant_docs"], Mapping):
        kind = type(data["relevant_docs"]).__name__
        raise DataError(f"{name}, relevant_docs: query id -> ids, or id -> grade, not a {kind}")
    for query, relevant in data["relevant_docs"].items():
        if not isinstance(relevant, Mapping | Set | list | tuple):
            raise DataError(f"{name}, relevant_docs: ids of {query!r} are a list, a set or id -> grade, not {relevant!r}")
        grades = relevant if isinstance(relevant, Mapping) else dict.fromkeys(sorted(relevant, key=str), 1)
        lines["qrels.jsonl"] += [
            _line({"query-id": str(query), "corpus-id": str(text), "score": grade}, name, "relevant_docs")
            for text, grade in grades.items()
        ]
    content = {file: "".join(part) for file, part in lines.items()}
    folder = temporary(f"rows-{hashlib.sha256(json.dumps(content).encode()).hexdigest()[:12]}")
    folder.mkdir()
    for file, text in content.items():
        (folder / file).write_text(text, "utf-8")
    return folder


def _line(row: Mapping[str, Any], name: str, part: str) -> str:
    try:
        return json.dumps(row, ensure_ascii=False, default=lambda number: number.item()) + "\n"
    except (AttributeError, TypeError, ValueError) as error:
        raise DataError(f"{name}, {part}: {row} holds something else than texts and numbers") from error


def offers(path: Path) -> StsbenchError:
    """Return the error for a file where a protocol's name is needed, with the `--protocol` options that fit its columns."""
    try:
        header, words = column_names(path), [option for _, option in fitting_options(path)]
    except StsbenchError as error:
        return StsbenchError(f"{path} is no protocol, and data of your own are named by one, such as sts:{path}: {error}")
    return StsbenchError(f"{path} is a file and no protocol: by its columns, {', '.join(map(repr, header))}, "
                         + (f"write {', or '.join(words)}" if words else "it is for none"))


def fitting_options(path: Path) -> list[tuple[str, str]]:
    """Return the protocols that fit a folder, or the columns of a file, each with the option that measures it, such as
    "--protocol pairs:FILE (labelled pairs)". Raises StsbenchError where it cannot be read."""
    if path.is_dir():
        return [(name, f"--protocol {name}:{path}") for name, kind in kinds().items() if kind.path_setting == "folder"]
    header = column_names(path)
    forms = {name: kind.form for name, kind in kinds().items() if kind.form}
    fitting = {name: form for name, form in forms.items() if form.names(header, str(path), strict=False)}
    fitting = {name: form for name, form in fitting.items() if form.value and form.value in header} or fitting
    words = [(name, f"--protocol {name}:{path} ({form.what})") for name, form in fitting.items()]
    if not words:
        named = {name: form for name, form in forms.items() if form.value and form.value_column(header)} or forms
        words = [(name, f"--protocol {name}:{path} --columns {columns} ({form.what})") for name, form in named.items()
                 if (columns := form.suggestion(header))]
    return words
