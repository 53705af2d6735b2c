"""README and docs/: every code block runs in its page's order, in an empty folder, or says above itself why not.

What is trained is a tiny model in MiniLM's place, two steps on the same texts by the same commands. Where a page prints
scores MiniLM itself is measured, and they are compared; elsewhere the tiny model. Commands that are not run are
parsed. Pages that a test of their own runs stand in `doc_blocks.BY_TEST`."""

import re
from contextlib import suppress
from importlib import import_module

import click
import pytest
import tiny_models
from board_runs import read_once  # noqa: F401  fixture
from clirun import cli, place  # noqa: F401
from doc_blocks import BY_TEST, ROOT, Block, blocks, fences, pages, parse
from text_tables import by_row
from training_runs import no_pinned_memory, one_thread  # noqa: F401

from stsbench.encoders.transformer import config, find
from stsbench.evaluation import provenance
from stsbench.training.recipes import methods
from stsbench.training.recipes import recipes as sample

PAGES = {name: blocks(text) for name, text in pages().items()}
RUN = [name for name, parts in PAGES.items() if name not in BY_TEST and any(part.reason is None for part in parts)]
MINILM = config.find_minilm


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """(tiny, wide), the latter of MiniLM's width, for blocks that cut its vectors."""
    return [tiny_models.build_for_sample(tmp_path_factory.mktemp("model") / "tiny", **shape)
            for shape in ({}, {"width": 384})]


@pytest.mark.parametrize("name", RUN)
def test_the_page_runs_from_top_to_bottom(name, models, cli, place, monkeypatch, capsys):
    monkeypatch.setattr(sample, "STEPS", 2)
    monkeypatch.setattr(sample, "BATCH", 8)
    length = sample._length  # of steps of one batch each: AnglE's are of sixteen
    monkeypatch.setattr(sample, "_length", lambda *how: {**length(*how), "training.accumulate": 1})
    # A round of timed texts takes a fiftieth of its time where costs can be measured: no page prints a speed.
    with suppress(ImportError):  # without the extension
        monkeypatch.setattr(import_module("stsbench.extensions.cost.measure"), "_ROUND", 0.005)
    # One cache for all pages: several of them measure the same encoder.
    monkeypatch.setenv("STSBENCH_CACHE", str(models[0].with_name("cache")))
    # As if the working copy were committed: `leaderboard add` refuses what uncommitted code has measured.
    monkeypatch.setattr(provenance, "git_revision", lambda: "0" * 40)
    runner = Runner(name, cli, capsys)
    for block in PAGES[name]:
        model = models[bool(re.search(r"[._-]dim", block.text))]
        scored = block.kind == "console" or (block.output and "minilm" in block.text)
        monkeypatch.setattr(config, "find_minilm", MINILM if scored else lambda model=model: model)
        monkeypatch.setattr(find, "find_minilm", lambda model=model: model)  # of trainings: `config` has it by name
        monkeypatch.setattr(sample, "BACKBONE", str(model))
        if block.file:
            (place / block.file).write_text(block.text, "utf-8")
        elif block.reason is None:
            getattr(runner, block.kind)(block)
    methods.find_method.cache_clear()


class Runner:
    def __init__(self, page, cli, capsys):
        self.page, self.cli, self.capsys = page, cli, capsys
        self.names = {"__name__": "__main__"}  # the blocks of a page go on from one another

    def sh(self, block):
        """Every command ends well. A thousand resamples take a third of a second each time."""
        for words in block.commands:
            few = words[1] == "eval" or (words[1] in ("compare", "choose") and words[2].startswith("runs/"))
            self.command([*words, "--resamples", "100"] if few else words)

    def console(self, block):
        """The rows of the table stand in what the command prints."""
        first, *lines = block.text.splitlines()
        assert first.startswith("$ ")
        printed = self.command(Block("sh", first[2:]).commands[0]).splitlines()
        cells = {name: sorted(its) for name, its in by_row(lines).items()}
        assert len(cells) > 1 and cells == {name: sorted(its) for name, its in by_row(printed).items()}

    def python(self, block):
        """It prints what the page says."""
        self.capsys.readouterr()
        exec(compile(block.text, self.page, "exec"), self.names)
        printed = self.capsys.readouterr().out
        assert block.output is None or printed == block.output

    def command(self, words):
        assert words[0] == "stsbench", f"{self.page}: {words}: only stsbench runs here"
        code, out, err = self.cli(*words[1:])
        assert code == 0, f"{self.page}: {words}\n{err}"
        return out


def test_a_command_that_is_not_run_is_one_that_stsbench_knows():
    blocks_not_run = [block for parts in PAGES.values() for block in parts if block.reason and block.kind == "sh"]
    for words in (words for block in blocks_not_run for words in block.commands):
        if "stsbench" in words and words[0] != "docker":  # behind torchrun, too
            rest = words[words.index("stsbench") + 1 :]
            parse(rest[: rest.index(">")] if ">" in rest else rest)
    for words in ("evaluate", "eval --modell x", "export RUN --to nowhere", "cache clean"):
        with pytest.raises(click.UsageError):
            parse(words.split())


def test_every_block_is_run_saved_or_marked():
    counts = {"run": 0, "marked": 0, "saved": 0, "printed": 0}
    for name, text in pages().items():
        languages = [kind for kind, _ in fences(text) if kind]
        assert [block.kind for block in PAGES[name]] == languages, f"{name}: a block that the tests do not see"
        for kind, body in fences(text):
            assert kind or not body.startswith(("stsbench ", "$ ")), f"{name}: a command without a language:\n{body}"
        for block in PAGES[name]:
            if name not in BY_TEST and not block.reason and not block.file:
                assert hasattr(Runner, block.kind), f"{name}: say where this is saved, or why it is not run:\n{block.text}"
            counts["marked" if block.reason else "saved" if block.file else "run"] += 1
            counts["printed"] += block.output is not None
    assert counts["run"] > counts["marked"] > counts["saved"] > counts["printed"] > 0, counts


def test_the_tests_of_their_own_read_their_page():
    for page, test in BY_TEST.items():
        assert PAGES[page] and not any(block.reason for block in PAGES[page])
        assert page.rpartition("/")[2] in (ROOT / "tests" / test).read_text("utf-8")
