"""What the Python files that import as stsbench say, for the tests of how they are laid out: each is parsed once."""

import ast
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
TOPS = ("stsbench", "protocols", "methods", "leaderboard")
OWNERS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class Facts(NamedTuple):
    """imports: inside functions, too; typing_only: those of them that only a type checker runs; words: names, attributes,
    arguments and whole strings; members: attributes and imported names; strings: (line, text) of each but docstrings;
    defined: (line, name, whether it is a class) of all that a file defines, assigns or takes as a parameter."""

    imports: list[ast.Import | ast.ImportFrom]
    typing_only: set[ast.AST]
    words: set[str]
    members: set[str]
    strings: list[tuple[int, str]]
    defined: list[tuple[int, str, bool]]


@cache
def tree():
    paths = [path for name in TOPS for path in sorted((ROOT / name).rglob("*.py"))]
    return {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in paths}


@cache
def facts(text):
    made, docstrings = Facts([], set(), set(), set(), [], []), set()
    for node in ast.walk(ast.parse(text)):  # an owner comes before its docstring
        if isinstance(node, OWNERS) and node.body and isinstance(node.body[0], ast.Expr):
            docstrings.add(node.body[0].value)
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            made.typing_only.update(ast.walk(node))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            made.imports.append(node)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docstrings:
            made.strings.append((node.lineno, node.value))
        said = (getattr(node, key, None) for key in ("id", "attr", "arg", "value"))
        made.words.update(word for word in said if isinstance(word, str))
        if isinstance(node, ast.Attribute | ast.alias):
            made.members.add(node.attr if isinstance(node, ast.Attribute) else node.name)
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.arg(arg=name):
                made.defined.append((node.lineno, name, isinstance(node, ast.ClassDef)))
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                made.defined.append((node.lineno, name, False))
            case ast.alias(asname=str() as name):
                made.defined.append((node.lineno, name, False))
            case ast.ExceptHandler(name=str() as name) | ast.MatchAs(name=str() as name) | ast.MatchStar(name=str() as name):
                made.defined.append((node.lineno, name, False))
    return made
