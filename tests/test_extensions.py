"""The fence around extensions: the core names none of them, and each has its page, tests and options in one place."""

import tomllib
from dataclasses import fields
from importlib import import_module

import pytest
from source_facts import ROOT, facts, tree

# Folders of leaderboard/ that the rest of it does not know.
BOARD = ("findings", "identify", "imports", "local_page", "mteb", "own", "prompts", "reproduce", "submissions")
FOLDERS = [*sorted(path.parent for path in (ROOT / "stsbench/extensions").glob("*/__init__.py")),
           *(ROOT / "leaderboard" / name for name in BOARD)]
NAMED = ("stsbench.encoders", "stsbench.post", "stsbench.protocols")  # groups whose names users write
POINTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
CORE = [file for file in tree() if file.split("/")[1] != "extensions" and file != "leaderboard/functions.py"
        and tuple(file.split("/")[:2]) not in {("leaderboard", name) for name in BOARD}]


def package(folder):
    return f"stsbench.{'leaderboard' if folder.name in BOARD else 'extensions'}.{folder.name}"


def registered(folder):
    """Group -> names of the entry points that an extension's folder is behind."""
    module = f"{package(folder)}."
    return {group: [name for name, value in points.items() if value.startswith(module)] for group, points in POINTS.items()}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_an_extension_has_a_page_of_its_own_and_tests_and_the_core_does_not_name_it(folder):
    """Neither its folder, nor the options, kinds, commands and functions that it registers."""
    points, page = registered(folder), (folder / "README.md").read_text("utf-8")
    assert page.startswith("# ") and 30 < len(page.split()) < 400
    tests = "leaderboard" if folder.name in BOARD else "extensions"
    assert [*(ROOT / "tests" / tests / folder.name).glob("test_*.py")]
    assert any(points.values()), "nothing finds it"
    own = {entry.name for name in points.get("stsbench.encoder_options", ())
           for entry in fields(_loaded("stsbench.encoder_options", name)) if "help" in entry.metadata}
    own |= {package(folder)}
    own |= {name for group in NAMED for name in points.get(group, ())}
    own -= {name for points in POINTS.values() for name, value in points.items() if ".extensions." not in value}  # its own
    own |= {f"--{name.replace('_', '-')}" for name in own}
    kinds = [_loaded("stsbench.studies", name).options for name in points.get("stsbench.studies", ())]
    kinds += [_loaded(group, name) for group in ("stsbench.process_options", "stsbench.record_options")
              for name in points.get(group, ())]
    own |= {f"--{entry.name.replace('_', '-')}" for kind in kinds for entry in fields(kind)}
    named = {file: sorted(own & facts(tree()[file]).words) for file in CORE}
    assert not {path: said for path, said in named.items() if said}


def _loaded(group, name):
    module, _, attribute = POINTS[group][name].partition(":")
    return getattr(import_module(module), attribute)
