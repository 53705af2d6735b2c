"""Imports run one way: a level for each room, no circle of files or rooms; and commands stay quick to load. A
protocol declares itself: nothing outside protocols/ knows one by name, but for what is listed here, with the reason. CSV is
written in one place. Words that the glossary of CONTRIBUTING.md replaces are gone from names, options, messages, templates
and pages."""

import ast
import re
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from core_protocols import core_protocols
from source_facts import ROOT, facts, tree

OUTER = ("protocols", "methods", "leaderboard")
# Rooms of the core: a file imports from its own room and from rooms that stand before it. "" is the core's root.
CORE = (
    "", "losses", "display", "metrics", "probes", "data.sets", "data.fetch", "data.text", "data.own", "encoders",
    "encoders.cache", "encoders.post", "encoders.forward", "encoders.prompt", "encoders.transformer", "encoders.light",
    "evaluation", "training", "training.modules", "training.api", "training.recipes", "training.rows", "training.engine",
    "training.runs", "comparison", "cli",
)
# Rooms of the board, which may import the core, too.
BOARD = ("leaderboard.records", "leaderboard.ranks", "leaderboard.page", "leaderboard")
# Extensions of the board: they import the board, which finds them through entry points.
FENCED = tuple(f"leaderboard.{name}" for name in (
    "findings", "identify", "imports", "local_page", "mteb", "own", "prompts", "reproduce", "submissions"))
NEEDED = {("leaderboard.imports", "leaderboard.mteb")}  # (of these, the one that it needs): an import renews its table
EXTENSIONS = "extensions"
# What type checkers see of all extensions together.
FOR_TYPES = ("extensions.arguments", "extensions.functions", "leaderboard.functions")
SHARED = ("extensions.cluster",)  # what several extensions are made of
MOST = 16  # modules that a reader meets in one room


@dataclass(frozen=True)
class Module:
    """A file, dotted below stsbench; a package's __init__.py is called as the package."""

    name: str
    package: bool = False

    @property
    def room(self) -> str:
        return self.name if self.package else self.name.rpartition(".")[0]


def modules(files):
    """Dotted name -> module and file, of every file of a tree. The doors, __main__ and the package's own names,
    stand outside."""
    held = {}
    for file in files:
        parts = file.removeprefix("stsbench/").removesuffix(".py").split("/")
        package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if package else parts)
        if name not in ("", "__main__"):
            held[name] = Module(name, package), file
    return held


def arrows(files):
    """(importing module, imported module, where) for every import of stsbench's own modules in a tree of texts."""
    known = modules(files)
    for module, file in known.values():
        for node in facts(files[file]).imports:
            if isinstance(node, ast.Import):
                targets = [alias.name for alias in node.names]
            else:
                assert node.level < 2, f"{file}:{node.lineno}: an import of what does not stand beside"
                package = ".".join(filter(None, ["stsbench", module.room, node.module])) if node.level else node.module
                # `from stsbench.data.fetch import fetch` may name a module or an object of the package.
                both = [(f"{package}.{alias.name}", package or "") for alias in node.names]
                targets = [name if name.removeprefix("stsbench.") in known else package for name, package in both]
            for target in targets:
                if target == "stsbench" or target.startswith("stsbench."):
                    name = target.removeprefix("stsbench").removeprefix(".")
                    if name in known and known[name][0] != module:
                        yield module, known[name][0], f"{file}:{node.lineno}: {target}"


def wrong(here, there):
    """Why this arrow may not be, or None."""
    if here.name in FOR_TYPES:
        return None
    wing, other = here.name.partition(".")[0], there.name.partition(".")[0]
    if there.name in SHARED and wing == EXTENSIONS:
        return None
    if other == EXTENSIONS and not here.name.startswith(".".join(there.name.split(".")[:2])):
        return None if there.name in FOR_TYPES else f"{here.name} imports {there.name}, an extension"
    if wing == EXTENSIONS:
        return f"an extension imports {other}: it is reached through entry points" if other in OUTER else None
    if wing not in OUTER:
        if other in OUTER:
            return f"the core imports {other}: it is reached through entry points"
        if here.room != there.room and CORE.index(there.room) >= CORE.index(here.room):
            return f"{here.room or 'the root'} imports {there.room or 'the root'}, which does not stand before it"
        return None
    if other not in OUTER:
        return f"{wing} import the command line" if other == "cli" and wing != "leaderboard" else None
    if other != wing:
        return f"{wing} import {other}"
    if wing == "leaderboard":
        if there.room in FENCED and here.room != there.room and (here.room, there.room) not in NEEDED:
            return f"{here.room} imports {there.room}, an extension of the board"
        if here.room in FENCED:
            return None
        later = here.room != there.room and BOARD.index(there.room) >= BOARD.index(here.room)
        return f"{here.room} imports {there.room}, which does not stand before it" if later else None
    part = there.name.split(".")[:2] == here.name.split(".")[:2] or there.name.startswith(f"{here.name}_")
    if not here.package and not part:  # sts_pairs is a part of sts
        return f"one of the {wing} imports another one"
    return None


def circle(pairs):
    """One circle among arrows (from, to), its first name repeated at the end; [] without any."""
    graph = defaultdict(set)
    for here, there in pairs:
        graph[here].add(there)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def faults(files):
    drawn = list(arrows(files))
    said = [f"{where}: {why}" for here, there, where in drawn if (why := wrong(here, there))]
    drawn = [arrow for arrow in drawn if not {arrow[0].name, arrow[1].name} & {*FOR_TYPES}]
    if files := circle([(here.name, there.name) for here, there, _ in drawn]):
        said.append(f"a circle of files: {' -> '.join(reversed(files))}")
    if rooms := circle([(here.room, there.room) for here, there, _ in drawn if here.room != there.room]):
        said.append(f"a circle of rooms: {' -> '.join(reversed(rooms))}")
    return said


def test_imports_run_one_way():
    assert sum(len(facts(text).imports) for text in tree().values()) > 800  # the walk sees something
    assert not faults(tree())


def test_a_sibling_is_imported_relatively_where_editors_do_not_find_it_otherwise():
    """setuptools' package-dir puts these folders below stsbench: an editor in a checkout looks for stsbench/methods/."""
    blind = []
    for file, text in tree().items():
        folder = Path(file).parent
        absolute = (node for node in facts(text).imports if isinstance(node, ast.ImportFrom) and not node.level)
        for package, _, name in ((node.module or "").rpartition(".") for node in absolute):
            if package == ".".join(("stsbench", *folder.parts)) and (ROOT / folder / f"{name}.py").is_file():
                blind += [f"{file}: {name}"] if folder.parts[0] in OUTER else []
    assert not blind, f"write `from .name import ...`: {blind}"


def test_every_module_stands_in_a_room_with_a_level():
    rooms = defaultdict(int)
    for module, _ in modules(tree()).values():
        if not module.package:
            rooms[module.room] += 1
    known = {*CORE, *BOARD, *FENCED, "protocols", "methods"}
    assert not {room for room in rooms if room not in known and not room.startswith(("methods.", EXTENSIONS))}
    assert {room: count for room, count in rooms.items() if count > MOST} == {}


def test_what_types_all_extensions_is_imported_for_types_alone():
    count = 0
    for file, text in tree().items():
        named = [node for node in facts(text).imports if isinstance(node, ast.ImportFrom)
                 and (node.module or "").removeprefix("stsbench.") in (*FOR_TYPES, "functions")]
        assert {*named} <= facts(text).typing_only, file
        count += len(named)
    assert count > 3


PLANTED = {
    "stsbench/metrics/one.py": "from stsbench.metrics.two import x",
    "stsbench/metrics/two.py": "def f():\n    from stsbench.metrics import one",
    "stsbench/metrics/three.py": "import stsbench.probes.four", "stsbench/probes/four.py": "import stsbench.metrics.five",
    "stsbench/metrics/five.py": "", "stsbench/evaluation/one.py": "def f():\n    import stsbench.protocols.sts",
    "methods/simcse/one.py": "from stsbench.methods.mlm.method import MaskedLM\nimport stsbench.cli.main",
    "stsbench/extensions/one/two.py": "import stsbench.extensions.two.three", "stsbench/extensions/two/three.py": "",
    "stsbench/losses/one.py": "import stsbench.training.api.method",
    "leaderboard/records/one.py": "import stsbench.leaderboard.page.site",
    "leaderboard/reproduce/one.py": "import stsbench.leaderboard.identify.two", "leaderboard/identify/two.py": "",
}
FAULTS = (
    "a circle of files", "a circle of rooms", "the core imports protocols", "one of the methods imports another one",
    "methods import the command line", "extensions.one.two imports extensions.two.three, an extension",
    "losses imports training.api", "leaderboard.records imports leaderboard.page",
    "leaderboard.reproduce imports leaderboard.identify, an extension of the board",
)


def test_a_planted_fault_is_found():
    planted = faults({**tree(), **PLANTED})
    assert not [said for said in FAULTS if not any(said in line for line in planted)], planted


HEAVY = ("torch", "transformers", "sentence_transformers", "numpy", "scipy", "sklearn", "pydantic", "huggingface_hub")


def each(commands, heavy):
    """The code that runs `commands` and looks after each at what is loaded by then: a failing or a loading one is the last
    that it prints."""
    return (
        f"for words in {commands!r}:\n"
        "    sys.argv = ['stsbench', *words]\n"
        "    try: main()\n"
        "    except SystemExit as stop: assert not stop.code, words\n"
        f"    assert not (loaded := sorted(set({heavy!r}) & set(sys.modules))), (words, loaded)\n"
        "print('every command was run')\n")


def test_help_loads_nothing_heavy_and_that_of_commands_no_torch():
    commands = [
        ["eval", "--help"], ["score", "--help"], ["list", "protocols"], ["list", "encoders"], ["list", "methods"],
        ["list", "recipes"], ["show", "method", "simcse"], ["show", "recipe", "simcse/unsup-bert-base"]]
    code = ("import sys; from stsbench.cli.main import main\n" + each([["--help"], ["--version"]], HEAVY)
            + each(commands, ("torch", "transformers", "sklearn")))
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("\nevery command was run\n") == 2 and done.stdout.count("Usage: ") == 3


ALLOWED = {  # file or folder -> the strings that may stand there, None for any, and why
    "stsbench/registry.py": ({"sts"}, "what is measured by default"),
    "stsbench/data/sets/__init__.py": ({"mteb:"}, "the package mteb"),
    **dict.fromkeys(("stsbench/data/fetch/mteb.py", "stsbench/encoders/options.py", "stsbench/encoders/prompt",
                     "leaderboard/imports"), ({"mteb"}, "the package mteb")),
    "stsbench/cli/show.py": ({"sts:all", "transfer"}, "what papers print of a recipe"),
    "stsbench/training/engine/selection.py": ({"transfer"}, "development data that papers choose checkpoints by"),
    "stsbench/training/recipes/sections.py": ({"sts:", "pairs:"}, "pairs of one's own that choose checkpoints"),
    **dict.fromkeys(("leaderboard/entry_commands.py", "leaderboard/api.py", "leaderboard/records/publications.py",
                     "leaderboard/ranks/board.py", "leaderboard/records/entries.py"), ({"sts"}, "the flag of STS labels")),
    "leaderboard/findings": ({"transfer", "sts:all"}, "tabs of one page's table"),
    "leaderboard/identify": (None, "it asks which of the literature's settings a printed row has"),
    "leaderboard/reproduce": (None, "it asks which commands measure what papers print"),
    "methods/sbert": ({"sts"}, "a stage of the method"),
}


def named_in(source, path):
    """"path:line: name" of each protocol that a file names without being allowed to."""
    protocol = re.compile(rf"(?:{'|'.join(core_protocols())})(?::\S*)?")
    words = {"pairs", "triplets"}  # by themselves, words of the language
    allowed = [words for place, (words, _) in ALLOWED.items() if Path(path).is_relative_to(place)]
    return [f"{path}:{line}: {value}" for line, value in facts(source).strings if protocol.fullmatch(value)
            and value not in words and not any(some is None or value in some for some in allowed)]


def test_nothing_outside_protocols_names_one():
    files = [file for file in tree() if not file.startswith(("protocols/", "stsbench/extensions/"))]
    assert len(files) > 300
    named = [name for file in files for name in named_in(tree()[file], file)]
    assert not named, "let the protocol declare it (stsbench/evaluation/protocol.py): " + "; ".join(named)
    for planted in ('"sts:mean"', '"retrieval:"', '{"geometry": 1}'):
        assert len(named_in(f"PLANTED = {planted}\n", "leaderboard/records/admission.py")) == 1


def test_what_is_allowed_is_there():
    """An entry of the list that nothing needs any more would hide what comes later."""
    for place, (words, reason) in ALLOWED.items():
        path = ROOT / place
        if place.startswith("leaderboard/") and not path.suffix and not path.exists():
            continue  # an extension of the board, which .ci/fence takes out
        there = {value for file, text in tree().items() if Path(file).is_relative_to(place)
                 for _, value in facts(text).strings}
        assert reason and (words is None or words <= there), place


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
    r"|(?<!here )\b(?:is|are) no (?:numbers?|folder|directory|text|UTF-8|JSON|CSV|file|\w+ (?:file|folder|format|text))\b"
    r"|--view\b",
    re.IGNORECASE,
)
PARTS = ("old apart", "ne fit at", " no ", " none", "--view")  # one of them is in every line with a phrase


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
        for number, line in enumerate(text.split("\n"), 1):
            if any(part in line for part in PARTS):
                for match in PHRASES.finditer(line):
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
    ("stsbench/a.py", "class Begun: ...\ndef f(*, view, _place_): ...\nimport x as given\nrows = [each for each in ()]",
     "1: Begun|2: view|2: _place_|3: given|4: each"),
    ("docs/a.md", "Use `--view raw`; the score is no number.", "1: is no number|1: --view"),
    ("CONTRIBUTING.md", "told apart\n## Words\ntold apart\n## More\n", "1: told apart"),
    ("methods/a/method.py", "def views(view): return view", ""),  # a contrastive view
    ("stsbench/a.py", "import re\nmatch.found.own\nf(each=1).ways", ""),  # another library's names
    ("docs/a.md", "There is no file. What was found stays.", "")])
def test_a_planted_word_is_found_and_other_uses_are_allowed(tmp_path, file, text, word):
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text(text + "\n", "utf-8")
    assert sorted(leftovers(tmp_path)) == sorted((file, each) for each in word.split("|") if each)


def test_csv_is_written_in_one_place():
    """Whoever writes it elsewhere writes cells that a spreadsheet runs."""
    writers = {"writer", "DictWriter", "to_csv", "write_csv", "savetxt"}
    assert [file for file, text in tree().items() if writers & facts(text).members] == ["stsbench/display/table.py"]
