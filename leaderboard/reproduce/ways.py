"""How a published row can be made: as stated, as another row of the same figures, or by the recipe that holds its figures.

leaderboard/reproductions/PAPER.yaml states the recipe or the command of a row, or why there is none.
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Self

from pydantic import model_validator

from stsbench.config import parse_yaml
from stsbench.errors import StsbenchError
from stsbench.leaderboard.records.paths import REPRODUCTIONS
from stsbench.leaderboard.records.publications import (
    Heading,
    Paper,
    Publication,
    PublishedModel,
    PublishedRow,
    Text,
    checked,
)
from stsbench.parsing import MOST_YAML, read_text
from stsbench.registry import names
from stsbench.training.recipes.methods import GROUP
from stsbench.training.recipes.recipes import find_recipe, recipe_names

ENOUGH = 5  # so many figures do not agree in two rows by chance
Figure = tuple[str, str, str, float]  # protocol and metric as recipes name them, task, score
Holders = Mapping[Figure, set[tuple[str, str]]]  # figure -> (METHOD/RECIPE, the paper it cites)


class Way(PublishedModel):
    """How a published row is made.

    recipe: METHOD/NAME, or column -> METHOD/NAME; eval: options of `stsbench eval`, for a row without training or for the
    test of the model that the recipe trains; checkpoint: options of `stsbench eval` for the authors' released weights, an
    alternative to the recipe; missing: why the row has neither recipe nor eval; not_held: why the recipe does not list the
    row's figures as its published ones, or column -> why; note: a remark on the command.
    """

    recipe: Text | dict[str, Text] | None = None
    eval: Text | None = None
    checkpoint: Text | None = None
    missing: Text | None = None
    not_held: Text | dict[str, Text] | None = None
    note: Text | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.missing is None) == (self.recipe is None and self.eval is None):
            raise ValueError("needs recipe, eval or both, or else missing")
        if self.eval is not None and ("--model" in shlex.split(self.eval)) == (self.recipe is not None):
            raise ValueError("eval names its --model, unless a recipe trains it")
        if self.checkpoint is not None and (self.recipe is None or "--model" not in shlex.split(self.checkpoint)):
            raise ValueError("checkpoint names a --model, beside a recipe; without a recipe it is eval")
        for name in self.recipes:
            if name.count("/") != 1:
                raise ValueError(f"'{name}' is not METHOD/RECIPE")
        return self

    @property
    def recipes(self) -> tuple[str, ...]:
        """Return the recipes of all columns, each once."""
        if isinstance(self.recipe, dict):
            return tuple(dict.fromkeys(self.recipe.values()))
        return () if self.recipe is None else (self.recipe,)

    @property
    def model(self) -> str | None:
        """Return the --model of `eval` or `checkpoint`."""
        words = shlex.split(self.checkpoint or self.eval or "")
        return words[words.index("--model") + 1] if "--model" in words[:-1] else None

    def column_recipe(self, column: str) -> str | None:
        """Return the recipe that makes a column's figure; None for none."""
        return self.recipe.get(column) if isinstance(self.recipe, dict) else self.recipe

    def holds(self, column: str) -> bool:
        """Return whether the column's recipe lists the figure among its published ones."""
        return self.not_held is None or (isinstance(self.not_held, dict) and column not in self.not_held)


def load_ways(folder: Path | None = None) -> dict[str, Way]:
    """Return row id ("simcse:5:7") -> way, of all files of `folder` (by default the package's).

    Raises StsbenchError naming file, table and row of the first mistake.
    """
    stated: dict[str, Way] = {}
    for path in sorted((folder or REPRODUCTIONS).glob("*.yaml")):
        tables = parse_yaml(read_text(path, MOST_YAML), str(path))
        for table, rows in _mapping(tables, str(path)).items():
            for row, raw in _mapping(rows, f"{path}: table {table}").items():
                stated[f"{path.stem}:{table}:{row}"] = checked(Way, raw, {}, f"{path}: table {table}, row {row}")
    return stated


def _mapping(raw: Any, where: str) -> Mapping[Any, Any]:
    if not isinstance(raw, dict):
        raise StsbenchError(f"{where}: needs a mapping")
    return raw


def resolve(publications: Sequence[Publication], stated: Mapping[str, Way]) -> dict[str, Way]:
    """Return row id -> way, for the rows that have one. stated: the ways of `load_ways`.

    A stated way comes first. Then follows the way of another row with the same figures (at least ENOUGH), since tables copy
    each other. Then the only recipe that lists all of the row's figures; for fewer than ENOUGH it must cite the row's paper.
    Raises StsbenchError where a way is stated for a row that does not exist.
    """
    rows = {row.id: row for publication in publications for row in publication.rows}
    if wrong := next((id for id in stated if id not in rows), None):
        raise StsbenchError(f"leaderboard/reproductions states how {wrong} is made, and there is no such published row")
    resolved = dict(stated)
    same: dict[object, str] = {}
    for id in sorted(stated, key=lambda id: rows[id].copied_from is not None):  # originals before their copies
        if key := _key(rows[id]):
            same.setdefault(key, id)
    holders = _holders()
    for id, row in rows.items():
        if id in resolved:
            continue
        if (other := same.get(_key(row))) is not None:
            resolved[id] = stated[other].model_copy(update={"note": f"the figures of {other}", "not_held": None})
        elif way := _by_figures(row, holders):
            resolved[id] = way
    return resolved


def _key(row: PublishedRow) -> object:
    """Return the key that copies of one row share, its heading and figures; None for too few figures."""
    heading = row.heading
    if sum(score is not None for score in row.scores) < ENOUGH:
        return None
    return heading.protocol, heading.metric, heading.aggregation, heading.columns, row.scores


@cache
def _holders() -> Holders:
    """Return figure -> recipes that list it as published, of all methods."""
    holders: defaultdict[Figure, set[tuple[str, str]]] = defaultdict(set)
    for method in names(GROUP):
        for name in recipe_names(method):
            recipe = find_recipe(method, name)[0]
            paper = recipe.source.paper if recipe.source else ""
            for row in recipe.published:
                for task, score in row.scores.items():
                    holders[row.protocol, row.metric, task, score].add((f"{method}/{name}", paper))
    return holders


def _by_figures(row: PublishedRow, holders: Holders) -> Way | None:
    """Return the way by the only recipe that lists the row's figures, or, for few labels, by one per column; else None."""
    figures = [(column, score) for column, score in _figures(row) if score is not None]
    if row.heading.protocol == "few-labels":
        recipes = {column: name for column, score in figures if (name := _single_recipe(row, [(column, score)], holders))}
        return Way(recipe=recipes) if recipes else None
    name = _single_recipe(row, figures, holders)
    return Way(recipe=name) if name else None


def _figures(row: PublishedRow) -> Iterator[tuple[str, float | None]]:
    yield from zip(row.heading.columns, row.scores, strict=True)
    yield "Avg", row.average


def _single_recipe(row: PublishedRow, figures: Sequence[tuple[str, float]], holders: Holders) -> str | None:
    if not figures:
        return None
    common: set[tuple[str, str]] | None = None
    for column, score in figures:
        protocols, metric, task = _recipe_terms(row.heading, column)
        matching = {one for protocol in protocols for one in holders.get((protocol, metric, task, score), ())}
        common = matching if common is None else common & matching
    cited = {name for name, paper in common or () if _cites(paper, row.heading.paper)}
    candidates = cited or ({name for name, _ in common or ()} if len(figures) >= ENOUGH else set())
    return candidates.pop() if len(candidates) == 1 else None


def _cites(source: str, paper: Paper) -> bool:
    """Return whether a recipe's source, such as "Gao et al. 2021 (SimCSE)", is `paper`."""
    return source.startswith(" ".join(filter(None, (paper.authors, str(paper.year or "")))))


def _recipe_terms(heading: Heading, column: str) -> tuple[tuple[str, ...], str, str]:
    """Return the names that recipes use for a column: possible protocols, metric and task."""
    if heading.protocol == "dev":
        transfer = heading.task == "transfer"
        return (("transfer dev",), heading.metric, "Avg") if transfer else (("sts-b dev",), heading.metric, "STS-B")
    if heading.protocol == "retrieval":
        return ("retrieval",), column, heading.task or column
    if heading.protocol not in ("sts", "few-labels"):
        return (heading.protocol,), heading.metric, column
    forms = {None: ("sts", "sts:all"), "unknown": ("sts", "sts:unknown")}
    return forms.get(heading.aggregation, (f"sts:{heading.aggregation}",)), heading.metric, "Avg" if heading.task else column
