"""Words that the glossary of CONTRIBUTING.md replaces are gone from names, options, messages, templates and pages."""

import re

import pytest
from source_facts import ROOT, facts

# Names that checkpoints and exported prompts hold.
STORED = {("methods/diffcse/method.py", "found"), ("stsbench/encoders/prompt/prompt.py", "each")}
# What is generated, recorded or copied from papers, and where old words are quoted.
SKIPPED = (
    "leaderboard/measured", "leaderboard/published", "leaderboard/site", "stsbench/data/sample",
    "docs/findings/protocol-sensitivity.md", "leaderboard/web/node_modules", "CHANGELOG.md",
)
FOLDERS = ("stsbench", "protocols", "methods", "leaderboard", "benchmarks", "docs")
GLOSSARY = re.compile(r"^## Words\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)  # of CONTRIBUTING.md

CLASSES = {"Begun", "Beside", "Found", "Origin", "Watcher"}
NAMES = {"begun", "beside", "instead", "say", "stored_begun", "told_apart", "watcher"}
LOCAL = {
    "alike", "apart", "company", "each", "found", "given", "held", "mine", "ours", "own", "place", "places", "said", "seen",
    "sound", "theirs", "together", "typed", "ways",
}
VIEWS = ("stsbench/losses", "stsbench/training", "methods")  # contrastive views
PHRASES = re.compile(
    r"\btold apart|\bacts? in no way|\bone fit at a time|\bgives? none\b|\bgives? no batch"
    r"|(?<!here )\b(?:is|are) no (?:numbers?|folder|directory|text|UTF-8|JSON|CSV|file|\w+ (?:file|folder|format|text))\b",
    re.IGNORECASE,
)
OPTION = re.compile(r"--view\b")


def files(root):
    listed = [*root.glob("*.md")]
    for folder in FOLDERS:
        listed += [path for path in (root / folder).rglob("*") if path.suffix in (".py", ".md", ".html", ".j2", ".yaml")]
    return sorted(path for path in listed if not _below(path.relative_to(root).as_posix(), SKIPPED))


def _below(name, folders):
    return any(name == folder or name.startswith(f"{folder}/") for folder in folders)


def leftovers(root):
    """(file relative to root, `line: word`) for every word of the glossary's left column."""
    for path in files(root):
        name, text = path.relative_to(root).as_posix(), path.read_text("utf-8")
        if name == "CONTRIBUTING.md":
            text = GLOSSARY.sub("", text)
        for match in [*PHRASES.finditer(text), *OPTION.finditer(text)]:
            number = 1 + text.count("\n", 0, match.start())
            yield name, f"{number}: {match[0]}"
        if path.suffix == ".py":
            for number, word, is_class in facts(text).defined:
                local = word.strip("_") in LOCAL
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
    ("stsbench/a.py", "import re\nmatch.found.own\nf(each=1).ways", ""),  # another library's names
    ("docs/a.md", "There is no file. What was found stays.", ""),
])
def test_a_planted_word_is_found_and_other_uses_are_allowed(tmp_path, file, text, word):
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text(text + "\n", "utf-8")
    assert sorted(leftovers(tmp_path)) == sorted((file, each) for each in word.split("|") if each)
