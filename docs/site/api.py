"""Pages of the Python API: one a package, with the names that its `__all__` lists. mkdocstrings reads their docstrings."""

from __future__ import annotations

import ast
from pathlib import Path

PACKAGES = {
    "stsbench": "What the command line does, as functions.",
    "stsbench.encoders": "From text to vectors.",
    "stsbench.evaluation": "Measuring, records, and what a protocol is.",
    "stsbench.training": "Training in a program.",
    "stsbench.training.api": "What a method's author imports.",
    "stsbench.leaderboard": "The board: its rows, what enters it, where it would stand.",
}


def link_sources(root: Path) -> None:
    """Make build/api/stsbench, the checkout in the shape of an installed stsbench: mkdocstrings, which imports nothing,
    looks for its outer folders there."""
    made = root / "build" / "api" / "stsbench"
    made.mkdir(parents=True, exist_ok=True)
    for path in (*(root / "stsbench").iterdir(), *(root / name for name in ("protocols", "methods", "leaderboard"))):
        if not (link := made / path.name).is_symlink():
            link.symlink_to(path.resolve())


def origins(package: str, root: Path) -> dict[str, str]:
    """Public name -> the dotted name of its definition, from the package's source: nothing is imported. The
    packages among them have pages of their own."""
    tree = _door(package, root)
    where = _imported(tree, package)
    public: list[str] = []
    packages: tuple[str, ...] = ()
    if (module := where.pop("*", "").removesuffix(".*")).endswith(".functions"):  # what extensions add
        more = _imported(_source(module.split("."), ".py", root), module.rpartition(".")[0])
        where |= more
        public += more
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            if node.targets[0].id == "NAMES":
                for module, names in ast.literal_eval(node.value).items():
                    where |= {name: f"{module if '.' in module else f'{package}.{module}'}.{name}" for name in names}
                    public += names
            elif node.targets[0].id == "_PACKAGES":
                packages = ast.literal_eval(node.value)
            elif node.targets[0].id == "_PUBLIC":
                modules = {name: str(module) for name, module in ast.literal_eval(node.value).items()}
                full = {n: m if m.startswith("stsbench.") else f"{package}.{m}" for n, m in modules.items()}
                where = {name: f"{module}.{name}" for name, module in full.items()} | where
                public += full
    public = [name for name in dict.fromkeys(public) if name not in packages]
    if missing := [name for name in public if name not in where]:
        raise ValueError(f"{package}: where is {', '.join(missing)} defined?")
    return {name: where[name] for name in sorted(public, key=str.lower)}


def _imported(tree: ast.Module, package: str) -> dict[str, str]:
    """Name -> the dotted name of what a file of the package imports as it from stsbench; `*` too."""
    nodes = [(node, f"{package}.{node.module}" if node.level else node.module or "") for node in ast.walk(tree)
             if isinstance(node, ast.ImportFrom)]
    return {alias.asname or alias.name: f"{module}.{alias.name}" for node, module in nodes
            if module.startswith("stsbench.") for alias in node.names}


def _door(package: str, root: Path) -> ast.Module:
    """A package's __init__.py."""
    return _source(package.split("."), "/__init__.py", root)


def _source(parts: list[str], end: str, root: Path) -> ast.Module:
    """A file of stsbench; those of the outer folders stand beside stsbench/."""
    inner, outer = (root / f"{'/'.join(names)}{end}" for names in (parts, parts[1:]))
    return ast.parse((inner if inner.is_file() else outer).read_text("utf-8"))


def _summary(package: str, root: Path) -> str:
    return ast.get_docstring(_door(package, root)) or ""


def pages(root: Path) -> dict[str, tuple[str, str]]:
    """Site path -> (title, Markdown)."""
    made = {}
    for package in PACKAGES:
        names = origins(package, root)
        body = "".join(f"\n::: {origin}\n" for origin in names.values())
        made[f"api/{package}.md"] = (package, f"# {package}\n\n{_summary(package, root)}\n\n## Names\n{body}")
    listed = "".join(f"- [{package}]({package}.md): {line}\n" for package, line in PACKAGES.items())
    index = f"# Python\n\n{listed}\nExamples: [Python](../reference/python.md).\n"
    return {"api/index.md": ("Packages", index), "reference/python.md": ("Examples", ""), **made}


def fenced(text: str) -> str:
    """A docstring whose lines from one with >>> to the next blank one are a block of code."""
    lines: list[str] = []
    inside = False
    for line in [*text.splitlines(), ""]:
        if not inside and line.startswith(">>> "):
            lines.append("```pycon")
            inside = True
        elif inside and not line:
            lines.append("```")
            inside = False
        lines.append(line)
    return "\n".join(lines[:-1])
