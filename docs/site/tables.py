"""Pages made from recipe files, presets, settings and the record schema, by the code that `stsbench show` runs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from inspect import cleandoc
from pathlib import Path
from typing import Any

from stsbench.evaluation.plan import find_protocol, presets
from stsbench.evaluation.protocol import kinds
from stsbench.registry import names
from stsbench.settings import described
from stsbench.training.recipes.methods import GROUP, find_method, options, options_class, title
from stsbench.training.recipes.recipe import SECTIONS, Recipe, describe_keys
from stsbench.training.recipes.recipes import find_recipe, recipe_names

Pages = dict[str, tuple[str, str]]


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A Markdown table; what Markdown would read in a cell is escaped."""
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    cells = ([str(cell).replace("|", "\\|").replace("\n", " ") for cell in row] for row in lines)
    return "".join(f"| {' | '.join(row)} |\n" for row in cells)


def code(value: object) -> str:
    """A value as a code span; empty for none."""
    return f"`{value}`" if value not in (None, "") else ""


def plain(text: str) -> str:
    """Prose from a source file, its Markdown and HTML signs shown as they are."""
    for sign in "\\*_<[":
        text = text.replace(sign, "&lt;" if sign == "<" else "\\" + sign)
    return text


def recipe_pages(root: Path) -> Pages:
    """A page a method: its options, its recipes, and what each file says."""
    made, rows = {}, []
    for method in names(GROUP):
        folder = find_method(method).folder
        card = f"../methods/{method}.md"
        recipes = [(name, find_recipe(method, name)[0]) for name in recipe_names(method)]
        rows.append([f"[{method}]({method}.md)", len(recipes), plain(title(method))])
        facts = options_class(method)
        text = f"# Recipes of {method}\n\n{plain(title(method))}: [card]({card}). Stages: {', '.join(facts.stages)}. "
        text += f"Default recipe: {code(facts.default_recipe or 'none')}.\n\n"
        text += table(["recipe", "backbone", "description", "published"],
                      [[f"[{name}](#{name.replace('.', '')})", code(one.backbone.model), plain(one.description),
                        plain(_published(one))] for name, one in recipes])
        if chosen := options(method):
            text += "\n## Options\n\n`--set options.NAME=VALUE`, or `options` of a recipe.\n\n"
            text += _settings(chosen)
        text += "\n## Files\n\nWhat a file does not say, the one that it `extends` says.\n"
        parts = sorted((folder / "recipes").glob("_*.yaml"))
        for path in [*parts, *((folder / "recipes" / f"{name}.yaml") for name, _ in recipes)]:
            body = path.read_text("utf-8").rstrip()
            lines = "\n".join(f"    {line}".rstrip() for line in body.splitlines())
            text += f'\n??? abstract "{path.stem}"\n    <span id="{path.stem.replace(".", "")}"></span>\n\n'
            text += f"    ```yaml\n{lines}\n    ```\n"
        made[f"recipes/{method}.md"] = (method, text)
    index = "# Recipes\n\nA recipe is one published row of a paper with every hyperparameter. "
    index += "[How recipes are changed](../reference/recipes.md).\n\n" + table(["method", "recipes", "paper"], rows)
    return {"recipes/index.md": ("All methods", index), **made}


def _published(recipe: Recipe) -> str:
    """Return what the recipe's paper prints for it: each protocol's average, or its scores."""
    lines = []
    for figures in recipe.published:
        shown = {"Avg": figures.scores["Avg"]} if "Avg" in figures.scores else figures.scores
        scores = ", ".join(f"{task} {score}" for task, score in shown.items())
        lines.append(f"{figures.protocol} {figures.metric}: {scores}")
    return "; ".join(lines)


def _settings(rows: Iterable[Any]) -> str:
    cells = [[code(one.name), code(one.default), *map(plain, (one.values, one.meaning, one.goes_with, one.source))]
             for one in rows]
    return table(["setting", "default", "values", "meaning", "goes with", "source"], cells)


def keys_page() -> str:
    """Every key of every section of a recipe."""
    text = "# Keys of a recipe\n\n`--set SECTION.KEY=VALUE` changes one; `stages.NAME.data` and `stages.NAME.training` have "
    text += "those of `data` and `training`, too. [How recipes are changed](recipes.md).\n"
    for name, model in SECTIONS.items():
        text += f"\n## {name}\n\n{plain(cleandoc(model.__doc__ or ''))}\n\n{_settings(describe_keys(name))}"
    return text


def settings_page() -> str:
    """Every setting of every protocol."""
    text = "# Settings of the protocols\n\n`--set PROTOCOL.NAME=VALUE` changes one. All are part of every record.\n"
    for name in kinds():
        protocol = find_protocol(name, {})
        tasks = ", ".join(protocol.tasks()) or "those that are named"
        text += f"\n## {name}\n\nVersion {protocol.version}. Tasks: {tasks}.\n"
        if protocol.variants:
            forms = [[code(f"{name}:{word}"), code(json.dumps(dict(value)))] for word, value in protocol.variants.items()]
            text += "\n" + table(["form", "its settings"], forms)
        rows = described(protocol.settings_model(protocol.settings), protocol.settings)
        text += "\n" + (_settings(rows) if rows else "No settings.\n")
    return text


def presets_page() -> str:
    """Every paper's preset."""
    text = "# Papers' presets\n\n`--protocol NAME` applies the settings that a paper reports.\n"
    for name, preset in presets().items():
        text += f"\n## {name}\n\n{plain(preset['paper'])}\n\n"
        cells = [[code(part["protocol"]), code(json.dumps(part.get("settings", {})))] for part in preset["parts"]]
        text += table(["protocol", "settings"], cells)
    return text


def _type(field: dict[str, Any]) -> str:
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in field:
        return " or ".join(_type(part) for part in field["anyOf"])
    if "enum" in field or "const" in field:
        return ", ".join(code(part) for part in field.get("enum", [field.get("const")]))
    if field.get("type") == "array":
        return f"list of {_type(field.get('items', {}))}"
    if field.get("type") == "object" and isinstance(field.get("additionalProperties"), dict):
        return f"mapping to {_type(field['additionalProperties'])}"
    return str(field.get("type", "any"))


def schema_page(root: Path) -> str:
    """The record's JSON Schema as tables, one a definition."""
    schema = json.loads((root / "docs/reference/record.schema.json").read_text("utf-8"))
    text = "# Record schema\n\nMade from [record.schema.json](record.schema.json). [Records](records.md) has the meanings.\n"
    for name, part in {"Record": schema, **schema["$defs"]}.items():
        text += f"\n## {name}\n\n{plain(part.get('description', ''))}\n\n"
        required = set(part.get("required", []))
        text += table(["field", "type", "required"],
                      [[code(key), _type(field), "yes" if key in required else "no"]
                       for key, field in part.get("properties", {}).items()])
    return text
