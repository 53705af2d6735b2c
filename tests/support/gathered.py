"""Boards of runs on the sample, gathered: a fixture, and what tests of their tabs and rows share."""

import pytest
from board_runs import REVISION, Letters

from stsbench.evaluation.api import evaluate
from stsbench.leaderboard.ranks.gather import gather
from stsbench.leaderboard.records.add import add
from stsbench.leaderboard.records.entries import Entry

LETTERS = Entry(method="letters", backbone="none", setting="unsup", flags=("nli",))


@pytest.fixture
def board(runs, tmp_path):
    """A board of its own with the entries named: name -> (runs, description)."""
    root = tmp_path / "board"

    def made(**entries):
        stated = set()
        for slug, (names, entry) in entries.items():
            # Two entries never say the same of themselves.
            other = entry.model_copy(update={"backbone": slug}) if (entry.method, entry.backbone) in stated else entry
            stated.add((entry.method, entry.backbone))
            add(root, [runs.get(name, name) for name in names], slug, other)
        return gather(root)

    return made


def tab(board, name):
    (actual,) = [each for each in board.tabs if each.id == name]
    return actual


def own(tmp_path, monkeypatch, name, encoder=None, **options):
    """A run on the sample with options of its own."""
    monkeypatch.setattr("stsbench.evaluation.provenance.git_revision", lambda: REVISION)
    encoder = encoder or Letters(0, 0.1)
    return evaluate(encoder, output=tmp_path / name, sample=True, **{"resamples": 50, **options}).folder
