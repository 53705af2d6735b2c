"""Pages of the losses: one each, with its formula, from its docstring; an index by kind. mkdocstrings reads them."""

from __future__ import annotations

import ast
from pathlib import Path


def pages(root: Path) -> dict[str, tuple[str, str]]:
    """Return site path -> (title, Markdown), of the names that stsbench/losses/__init__.py lists: nothing is imported."""
    room = root / "stsbench" / "losses"
    index = f"# Losses\n\n{ast.get_docstring(_tree(room, '__init__'))}\n"
    made = {}
    for module, names in _names(room).items():
        tree = _tree(room, module)
        described = {node.name: ast.get_docstring(node) or "" for node in tree.body
                     if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        summary = " ".join((ast.get_docstring(tree) or "").partition("\n\n")[0].split())
        index += f"\n## {module}\n\n{summary}\n\n| loss | what it is |\n| --- | --- |\n"
        for name in names:
            line = described[name].partition("\n")[0].removeprefix("Return ")
            index += f"| [`{name}`]({name}.md) | {line[0].upper()}{line[1:]} |\n"
            block = f"::: stsbench.losses.{module}.{name}\n    options:\n      heading_level: 1\n"
            made[f"losses/{name}.md"] = (name, block)
    return {"losses/index.md": ("All losses", index), **made}


def _tree(room: Path, module: str) -> ast.Module:
    return ast.parse((room / f"{module}.py").read_text("utf-8"))


def _names(room: Path) -> dict[str, tuple[str, ...]]:
    """Return module -> its public names."""
    values = (node.value for node in _tree(room, "__init__").body if isinstance(node, ast.Assign)
              and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "NAMES")
    names: dict[str, tuple[str, ...]] = ast.literal_eval(next(values))
    return names
