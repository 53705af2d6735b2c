"""Which way a published row is made: as stated, as another row of the same figures, or by the recipe that holds them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from stsbench.errors import StsbenchError
from stsbench.leaderboard.publications.model import Heading, Paper, Publication, PublishedRow
from stsbench.registry import names
from stsbench.training.recipes.methods import GROUP
from stsbench.training.recipes.recipes import find_recipe, recipe_names

from .ways import Way

ENOUGH = 5  # figures that agree by chance in no two rows
Figure = tuple[str, str, str, float]  # protocol and metric as recipes name them, task, score
Holders = Mapping[Figure, set[tuple[str, str]]]  # figure -> (METHOD/RECIPE, the paper it cites)


def resolve(publications: Sequence[Publication], stated: Mapping[str, Way]) -> dict[str, Way]:
    """Row id -> way, of the rows for which there is one.

    What is stated counts first. Then a row with the same figures (ENOUGH of them) as a row that has one, as tables copy each
    other. Then the one recipe that holds all of the row's figures; with fewer than ENOUGH it has to cite the row's paper.
    Raises StsbenchError where a way is stated for a row that is not there.
    """
    rows = {row.id: row for publication in publications for row in publication.rows}
    if wrong := next((id for id in stated if id not in rows), None):
        raise StsbenchError(f"leaderboard/reproductions states how {wrong} is made, and there is no such published row")
    resolved = dict(stated)
    same: dict[object, str] = {}
    for id in sorted(stated, key=lambda id: rows[id].copied_from is not None):  # an original before what copies it
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
    """What rows of one measurement share; None for too few figures."""
    heading = row.heading
    if sum(score is not None for score in row.scores) < ENOUGH:
        return None
    return heading.protocol, heading.metric, heading.aggregation, heading.columns, row.scores


@cache
def _holders() -> Holders:
    """What the recipes of all methods hold."""
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
    """The way by the one recipe that holds the row's figures; by one for each column where columns are recipes."""
    figures = [(column, score) for column, score in _figures(row) if score is not None]
    if row.heading.protocol == "few-labels":
        recipes = {column: name for column, score in figures if (name := _one(row, [(column, score)], holders))}
        return Way(recipe=recipes) if recipes else None
    name = _one(row, figures, holders)
    return Way(recipe=name) if name else None


def _figures(row: PublishedRow) -> Iterator[tuple[str, float | None]]:
    yield from zip(row.heading.columns, row.scores, strict=True)
    yield "Avg", row.average


def _one(row: PublishedRow, figures: Sequence[tuple[str, float]], holders: Holders) -> str | None:
    if not figures:
        return None
    common: set[tuple[str, str]] | None = None
    for column, score in figures:
        protocols, metric, task = _names_of(row.heading, column)
        matching = {one for protocol in protocols for one in holders.get((protocol, metric, task, score), ())}
        common = matching if common is None else common & matching
    cited = {name for name, paper in common or () if _cites(paper, row.heading.paper)}
    candidates = cited or ({name for name, _ in common or ()} if len(figures) >= ENOUGH else set())
    return candidates.pop() if len(candidates) == 1 else None


def _cites(source: str, paper: Paper) -> bool:
    """Whether a recipe's source, "Gao et al. 2021 (SimCSE)", is this paper."""
    return source.startswith(" ".join(filter(None, (paper.authors, str(paper.year or "")))))


def _names_of(heading: Heading, column: str) -> tuple[tuple[str, ...], str, str]:
    """Protocols, metric and task as recipes name a column."""
    if heading.protocol == "dev":
        transfer = heading.task == "transfer"
        return (("transfer dev",), heading.metric, "Avg") if transfer else (("sts-b dev",), heading.metric, "STS-B")
    if heading.protocol == "retrieval":
        return ("retrieval",), column, heading.task or column
    if heading.protocol not in ("sts", "few-labels"):
        return (heading.protocol,), heading.metric, column
    forms = {None: ("sts", "sts:all"), "unknown": ("sts", "sts:unknown")}
    return forms.get(heading.aggregation, (f"sts:{heading.aggregation}",)), heading.metric, "Avg" if heading.task else column
