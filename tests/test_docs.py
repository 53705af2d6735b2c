"""Every relative link of every Markdown page leads to a file, and its fragment to a heading. What the pages document of
the code is there: fields of classes, parameters, recipe keys, options of commands."""

import ast
import inspect
import re
import typing
from dataclasses import MISSING, fields, is_dataclass
from importlib import import_module
from pathlib import Path

import click
import pytest
from pydantic import BaseModel

from stsbench import evaluate, registry
from stsbench.cli.main import cli
from stsbench.evaluation import Array, Metric, Protocol, Record
from stsbench.evaluation.own_data import data_protocols
from stsbench.evaluation.records import Cost, _Overlap
from stsbench.leaderboard.records.board_settings import BoardSettings
from stsbench.training.recipes.methods import GROUP, find_method, options_class
from stsbench.training.recipes.recipe import Recipe
from stsbench.training.recipes.recipes import load_recipe, recipe_names

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("docs", "benchmarks", "methods", "leaderboard", "protocols", "stsbench", "tests")
LINK = re.compile(r"\]\(<?([^)<>\s]+)>?\)|(?:src|href)=\"([^\"]+)\"")
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")


def pages(root):
    """The Markdown files of a checkout; build outputs and environments at its top, and npm's packages, do not count."""
    below = (page for folder in FOLDERS for page in (root / folder).rglob("*.md"))
    return sorted([*root.glob("*.md"), *(page for page in below if "node_modules" not in page.parts)])


def anchors(page):
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text("utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(root):
    """`page: link` for each relative link without a file or heading at its end."""
    broken = []
    for page in pages(root):
        for match in LINK.finditer(CODE.sub("", FENCE.sub("", page.read_text("utf-8")))):
            link = match[1] or match[2]
            if re.match(r"[a-z]+:", link):
                continue
            name, _, fragment = link.partition("#")
            target = (page.parent / name if name else page).resolve()
            missing = not target.exists() or (fragment and target.suffix == ".md" and fragment not in anchors(target))
            if missing:
                broken.append(f"{page.relative_to(root)}: {link}")
    return broken


def test_every_relative_link_resolves():
    assert len(pages(ROOT)) > 25  # the walk sees something
    assert broken_links(ROOT) == []


def test_every_page_of_the_docs_is_listed():
    listed = {match[1] for match in LINK.finditer((ROOT / "docs" / "README.md").read_text("utf-8"))}
    assert {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")} - {"README.md"} <= listed


def test_a_planted_link_is_judged(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/other.md").write_text("# Title\n\n## Two words\n", "utf-8")
    good = ("other.md", "other.md#two-words", "#here", "<other.md>", "https://example.org/x")
    wrong = ("missing.md", "other.md#three-words", "#there", "../other.md")
    links = "\n".join(f"See [this]({link})" for link in (*good, *wrong))
    (tmp_path / "docs/page.md").write_text(f"# Here\n\n{links}, not `[that](nowhere.md)`.\n", "utf-8")
    assert broken_links(tmp_path) == [f"docs/page.md: {link}" for link in wrong]


PAGES = {page.relative_to(ROOT).as_posix(): page.read_text("utf-8") for page in pages(ROOT)}
# (page, heading) of a table -> what its first column names, and whether it names all of it
TABLES = {
    ("docs/how-to/adding-a-protocol.md", "Metrics"): (Metric, True),
    ("docs/how-to/adding-a-protocol.md", "Arrays"): (Array, True),
    ("docs/how-to/adding-a-protocol.md", "How it is shown"): (Protocol, False),
    ("docs/how-to/leaderboard.md", "A board of your own"): (BoardSettings, True),
    ("docs/reference/records.md", "Fields"): (Record, False), ("docs/reference/records.md", "Cost"): (Cost, False),
    ("docs/reference/training-runs.md", "What the training text shares with test sets"): (_Overlap, False),
}
COUNTS = {"counts.zero_vectors", "counts.truncated", "counts.items"}  # keys of a mapping
FACADES = ("stsbench", "stsbench.evaluation", "stsbench.training.api", "stsbench.encoders", "stsbench.leaderboard")
PUBLIC = {name: getattr(import_module(facade), name) for facade in reversed(FACADES)
          for name in getattr(import_module(facade), "__all__", ())}
SECTIONS = ("options", "training", "backbone", "data", "selection", "labelled", "semi", "ranking", "guide", "matryoshka")
KEY = re.compile(rf"(?<![\w./-])((?:{'|'.join(SECTIONS)})\.[a-z_]+(?:\.[a-z_]+)*)(?![\w(*.])")
FILES = (".py", ".yaml", ".json", ".md", ".csv", ".txt")
# of a record, of a method and a protocol that a page writes, and of a preset that one file of a folder has
ELSEWHERE = {"docs/reference/records.md": r"data\.", "docs/how-to/adding-a-method.md": r"options\.labels$",
             "docs/reference/encoders.md": r"options\.prompts$", "docs/how-to/own-data.md": r"data\.n$"}


def spans(text):
    return [span.strip("`") for span in CODE.findall(FENCE.sub("", text))]


def first_column(text, heading):
    """The code spans of the first column of the first table behind a heading, row by row, and those of the last one."""
    behind = re.split(rf"^#+ {re.escape(heading)}$", text, maxsplit=1, flags=re.MULTILINE)
    rows = re.findall(r"^\|(.+)\|$", re.split(r"^#+ ", behind[1], maxsplit=1, flags=re.MULTILINE)[0], re.MULTILINE)
    return [(CODE.findall(row[0]), row[-1].strip()) for row in [re.split(r"(?<!\\)\|", row) for row in rows[2:]]]


def known(owner):
    """The fields of a model, of those inside it as `outer.inner`, of a dataclass, or the attributes of another class."""
    if is_dataclass(owner):
        return {field.name for field in fields(owner)}
    if not issubclass(owner, BaseModel):
        return {name for name in dir(owner) if not name.startswith("_")}
    names = set()
    for name, field in owner.model_fields.items():
        name = field.serialization_alias or field.alias or name
        names.add(name)
        for part in parts(field.annotation):
            if isinstance(part, type) and issubclass(part, BaseModel):
                names |= {f"{name}.{inner}" for inner in known(part)}
    return names


def parts(annotation):
    yield annotation
    for inner in typing.get_args(annotation):
        yield from parts(inner)


@pytest.mark.parametrize(("page", "heading"), TABLES, ids=lambda part: part)
def test_a_table_of_fields_has_those_of_the_class(page, heading):
    owner, whole = TABLES[page, heading]
    written, outer = [], ""
    for names, _ in first_column(PAGES[page], heading):
        for name in (span.strip("`") for span in names):
            outer = outer if name.startswith(".") else name.rpartition(".")[0]
            written.append(f"{outer}{name}" if name.startswith(".") else name)
    there = known(owner) | COUNTS if owner is Record else known(owner)
    assert written and set(written) <= there, sorted(set(written) - there)
    assert not whole or set(written) == there


@pytest.mark.parametrize("owner", [Array, Metric, Protocol])
def test_documented_defaults_are_those_of_the_code(owner):
    defaults = {field.name: field.default for field in fields(owner) if field.default is not MISSING} if is_dataclass(
        owner) else {name: getattr(owner, name, None) for name in known(owner)}
    (page, heading), = [where for where, (each, _) in TABLES.items() if each is owner]
    for names, default in first_column(PAGES[page], heading):
        if re.fullmatch(r"`[^`]*`|\d+", default):
            assert str(ast.literal_eval(default.strip("`"))) == str(defaults[names[0].strip("`")]), names


def called(text):
    """(call, what is called) of each call of a public name in the code of a page, blocks and spans."""
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    for code in [*blocks, *(span for span in spans(text) if re.fullmatch(r"[A-Za-z_.]+\(.*\)", span))]:
        try:
            tree = ast.parse(code)
        except SyntaxError:  # a part of a class, or an ellipsis of the page's
            continue
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            owner = PUBLIC.get(ast.unparse(call.func).removeprefix("stsbench."))
            if callable(owner) and not (isinstance(owner, type) and issubclass(owner, Exception)):
                yield call, owner


def test_every_keyword_of_a_call_is_a_parameter():
    for call, owner in (each for page in PAGES.values() for each in called(page)):
        parameters = inspect.signature(owner).parameters
        if not any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
            known_words = {*parameters, *getattr(owner, "flag_words", ()), *(data_protocols() if owner is evaluate else ())}
            assert {word.arg for word in call.keywords if word.arg} <= known_words, ast.unparse(call)


KEYS = known(Recipe) | {f"options.{key}" for name in registry.names(GROUP) for key in known(options_class(name))}


def test_every_recipe_key_is_one():
    strange = set()
    for page, text in PAGES.items():
        written = {key for span in spans(text) for key in KEY.findall(span) if not key.endswith(FILES)}
        strange |= {(page, key) for key in written - KEYS if not re.match(ELSEWHERE.get(page, "$^"), key)}
    assert not strange


def every_option():
    waiting, options = [cli], {"--help", "--version"}
    while waiting:
        command = waiting.pop()
        for parameter in command.params:
            options |= {*parameter.opts, *parameter.secondary_opts}
        if isinstance(command, click.Group):
            waiting += [command.get_command(click.Context(command), name) for name in command.list_commands(None)]
    return options


OPTIONS = every_option() | {"--debug"}  # which `main` takes before any command reads its words
# of an author's script, two servers, torchrun's like
OF_OTHERS = {"--mode", "--auto-truncate", "--default-prompt", "--num_processes"}


def test_every_option_of_a_command_is_one():
    guides = [text for page, text in PAGES.items() if page.startswith(("docs/how-to", "docs/reference", "docs/tut"))]
    written = {word for text in guides for span in spans(text) if not re.match(r"(?!stsbench|--)\S+ ", span)
               for word in re.findall(r"(?<![\w-])--[a-z][\w-]*", span)}
    assert sorted(written - OPTIONS - OF_OTHERS) == []


@pytest.mark.parametrize("method", registry.names(GROUP))
def test_a_score_beside_a_recipe_s_name_in_a_card_is_one_that_the_recipe_holds(method):
    """Or the mean of its columns, where a paper prints no more."""
    card, names = (find_method(method).folder / "card.md").read_text("utf-8"), recipe_names(method)
    for name, score in re.findall(r"`([a-z][a-z0-9.-]*)` (\d\d\.\d\d?)(?!\d| %)", card):
        if name in names:
            columns = [figures.scores for figures in load_recipe(method, name).published]
            held = {round(value, 2) for scores in columns for value in scores.values()}
            means = {round(sum(scores.values()) / len(scores), 1) for scores in columns}
            assert float(score) in held or round(float(score), 1) in means, (name, score)
