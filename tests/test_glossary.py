"""Words that the glossary of CONTRIBUTING.md replaces are gone from names, options, messages, templates and pages.

`python tests/test_glossary.py` prints how many are left, folder by folder."""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# Names that checkpoints and exported prompts hold.
STORED = {("methods/diffcse/method.py", "found"), ("stsbench/encoders/prompt/prompt.py", "each")}
# What is generated, recorded or copied from papers, and where old words are quoted.
SKIPPED = (
    "leaderboard/measured", "leaderboard/published", "leaderboard/site", "stsbench/data/sample",
    "docs/findings/protocol-sensitivity.md", "leaderboard/web/node_modules", "tests/test_glossary.py", "CHANGELOG.md",
)
FOLDERS = ("stsbench", "protocols", "methods", "leaderboard", "tests", "benchmarks", "docs")
GLOSSARY = re.compile(r"^## Words\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)  # of CONTRIBUTING.md

CLASSES = {"Begun", "Beside", "Found", "Origin", "Watcher"}
NAMES = {"begun", "beside", "instead", "say", "stored_begun", "told_apart", "watcher"}
LOCAL = {  # in tests these may stay
    "alike", "apart", "company", "each", "found", "given", "held", "mine", "ours", "own", "place", "places", "said", "seen",
    "sound", "theirs", "together", "typed", "ways",
}
VIEWS = (  # contrastive views
    "stsbench/losses", "stsbench/training", "methods", "tests/losses", "tests/training", "tests/methods", "tests/support",
)
PHRASES = re.compile(
    r"\btold apart|\bacts? in no way|\bone fit at a time|\bgives? none\b|\bgives? no batch"
    r"|(?<!here )\b(?:is|are) no (?:numbers?|folder|directory|text|UTF-8|JSON|CSV|file|\w+ (?:file|folder|format|text))\b",
    re.IGNORECASE,
)
OPTION = re.compile(r"--view\b")
# A file without any of them as a word need not be parsed.
MAYBE = re.compile(rf"\b_*(?:{'|'.join(sorted(CLASSES | NAMES | {'view'}))})\b")
MAYBE_LOCAL = re.compile(rf"\b_*(?:{'|'.join(sorted(CLASSES | NAMES | LOCAL | {'view'}))})_*\b")


def files(root: Path) -> list[Path]:
    listed = [*root.glob("*.md")]
    for folder in FOLDERS:
        listed += [path for path in (root / folder).rglob("*") if path.suffix in (".py", ".md", ".html", ".j2", ".yaml")]
    return sorted(path for path in listed if not _below(path.relative_to(root).as_posix(), SKIPPED))


def _below(name: str, folders: tuple[str, ...]) -> bool:
    return any(name == folder or name.startswith(f"{folder}/") for folder in folders)


def defined_names(text: str) -> Iterator[tuple[int, str, bool]]:
    """(line, name, whether it is a class) of everything that a module defines, assigns or takes as a parameter."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.ClassDef():
                yield node.lineno, node.name, True
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.lineno, node.name, False
            case ast.arg():
                yield node.lineno, node.arg, False
            case ast.Name(ctx=ast.Store()):
                yield node.lineno, node.id, False
            case ast.Attribute(ctx=ast.Store()):
                yield node.lineno, node.attr, False
            case ast.alias(asname=str() as name):
                yield node.lineno, name, False
            case ast.ExceptHandler(name=str() as name) | ast.MatchAs(name=str() as name) | ast.MatchStar(name=str() as name):
                yield node.lineno, name, False


def leftovers(root: Path) -> Iterator[tuple[str, str]]:
    """(file relative to root, `line: word`) for every word of the glossary's left column."""
    for path in files(root):
        name, text = path.relative_to(root).as_posix(), path.read_text("utf-8")
        if name == "CONTRIBUTING.md":
            text = GLOSSARY.sub("", text)
        for match in [*PHRASES.finditer(text), *OPTION.finditer(text)]:
            number = 1 + text.count("\n", 0, match.start())
            yield name, f"{number}: {match[0]}"
        if path.suffix == ".py" and (MAYBE if name.startswith("tests/") else MAYBE_LOCAL).search(text):
            for number, word, is_class in defined_names(text):
                local = word.strip("_") in LOCAL and not name.startswith("tests/")
                view = word == "view" and not _below(name, VIEWS)
                if local or view or word.lstrip("_") in (CLASSES if is_class else NAMES):
                    yield name, f"{number}: {word}"


def test_the_glossary_s_old_words_are_gone():
    assert len(files(ROOT)) > 300  # the walk sees something
    left = [(name, *line.split(": ", 1)) for name, line in leftovers(ROOT)]
    assert [f"{name}:{number}: {word}" for name, number, word in left if (name, word) not in STORED] == []
    assert {(name, word) for name, _, word in left} >= STORED  # no exception outlives its name


@pytest.mark.parametrize(("file", "text", "word"), [
    ("stsbench/a.py", "class Begun: ...", "1: Begun"),
    ("stsbench/a.py", "def f(*, view, _place_): ...\ntry: ...\nexcept ValueError as said: ...",
     "1: view|1: _place_|3: said"),
    ("protocols/a.py", "match 1:\n    case mine: ...\nimport x as given\nrows = [each for each in ()]",
     "2: mine|3: given|4: each"),
    ("leaderboard/templates/a.html", "<p>cannot be told apart</p>", "1: told apart"),
    ("docs/a.md", "Use `--view raw`; the score is no number.", "1: is no number|1: --view"),
    ("CONTRIBUTING.md", "told apart\n## Words\ntold apart\n## More\n", "1: told apart"),
    ("methods/a/method.py", "def views(view): return view", ""),  # a contrastive view
    ("tests/a.py", "found = given = own = 1", ""),
    ("stsbench/a.py", "import re\nmatch.found.own\nf(each=1).ways", ""),  # another library's names
    ("docs/a.md", "There is no file. What was found stays.", ""),
])
def test_a_planted_word_is_found_and_other_uses_are_allowed(tmp_path, file, text, word):
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text(text + "\n", "utf-8")
    assert sorted(leftovers(tmp_path)) == sorted((file, each) for each in word.split("|") if each)


if __name__ == "__main__":
    counts = Counter("/".join(Path(name).parts[:2]) for name, _ in leftovers(ROOT))
    for folder, count in sorted(counts.items()):
        sys.stdout.write(f"{count:5} {folder}\n")
    for name, word in leftovers(ROOT) if "-v" in sys.argv else ():
        sys.stdout.write(f"{name}:{word}\n")
