"""What a method says of itself, read from its files: card, stages, options with their meanings. Imports no torch."""

from __future__ import annotations

import ast
import inspect
import io
import tokenize
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from stsbench.config import values_of
from stsbench.errors import StsbenchError
from stsbench.registry import resolve
from stsbench.training.api.options import Options
from stsbench.training.recipes.recipes import GROUP, folder_of, options_model


@dataclass(frozen=True)
class Option:
    """One of a method's options. default: as in a recipe; values: what it may be; meaning: its comment in the source."""

    name: str
    values: str
    default: Any
    meaning: str


def card(method: str) -> str:
    """The method's card.md. Raises StsbenchError for a method without one."""
    path = folder_of(method) / "card.md"
    if not path.is_file():
        raise StsbenchError(f"the method '{method}' has no card ({path})")
    return path.read_text("utf-8")


def title(method: str) -> str:
    """The first heading of the card, "" where there is none."""
    path = folder_of(method) / "card.md"
    lines = path.read_text("utf-8").splitlines() if path.is_file() else []
    return next((line.lstrip("# ").strip() for line in lines if line.startswith("#")), "")


def stages(method: str) -> tuple[str, ...]:
    """The method's stages, from its source where they stand there in full; else the method is loaded, with torch."""
    point = next(iter(entry_points(group=GROUP, name=method)), None)
    found = find_spec(point.module) if point else None
    if point and found and found.origin and Path(found.origin).suffix == ".py":
        for node in ast.parse(Path(found.origin).read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and node.name == point.attr:
                bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
                assigned = [value for each in node.body if (value := _assigned(each, "stages")) is not None]
                with suppress(ValueError):  # no literal
                    if assigned:
                        return tuple(map(str, ast.literal_eval(assigned[0])))
                if not assigned and bases == ["Method"]:
                    return ("main",)  # Method's own
    return tuple(resolve(GROUP, method).stages)


def _assigned(node: ast.stmt, name: str) -> ast.expr | None:
    """What a statement gives the variable `name`; None where it gives it nothing."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    named = any(isinstance(each, ast.Name) and each.id == name for each in targets)
    return node.value if named and isinstance(node, ast.Assign | ast.AnnAssign) else None


def options(method: str) -> list[Option]:
    """The method's options, in the order of its source."""
    model = options_model(method)
    meanings = _comments(model)
    return [
        Option(name, values_of(field), field.get_default(call_default_factory=True), meanings.get(name, ""))
        for name, field in model.model_fields.items()
    ]


def _comments(model: type[Options]) -> dict[str, str]:
    """Field -> the comment behind it in the source."""
    try:
        source = inspect.getsource(model)
    except (OSError, TypeError):
        return {}
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    behind = {token.start[0]: token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT}
    return {
        node.target.id: behind[node.end_lineno]
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.end_lineno in behind
    }
