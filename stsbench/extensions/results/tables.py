"""Read tables of scores: CSV, TSV, JSON lines or Parquet with one row per item, long or wide, or one row per model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stsbench.data.own.table import column_names, is_number, named_columns
from stsbench.data.sets.readers import parse_score
from stsbench.errors import DataError
from stsbench.extensions.results.items import ItemScores
from stsbench.extensions.results.protocol import MEAN

_ROLES = {  # role of a column -> names by which it is recognised
    "id": ("id", "item", "item_id", "doc_id", "sample_id", "query_id", "qid"), "model": ("model",), "task": ("task",),
    "cluster": ("cluster",), "gold": ("gold",), "score": ("prediction", "score"), "sentence1": ("sentence1",),
    "sentence2": ("sentence2",),
}


def read_table(path: Path, columns: str) -> list[ItemScores]:
    """Return the scores of a table. columns: names of columns by role, such as `id=q,score=f1,cluster=text`.

    With an id and one score, a row is an item of the model named by the column `model` or the file's name; with several
    columns of numbers, each is a model's, and columns without any number, such as texts, are left out. With `model` and
    without id and score, a row is a model, and every other column an item. With `gold`, the score is a prediction that is
    correlated with it. Raises DataError, one line.
    """
    header = column_names(path)
    roles = _roles(path, header, columns)
    others = [name for name in header if name not in roles.values()]
    if "id" not in roles and "model" in roles and "score" not in roles:
        return _models_by_row(path, roles["model"], [name for name in others if name != roles["model"]])
    if "id" not in roles:
        raise DataError(f"{path}: no column id (there are {', '.join(map(repr, header))}): two files are compared item by "
                        f"item; stsbench import {path} --columns id=...,score=... names them")
    numbers = [roles["score"]] if "score" in roles else _numeric(path, others)
    if not numbers:
        raise DataError(f"{path}: no column of scores (there are {', '.join(map(repr, header))})")
    rows = [row for _, row in _rows(path, [*dict.fromkeys([*roles.values(), *numbers])], numbers, roles)]
    made = []
    for name in numbers:
        groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for row in rows:
            model = str(row[roles["model"]]) if "model" in roles else name if len(numbers) > 1 else path.stem
            groups.setdefault((model, str(row[roles["task"]]) if "task" in roles else "items"), []).append(row)
        made += [_items(model, task, its, name, roles) for (model, task), its in groups.items()]
    return made


def _numeric(path: Path, names: Sequence[str]) -> list[str]:
    """Return the columns that hold at least one number; other values in them are an error when they are read."""
    rows = [row for _, row in named_columns(path, names)] if names else []
    return [name for name in names if any(is_number(str(row[name])) for row in rows)]


def _items(model: str, task: str, rows: Sequence[dict[str, Any]], score: str, roles: dict[str, str]) -> ItemScores:
    return ItemScores(
        model, task, [str(row[roles["id"]]) for row in rows], {MEAN: [row[score] for row in rows]},
        gold=[row[roles["gold"]] for row in rows] if "gold" in roles else None,
        cluster=[str(row[roles["cluster"]]) for row in rows] if "cluster" in roles else None,
        sentences=([str(row[roles["sentence1"]]) for row in rows], [str(row[roles["sentence2"]]) for row in rows])
        if {"sentence1", "sentence2"} <= roles.keys() and "cluster" not in roles else None,
        score=score if "score" in roles else "score",
    )


def _roles(path: Path, header: Sequence[str], columns: str) -> dict[str, str]:
    """Return role -> column, as stated by `columns`, else by the columns' names. Raises DataError if ambiguous."""
    roles: dict[str, str] = {}
    for part in filter(None, columns.split(",")):
        role, equals, name = (word.strip() for word in part.partition("="))
        if role not in _ROLES or not equals or role in roles:
            raise DataError(f"columns {columns!r}: write {'=...,'.join(_ROLES)}=..., each at most once")
        if name not in header:
            raise DataError(f"{path}: no column {name!r} (there are {', '.join(map(repr, header))})")
        roles[role] = name
    for role, names in _ROLES.items():
        fitting = [name for name in header if name.lower() in names and name not in roles.values()]
        if role not in roles and len(fitting) > 1:
            raise DataError(f"{path}: which column is the {role}, {' or '.join(fitting)}? stsbench import {path} --columns "
                            f"{role}=... names it")
        if role not in roles and fitting:
            roles[role] = fitting[0]
    return roles


def _rows(
    path: Path, names: Sequence[str], numbers: Sequence[str], roles: dict[str, str]
) -> list[tuple[str, dict[str, Any]]]:
    """Return ("FILE:LINE", column -> value) of each row, with scores as numbers. Raises DataError."""
    rows = []
    for location, row in named_columns(path, names):
        for name in (*numbers, *([roles["gold"]] if "gold" in roles else [])):
            try:
                row[name] = float(row[name]) if isinstance(row[name], bool) else parse_score(row[name], location)
            except DataError as error:
                raise DataError(f"{error} (column {name!r})") from None
        rows.append((location, row))
    return rows


def _models_by_row(path: Path, model: str, items: Sequence[str]) -> list[ItemScores]:
    rows = _rows(path, [model, *items], items, {})
    return [ItemScores(str(row[model]), "items", list(items), {MEAN: [row[name] for name in items]}) for _, row in rows]
