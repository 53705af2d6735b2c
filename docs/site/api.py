"""Pages of the Python API: one a package, with the names that its `__all__` lists. mkdocstrings reads their docstrings."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

PACKAGES = {
    "stsbench": "What the command line does, as functions.",
    "stsbench.encoders": "From text to vectors.",
    "stsbench.evaluation": "Measuring, records, and what a protocol is.",
    "stsbench.training": "Training in a program.",
    "stsbench.training.api": "What a method's author imports.",
    "stsbench.leaderboard": "The board: its rows, what enters it, where it would stand.",
    "stsbench.publish": "Model cards and mteb's result files.",
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
    where: dict[str, str] = {}
    public: list[str] = []
    packages: tuple[str, ...] = ()
    modules: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("stsbench."):
            where |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            if node.targets[0].id == "__all__":
                public = ast.literal_eval(node.value)
            elif node.targets[0].id == "_PACKAGES":
                packages = ast.literal_eval(node.value)
            elif node.targets[0].id == "_PUBLIC":
                modules = {name: str(module) for name, module in ast.literal_eval(node.value).items()}
                full = {n: m if m.startswith("stsbench.") else f"{package}.{m}" for n, m in modules.items()}
                where = {name: f"{module}.{name}" for name, module in full.items()} | where
    if package == "stsbench":  # what extensions add is among its names
        points = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"]
        functions = points.get("stsbench.functions", {})
        where |= {name: value.replace(":", ".") for name, value in functions.items()}
        public = [*modules, *functions]
    public = [name for name in public if name not in packages]
    if missing := [name for name in public if name not in where]:
        raise ValueError(f"{package}: where is {', '.join(missing)} defined?")
    return {name: where[name] for name in sorted(public, key=str.lower)}


def _door(package: str, root: Path) -> ast.Module:
    """A package's __init__.py; those of the outer folders stand beside stsbench/."""
    parts = package.split(".")
    inner, outer = root.joinpath(*parts, "__init__.py"), root.joinpath(*parts[1:], "__init__.py")
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
