"""docs/tutorials: every block of a page runs in order in an empty folder, or says above itself why not.

What is trained is a tiny model in MiniLM's place, on the same texts by the same commands; what is measured is MiniLM itself.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import NamedTuple

import pytest
import tiny_models
from clirun import cli, place
from training_runs import one_thread

from stsbench.evaluation import provenance
from stsbench.training.recipes import methods, sample

__all__ = ["cli", "one_thread", "place"]
FOLDER = Path(__file__).resolve().parents[1] / "docs" / "tutorials"
PAGES = sorted(path.stem for path in FOLDER.glob("*.md"))
_BLOCK = re.compile(
    r"(?P<above>[^\n]*)\n+(?P<mark><!-- not run by the tests: (?P<reason>[^\n]+) -->\n)?"
    r"```(?P<kind>\w+)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


class Block(NamedTuple):
    """A code block. file: what it is saved as; reason: why the tests leave it out."""

    kind: str
    text: str
    file: str | None
    reason: str | None


def blocks(text: str) -> list[Block]:
    """The blocks of a page that have a language; those without one are output."""
    paragraphs = ((match, re.search(r"[Ss]ave this as `([\w.-]+)`", match["above"])) for match in _BLOCK.finditer(text))
    return [Block(match["kind"], match["text"], name and name[1], match["reason"]) for match, name in paragraphs]


@pytest.fixture(scope="module")
def vectors(tmp_path_factory):
    """One cache for all pages: several of them measure the same encoder."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return tiny_models.build(tmp_path_factory.mktemp("model") / "tiny", pooler=False, positions=128)


@pytest.mark.parametrize("name", PAGES)
def test_the_page_runs_from_top_to_bottom(name, vectors, tiny, cli, place, monkeypatch):
    monkeypatch.setattr(sample, "BACKBONE", str(tiny))
    monkeypatch.setenv("STSBENCH_CACHE", str(vectors))
    # As if the working copy were committed: `leaderboard add` refuses what uncommitted code has measured.
    monkeypatch.setattr(provenance, "git_revision", lambda: "0" * 40)
    for block in blocks((FOLDER / f"{name}.md").read_text("utf-8")):
        if block.file:
            (place / block.file).write_text(block.text, "utf-8")
        elif block.reason is None:
            assert block.kind == "sh", f"{name}.md: say where this is saved, or why it is not run:\n{block.text}"
            for line in block.text.splitlines():
                command, *arguments = shlex.split(line, comments=True)
                assert command == "stsbench", f"{name}.md: {line}: only stsbench runs here"
                code, _, err = cli(*arguments)
                assert code == 0, f"{name}.md: {line}\n{err}"
    methods.find_method.cache_clear()


def test_each_tutorial_has_a_block_that_runs_or_all_say_why():
    assert len(PAGES) >= 6
    for name in PAGES:
        text = (FOLDER / f"{name}.md").read_text("utf-8")
        assert len(blocks(text)) == len(re.findall(r"^```\w+$", text, re.MULTILINE)) > 0, name


def test_a_block_is_run_saved_or_marked():
    text = ("Save this as `a.py`:\n\n```python\nx = 1\n```\n\nThen:\n\n```sh\nstsbench list data\n```\n\n"
            "```\nprinted\n```\n\n<!-- not run by the tests: it costs money -->\n```sh\nbuy\n```\n")  # fmt: skip
    assert blocks(text) == [
        Block("python", "x = 1\n", "a.py", None), Block("sh", "stsbench list data\n", None, None),
        Block("sh", "buy\n", None, "it costs money"),
    ]  # fmt: skip
