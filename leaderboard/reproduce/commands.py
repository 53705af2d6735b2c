"""The commands that make a published row, ready to be typed."""

from __future__ import annotations

import shlex
from pathlib import Path

from stsbench.data.fetch.sources import NAMED
from stsbench.data.sets.catalog import entries
from stsbench.errors import StsbenchError
from stsbench.leaderboard.publications.model import Heading, PublishedRow
from stsbench.training.recipes.recipe import Recipe
from stsbench.training.recipes.recipes import shipped_recipe

from .ways import Way

SUBSETS, SEEDS = 5, 3  # of few labels: DiffAug's Table 2; of all labels: SEEDS runs
NO_LABELS = "0 %"  # the column of the unsupervised method: one run


def protocol_of(heading: Heading) -> str | None:
    """What --protocol or --eval takes for the table's figures; None where training itself gives them, or they are costs."""
    if heading.protocol in ("sts", "few-labels"):
        return {None: "sts:all", "unknown": "sts"}.get(heading.aggregation, f"sts:{heading.aggregation}")
    if heading.protocol == "dev":
        return "transfer" if heading.task == "transfer" else None
    return None if heading.protocol == "cost" else heading.protocol


def commands(row: PublishedRow, way: Way, data_dir: Path | None) -> list[str]:
    """The row's commands, in order. data_dir: is named in each that reads SentEval's data."""
    protocol = protocol_of(row.heading)
    data_options = [] if data_dir is None else ["--data-dir", str(data_dir)]
    lines = []
    for name in way.recipes:
        words = ["stsbench", "train", *_recipe(row, way, name)]
        if way.eval is None and protocol:
            words += ["--eval", protocol]
        if way.eval is not None:
            words += ["--output", "RUN"]
        lines.append([*words, *data_options])
    if way.eval is not None:
        model = ["--model", "RUN"] if way.recipe else []
        lines.append(["stsbench", "eval", *model, *shlex.split(way.eval), "--protocol", protocol or "all", *data_options])
    if way.checkpoint is not None:
        lines.append(["stsbench", "eval", *shlex.split(way.checkpoint), "--protocol", protocol or "all", *data_options])
    return [shlex.join(words) for words in lines]


def _recipe(row: PublishedRow, way: Way, name: str) -> list[str]:
    """METHOD --recipe NAME, its training text, and as many runs as the row is a mean of."""
    method, _, short = name.partition("/")
    words = [method, "--recipe", short]
    try:
        recipe = shipped_recipe(name)
    except StsbenchError:
        return words
    if recipe.data.file and not known_data(recipe.data.file):
        words += ["--data", Path(recipe.data.file).name]
    if recipe.labelled and recipe.labelled.file and not known_data(recipe.labelled.file):
        words += ["--labelled", Path(recipe.labelled.file).name]
    if row.heading.protocol == "few-labels":
        if _few(recipe):
            return [*words, "--subsets", str(SUBSETS), "--seeds", str(SEEDS)]
        return words if way.recipe_of(NO_LABELS) == name else [*words, "--seeds", str(SEEDS)]
    return [*words, "--seeds", str(row.runs)] if row.runs and row.runs > 1 else words


def known_data(name: str) -> tuple[str, ...]:
    """The ids of the catalog's sets that a recipe's data.file stands for, where it names no file; () where it does."""
    if name in NAMED:
        return NAMED[name].sets
    return tuple(item.id for item in entries("senteval") if item.id == name)


def _few(recipe: Recipe) -> bool:
    return any(part is not None and part.share < 1 for part in (recipe.data, recipe.labelled))
