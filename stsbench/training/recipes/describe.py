"""What a method says of itself, read from its files: card, stages, options with their meanings. Imports no torch."""

from __future__ import annotations

import ast
import inspect
import io
import re
import tokenize
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from stsbench.config import values_of
from stsbench.training.api.options import Options
from stsbench.training.recipes.methods import find_method, load_method, options_of, short_name


@dataclass(frozen=True)
class Option:
    """One of a method's options. default: as in a recipe; values: what it may be; meaning: its comment in the source."""

    name: str
    values: str
    default: Any
    meaning: str


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


def _as_in_recipes(field: FieldInfo) -> Any:
    default = field.get_default(call_default_factory=True)
    return default.model_dump(mode="json") if isinstance(default, BaseModel) else default


_OF_A_TOOL = re.compile(r"(fmt|noqa|type|pragma)\b")


def options(method: str) -> list[Option]:
    """The method's options, in the order of its source."""
    model = options_of(method)
    meanings = _comments(model)
    return [
        Option(name, values_of(field), _as_in_recipes(field), meanings.get(name, ""))
        for name, field in model.model_fields.items()
    ]


def _comments(model: type[Options]) -> dict[str, str]:
    """Field -> the comment behind it in the source, or where that is a tool's (`# noqa`) or none, on the line above."""
    try:
        source = inspect.getsource(model)
    except (OSError, TypeError):
        return {}
    tokens = [token for token in tokenize.generate_tokens(io.StringIO(source).readline) if token.type == tokenize.COMMENT]
    behind = {token.start[0]: token.string.lstrip("# ") for token in tokens}
    above: dict[int, str] = {}  # line -> the lines of comment that end above it
    for token in tokens:
        if token.line.lstrip().startswith("#"):
            line = token.start[0]
            above[line + 1] = " ".join(filter(None, [above.pop(line, ""), token.string.lstrip("# ")]))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.AnnAssign) and node.lineno in above:
            end = node.end_lineno or 0
            if end not in behind or _OF_A_TOOL.match(behind[end]):
                behind[end] = above[node.lineno]
    return {
        node.target.id: behind[node.end_lineno]
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.end_lineno in behind
    }
