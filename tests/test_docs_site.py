"""docs/site: how pages and links of the site are made. `make site` builds the whole and follows every link."""

import ast
import importlib.util
import inspect
import itertools
import re
import sys
from pathlib import Path
from textwrap import indent

import pytest
import yaml

from stsbench.training.recipes.recipe import SECTIONS

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "site"


def module(name):
    """A module of docs/site, which is not a package, under a name that no other has."""
    spec = importlib.util.spec_from_file_location(f"docs_site_{name}", FOLDER / f"{name}.py")
    made = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.mark.parametrize(("link", "expected"), [
    ("../reference/a.md#two", "../reference/a.md#two"), ("../../cards/x.md", "../methods/x.md"),
    ("../../code.py", "https://host/blob/main/code.py"), ("../../cards", "https://host/tree/main/cards"),
    ("#here", "#here"), ("https://example.org/x", "https://example.org/x"), ("missing.md", "missing.md")])
def test_a_link_of_the_repository_becomes_one_of_the_site(tmp_path, link, expected):
    for name in ("docs/reference/a.md", "docs/how-to/b.md", "cards/x.md", "code.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    text = f"[one]({link}) `[two]({link})`\n\n```\n[three]({link})\n```\n"
    page, moved = tmp_path / "docs/how-to/b.md", {"cards/x.md": "methods/x.md"}
    made = module("links").rewrite(text, page, "how-to/b.md", tmp_path, moved, "https://host")
    assert made == text.replace(f"[one]({link})", f"[one]({expected})")


def test_lists_get_four_columns_a_level_and_a_blank_line_before():
    text = "Text:\n- one\n  goes on\n  - inner\n    ```\n    code\n    ```\n- two\n"
    expected = "Text:\n\n- one\n    goes on\n    - inner\n        ```\n        code\n        ```\n- two\n"
    assert module("lists").four_columns(text) == expected


def test_what_a_page_loads_from_elsewhere_is_named(tmp_path):
    (tmp_path / "a.html").write_text('<a href="https://x.org">x</a><script src="https://x.org/a.js"></script><img alt="" '
                                     'src="a.png"><link rel="stylesheet" href="//x.org/a.css">', "utf-8")
    (tmp_path / "b.css").write_text("@import 'https://x.org/b.css'; a { background: url(c.png) }", "utf-8")
    elsewhere = ["a.html: https://x.org/a.js", "a.html: //x.org/a.css", "b.css: https://x.org/b.css"]
    assert module("build").foreign(tmp_path) == elsewhere


def test_examples_of_docstrings_become_code():
    fenced = module("api").fenced
    text = "What it gives [1].\n\n>>> a = [\n...     1]\n>>> a\n[1]\n\nAfter it."
    code = "```pycon\n>>> a = [\n...     1]\n>>> a\n[1]\n```"
    assert fenced(text) == f"What it gives [1].\n\n{code}\n\nAfter it."
    assert fenced(">>> 1\n1") == "```pycon\n>>> 1\n1\n```" and fenced("Prose.\n") == "Prose.\n".rstrip()


def test_every_loss_has_a_page_and_a_line_in_the_index():
    from stsbench import losses

    pages = module("losses").pages(ROOT)
    assert set(pages) == {"losses/index.md", *(f"losses/{name}.md" for name in losses.__all__)}
    for name in losses.__all__:
        assert pages[f"losses/{name}.md"][1].startswith(f"::: {getattr(losses, name).__module__}.{name}\n"), name
        assert pages["losses/index.md"][1].count(f"| [`{name}`]({name}.md) | ") == 1


def described(path):
    """The names at the top of a module that have a docstring; a value's stands below it."""
    body = ast.parse(path.read_text("utf-8")).body
    names = {node.name for node in body if isinstance(node, ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node)}
    for node, after in itertools.pairwise(body):
        text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and isinstance(after.value.value, str)
        if text and isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


def test_every_public_name_is_on_a_page_with_its_definition_and_is_described():
    api, without = module("api"), []
    for package in api.PACKAGES:
        loaded = importlib.import_module(package)
        origins = api.origins(package, ROOT)
        assert set(origins) == {name for name in loaded.__all__ if not inspect.ismodule(getattr(loaded, name))} and origins
        for name, origin in origins.items():
            where, _, attribute = origin.rpartition(".")
            value = getattr(importlib.import_module(where), attribute)
            assert value is getattr(loaded, name), origin
            if inspect.isclass(value) or inspect.isfunction(value):
                where = value.__module__  # a name may come from elsewhere twice
            if attribute not in described(Path(importlib.import_module(where).__file__)):
                without.append(origin)
    assert without == []


def test_every_command_has_a_page_without_clicks_mark_of_no_default():
    from stsbench.cli.main import cli

    commands = module("commands")
    assert {f"cli/{name}.md" for name in cli.list_commands(None)} | {"cli/index.md"} == set(commands.pages())
    row = "<tr><td><code>--a</code></td><td>None</td><td><code>Sentinel.UNSET</code></td><td><code>2</code></td></tr>"
    assert commands.without_missing(row) == "<tr><td><code>--a</code></td><td></td><td></td><td><code>2</code></td></tr>"


def test_pages_hold_every_recipe_as_its_file_says_it_and_name_all_settings_presets_and_fields():
    tables = module("tables")
    pages = tables.recipe_pages(ROOT)
    for path in ROOT.glob("methods/*/recipes/*.yaml"):
        lines = indent(path.read_text("utf-8").rstrip(), "    ")  # within the block that folds it
        assert any(lines in text for _, text in pages.values()), path
    settings, presets, schema = tables.settings_page(), tables.presets_page(), tables.schema_page(ROOT)
    assert all(f"\n## {name}\n" in settings for name in tables.kinds())
    assert all(f"\n## {path.stem}\n" in presets for path in (ROOT / "protocols/presets").glob("*.yaml"))
    headings = {name.lower() for name in re.findall(r"^## (\w+)$", schema, re.MULTILINE)}
    assert set(re.findall(r"\]\(#(\w+)\)", schema)) <= headings and len(headings) > 5


def test_the_page_of_a_recipe_s_keys_has_a_row_for_each():
    page = module("tables").keys_page()
    parts = {heading: body for heading, body in re.findall(r"^## (\S+)$(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)}
    for section, model in SECTIONS.items():
        inner = {key.removeprefix(f"{section}.") for key in SECTIONS}
        rows = [line for line in parts[section].splitlines() if line.startswith("| `")]
        assert [row.split("`")[1] for row in rows] == [name for name in model.model_fields if name not in inner]
    assert "| `milestones` | `[]` | list of int | steps taken from which on" in parts["training"]
    assert parts["training"].count("| schedule piecewise |") == 2


def test_every_page_of_the_docs_is_in_the_navigation():
    Loader = type("Loader", (yaml.SafeLoader,), {})
    Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)
    listed = re.findall(r"[\w./-]+\.md", str(yaml.load((ROOT / "mkdocs.yml").read_text("utf-8"), Loader)["nav"]))
    written = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")} - {"README.md"}
    assert written - {"reference/python.md"} <= set(listed) and len(listed) == len(set(listed))  # `+ api` brings that one
