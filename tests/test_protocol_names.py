"""A protocol declares itself: nothing outside protocols/ knows one by name, but for what is listed here, with the reason."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from core_protocols import core_protocols

ROOT = Path(__file__).resolve().parents[1]
PACKAGE, FLAG, STAGE = "the package mteb", "the flag of STS labels", "a stage of the method"
ALLOWED = {  # file or folder -> the strings that may stand there, None for any, and why
    "stsbench/registry.py": ({"sts"}, "what is measured by default"),
    "stsbench/data/sets/sets.py": ({"mteb:"}, PACKAGE),
    "stsbench/data/fetch/mteb.py": ({"mteb"}, PACKAGE),
    "stsbench/encoders/options.py": ({"mteb"}, PACKAGE),
    "stsbench/encoders/prompt": ({"mteb"}, PACKAGE),
    "leaderboard/imports": ({"mteb"}, PACKAGE),
    "stsbench/cli/show.py": ({"sts:all", "transfer"}, "what papers print of a recipe"),
    "stsbench/training/engine/selection.py": ({"transfer"}, "development data that papers choose checkpoints by"),
    "stsbench/training/recipes/sections.py": ({"sts:", "pairs:"}, "pairs of one's own that choose checkpoints"),
    "leaderboard/entry_commands.py": ({"sts"}, FLAG),
    "leaderboard/api.py": ({"sts"}, FLAG),
    "leaderboard/records/publications.py": ({"sts"}, FLAG),
    "leaderboard/ranks/board.py": ({"sts"}, FLAG),
    "leaderboard/records/entries.py": ({"sts"}, FLAG),
    "leaderboard/page/findings.py": ({"transfer", "geometry", "sts:all"}, "tabs of one page's table"),
    "leaderboard/identify": (None, "it asks which of the literature's settings a printed row has"),
    "leaderboard/reproduce": (None, "it asks which commands measure what papers print"),
    "methods/sbert": ({"sts"}, STAGE),
}
OWNERS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def _strings(source: str) -> Iterator[ast.Constant]:
    tree = ast.parse(source)
    docs = {id(node.body[0].value) for node in ast.walk(tree)
            if isinstance(node, OWNERS) and node.body and isinstance(node.body[0], ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node


def named_in(source: str, path: str) -> list[str]:
    """"path:line: name" of each protocol that a file names without being allowed to."""
    protocol = re.compile(rf"(?:{'|'.join(core_protocols())})(?::\S*)?")
    words = {"pairs", "triplets"}  # by themselves, words of the language
    allowed = [words for place, (words, _) in ALLOWED.items() if Path(path).is_relative_to(place)]
    return [f"{path}:{each.lineno}: {each.value}" for each in _strings(source) if protocol.fullmatch(str(each.value))
            and each.value not in words and not any(some is None or each.value in some for some in allowed)]


def test_nothing_outside_protocols_names_one():
    files = [path for top in ("stsbench", "leaderboard", "methods") for path in sorted((ROOT / top).rglob("*.py"))
             if "extensions" not in path.relative_to(ROOT).parts]
    assert len(files) > 300
    named = [name for path in files for name in named_in(path.read_text("utf-8"), path.relative_to(ROOT).as_posix())]
    assert not named, "let the protocol declare it (stsbench/evaluation/protocol.py): " + "; ".join(named)


@pytest.mark.parametrize("planted", ['"regression"', '"sts:mean"', '"retrieval:"', '{"geometry": 1}'])
@pytest.mark.parametrize("file", ["leaderboard/records/admission.py", "leaderboard/ranks/lines.py"])
def test_a_planted_name_is_found(planted, file):
    source = (ROOT / file).read_text("utf-8")
    assert not named_in(source, file)
    assert len(named_in(f"{source}\nPLANTED = {planted}\n", file)) == 1


def test_what_is_allowed_is_there():
    """An entry of the list that nothing needs any more would hide what comes later."""
    for place, (words, reason) in ALLOWED.items():
        path = ROOT / place
        if place.startswith("leaderboard/") and not path.suffix and not path.exists():
            continue  # an extension of the board, which .ci/fence takes out
        files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
        there = {str(each.value) for file in files for each in _strings(file.read_text("utf-8"))}
        assert reason and (words is None or words <= there), place
