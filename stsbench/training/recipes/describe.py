"""What a method and a recipe's sections say of themselves: card, options and keys with their meanings. Imports no torch."""

from __future__ import annotations

import inspect

from stsbench.errors import StsbenchError
from stsbench.registry import did_you_mean
from stsbench.settings import Described, defaults_of, described, sections
from stsbench.training.recipes.methods import find_method, load_method, options_of, short_name
from stsbench.training.recipes.recipe import Recipe

SECTIONS = {"recipe": Recipe, **sections(Recipe)}  # by dotted key, the recipe's own keys first


def card(method: str) -> str:
    """The method's card.md; of a method without one its name and its class's docstring."""
    path = find_method(method).folder / "card.md"
    if path.is_file():
        return path.read_text("utf-8")
    return f"# {short_name(method)}\n\n{inspect.cleandoc(load_method(method).__doc__ or '')}"


def title(method: str) -> str:
    """The first heading of the card, "" where there is none."""
    path = find_method(method).folder / "card.md"
    lines = path.read_text("utf-8").splitlines() if path.is_file() else []
    return next((line.lstrip("# ").strip() for line in lines if line.startswith("#")), "")


def options(method: str) -> list[Described]:
    """Return the method's options, in the order of its source."""
    model = options_of(method)
    return described(model, defaults_of(model))


def keys_of(section: str) -> list[Described]:
    """Return the keys of one of SECTIONS, without those that are sections themselves. Raises StsbenchError, one line."""
    if section not in SECTIONS:
        raise StsbenchError(f"a recipe has no section '{section}'{did_you_mean(section, SECTIONS)}")
    rows = described(SECTIONS[section], defaults_of(SECTIONS[section]))
    return [row for row in rows if (row.name if section == "recipe" else f"{section}.{row.name}") not in SECTIONS]
