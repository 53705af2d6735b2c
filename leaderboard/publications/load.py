"""The files of published results: read, checked, and searched for a row by its id."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from stsbench.config import parse_yaml
from stsbench.errors import StsbenchError
from stsbench.leaderboard.records.paths import PUBLISHED
from stsbench.parsing import MOST_YAML, read_text
from stsbench.registry import did_you_mean

from .model import Heading, Paper, Publication, PublishedModel, PublishedRow, PublishedTable

_Model = TypeVar("_Model", bound=PublishedModel)


def load_publications(folder: Path | None = None) -> list[Publication]:
    """Every publication of `folder` (the shipped ones by default), by file name.

    Raises StsbenchError naming the file, table and row of the first mistake.
    """
    folder = folder or PUBLISHED
    paths = sorted(folder.glob("*.yaml"))
    if not paths:
        raise StsbenchError(f"{folder} holds no published results (*.yaml)")
    return [_read(path) for path in paths]


def find_row(text: str, folder: Path | None = None) -> PublishedRow:
    """The row with the id `text`, such as "simcse:5:7". Raises StsbenchError with the nearest papers, tables or rows."""
    publications = {publication.paper.id: publication.rows for publication in load_publications(folder)}
    paper, table, number = (*text.strip().split(":", 2), "", "")[:3]
    if paper not in publications:
        raise StsbenchError(f"no publication '{paper}' (a row is PAPER:TABLE:ROW){did_you_mean(paper, publications)}")
    tables = dict.fromkeys(row.heading.name for row in publications[paper])
    if table not in tables:
        raise StsbenchError(f"{paper} has no table '{table}' (a row is PAPER:TABLE:ROW){did_you_mean(table, tables)}")
    rows = {str(row.row): row for row in publications[paper] if row.heading.name == table}
    if number not in rows:
        raise StsbenchError(f"table {table} of {paper} has no row '{number}'; its rows: {', '.join(sorted(rows, key=int))}")
    return rows[number]


def _read(path: Path) -> Publication:
    raw = parse_yaml(read_text(path, MOST_YAML), str(path))
    if not isinstance(raw, dict) or set(raw) != {"paper", "tables"}:
        raise StsbenchError(f"{path}: needs 'paper' and 'tables', and nothing else")
    paper = _checked(Paper, raw["paper"], {}, f"{path}: paper")
    if paper.id != path.stem:
        raise StsbenchError(f"{path}: paper: the id '{paper.id}' is not the file's name '{path.stem}'")
    tables = [_table(path, paper, table, at) for at, table in enumerate(_mappings(raw["tables"], f"{path}: tables"), 1)]
    publication = Publication(paper=paper, tables=tuple(tables))
    if twice := [id for id, times in Counter(row.id for row in publication.rows).items() if times > 1]:
        raise StsbenchError(f"{path}: two rows are {twice[0]} (paper:table:row): number them apart, or name a part")
    return publication


def _table(path: Path, paper: Paper, raw: dict[str, Any], position: int) -> PublishedTable:
    part = f"/{raw['part']}" if raw.get("part") else ""
    where = f"{path}: table {raw.get('table', f'number {position}')}{part}"
    heading = _checked(Heading, {key: value for key, value in raw.items() if key != "rows"}, {"paper": paper}, where)
    rows = tuple(
        _checked(PublishedRow, row, {"heading": heading}, f"{where}, row {row.get('row', f'number {at}')}")
        for at, row in enumerate(_mappings(raw.get("rows"), f"{where}: rows"), 1)
    )
    return PublishedTable(**dict(heading), rows=rows)


def _mappings(raw: Any, where: str) -> list[dict[str, Any]]:
    if not isinstance(raw, list) or not raw or not all(isinstance(item, dict) for item in raw):
        raise StsbenchError(f"{where}: needs a list of mappings")
    return raw


def _checked(model: type[_Model], raw: object, structure: Mapping[str, PublishedModel], where: str) -> _Model:
    """`raw` as a `model`. structure: fields that follow from its place in the file, which it may not set."""
    if not isinstance(raw, dict):
        raise StsbenchError(f"{where}: needs a mapping")
    if wrong := sorted(structure.keys() & raw.keys()):
        raise StsbenchError(f"{where}: {wrong[0]}: may not be given here")
    try:
        return model.model_validate({**raw, **structure})
    except ValidationError as error:
        first = error.errors()[0]
        field = "".join(f"{part}: " for part in first["loc"])
        raise StsbenchError(f"{where}: {field}{first['msg'].removeprefix('Value error, ')}") from error
