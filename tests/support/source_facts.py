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
        kind = type(node)
        if kind in OWNERS and node.body and type(node.body[0]) is ast.Expr:
            docstrings.add(node.body[0].value)
        if kind is ast.Constant:
            if isinstance(node.value, str):
                made.words.add(node.value)
                if node not in docstrings:
                    made.strings.append((node.lineno, node.value))
        elif kind is ast.Name:
            made.words.add(node.id)
            if type(node.ctx) is ast.Store:
                made.defined.append((node.lineno, node.id, False))
        elif kind is ast.Attribute:
            made.words.add(node.attr)
            made.members.add(node.attr)
            if type(node.ctx) is ast.Store:
                made.defined.append((node.lineno, node.attr, False))
        elif kind in (ast.arg, ast.keyword):
            made.words.add(node.arg or "")
            if kind is ast.arg:
                made.defined.append((node.lineno, node.arg, False))
        elif kind in OWNERS[1:]:
            made.defined.append((node.lineno, node.name, kind is ast.ClassDef))
        elif kind in (ast.Import, ast.ImportFrom):
            made.imports.append(node)
        elif kind is ast.alias:
            made.members.add(node.name)
            if node.asname:
                made.defined.append((node.lineno, node.asname, False))
        elif kind in (ast.ExceptHandler, ast.MatchAs, ast.MatchStar) and node.name:
            made.defined.append((node.lineno, node.name, False))
        elif kind is ast.If and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            made.typing_only.update(ast.walk(node))
    return made
