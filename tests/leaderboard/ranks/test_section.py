"""What an extension may add to a board: rows' fields and marks, tabs, fields and files of the page, pages of findings."""

from dataclasses import replace

import pytest
from board_runs import read_once, runs  # noqa: F401  fixtures

from stsbench import registry
from stsbench.leaderboard import board_files
from stsbench.leaderboard.page.site import site
from stsbench.leaderboard.ranks import plan
from stsbench.leaderboard.ranks.board import PromptSpread
from stsbench.leaderboard.ranks.gather import gather
from stsbench.leaderboard.ranks.plan import RowExtra, Section
from stsbench.leaderboard.records.add import add
from stsbench.leaderboard.records.entries import Entry


class Everything(Section):
    folders = ("more",)

    def rows(self, plans, entries, lines):
        assert {run.folder for entry in entries for run in entry.runs} <= lines.keys()
        extra = RowExtra({"prompts": PromptSpread(2, 50.0, 1.0, 49.0, 51.0)}, {"chance": 0.5}, ("odd",))
        return {(plan.name, i): extra for plan in plans for i in plan.able}

    def tabs(self, tabs, root):
        return [replace(tab, notes=(*tab.notes, root.name)) for tab in tabs]

    def content(self, root, placed, tabs, tests):
        assert {tab.id for tab in tabs} >= tests.keys()
        return len(placed)

    def index(self, content):
        return {"placed": content}

    def files(self, content):
        return {"more/numbers": {"placed": content}}

    def findings(self, content, board, docs):
        return {docs / "findings/more.md": f"{content} {len(board.tabs)}\n"}


@pytest.fixture
def root(runs, tmp_path):
    root = tmp_path / "leaderboard"
    for name in ("letters", "words"):
        add(root, [runs[name]], name, Entry(method=name, backbone="none", setting="unsup"))
    return root


@pytest.fixture
def known(monkeypatch):
    """Two sections are installed: one that adds nothing, one that adds whatever it may."""
    known = {"all": Everything, "nothing": Section}
    monkeypatch.setattr(plan, "names", lambda group: sorted(known))
    monkeypatch.setattr(plan, "resolve", lambda group, name: known[name])
    plan.sections.cache_clear()
    yield
    plan.sections.cache_clear()


@pytest.mark.usefixtures("known")
def test_a_board_shows_what_sections_add_and_nothing_else(root):
    (root.parent / "README.md").write_text(f"{board_files.BEGIN}\n{board_files.END}\n")
    old = root / "site/more/old.json"
    old.parent.mkdir(parents=True)
    old.touch()
    board_files.build(root)
    board = gather(root)
    assert not old.exists()  # a build deletes what a section no longer has
    files = site(board)
    ranked = [row for tab in board.tabs for row in tab.measured if row.rank]
    assert ranked and board.sections.keys() == {"all"}
    assert all(row.rank.chance == 0.5 and row.prompts.n == 2 and "odd" in row.marks for row in ranked)
    assert all("leaderboard" in tab.notes for tab in board.tabs)
    assert {"more/numbers.json", "more/numbers.js"} <= files.keys() and '"placed":' in files["index.json"]
    assert root.parent / "docs/findings/more.md" in board_files.tracked_files(root, board)


def test_what_is_installed_is_made_once():
    assert plan.sections() is plan.sections() and [*plan.sections()] == registry.names(plan.GROUP)
