"""The picture of entries: what it draws is what the records hold, seed by seed."""

import numpy as np
import pytest
from board_runs import read_once, runs  # noqa: F401  fixtures

from stsbench import leaderboard
from stsbench.display.style import save, style
from stsbench.errors import StsbenchError
from stsbench.leaderboard.findings import plane
from stsbench.leaderboard.ranks.gather import gather
from stsbench.leaderboard.records.add import add
from stsbench.leaderboard.records.entries import Entry

TAB = "sts-spearman-all-sample"


@pytest.fixture(scope="module")
def root(runs, tmp_path_factory):
    board = tmp_path_factory.mktemp("plane") / "board"
    for name, several in (("letters", ["letters"]), ("words", ["words"]), ("noisy", ["noisy", "noisy-2"])):
        flags = ("transductive",) if name == "words" else ("nli",)
        entry = Entry(method=name, backbone="none", setting="unsup", flags=flags)
        add(board, [runs[each] for each in several], name, entry)
    return board


def test_the_plane_has_each_run_at_its_two_scores(root):
    """Numbered by the first score, the best first; a run that lacks the second is left out."""
    axes, names = plane.figure(root, "none", (TAB, "STS13"), TAB).axes
    board = {row.method: row for tab in gather(root).tabs if tab.id == TAB for row in tab.measured}
    large = [line for line in axes.lines if line.get_marker() == "o" and line.get_markersize() > 4]
    small = [line for line in axes.lines if line.get_marker() == "o" and line.get_markersize() < 4]
    means = [(line.get_xdata()[0], line.get_ydata()[0]) for line in large]
    ordered = sorted(board.values(), key=lambda row: -row.cells["Avg"].value)
    np.testing.assert_allclose(means, [(row.cells["Avg"].value, row.cells["STS13"].value) for row in ordered])
    assert sorted(len(line.get_xdata()) for line in small) == [1, 1, 2]
    for line, mean in zip(small, means, strict=True):
        np.testing.assert_allclose((np.mean(line.get_xdata()), np.mean(line.get_ydata())), mean)
    assert [note.get_text() for note in axes.texts if note.get_text()] == ["1", "2", "3"]
    listed = [text.get_text() for text in names.texts]
    assert listed[0::2] == ["1", "2", "3"]
    assert all(row.method in line for row, line in zip(ordered, listed[1::2], strict=True))
    for backbone, across, up, reason in (
        ("none", ("other", "Avg"), TAB, r"no run on none of .* has both 'Avg' .* and 'Avg' of the tab 'other'"),
        ("none", (TAB, "STS13"), "sts-spearman-most", r"has both 'Avg' of the tab 'sts-spearman-most'"),
        ("nine", (TAB, "STS13"), TAB, r"no entry of .* has the backbone 'nine'; did you mean none"),
    ):
        with pytest.raises(StsbenchError, match=reason):
            plane.figure(root, backbone, across, up)


def test_a_name_with_dollar_signs_is_no_formula(runs, tmp_path):
    """Typeset as one it would be drawn otherwise, or end in matplotlib's error."""
    board = tmp_path / "board"
    for name, method in (("letters", r"$\frac{$ prices"), ("words", "$a$")):
        add(board, [runs[name]], name, Entry(method=method, backbone="$none$", setting="unsup"))
    axes = leaderboard.plot("$none$", (TAB, "STS12"), board=board, tab=TAB, output=tmp_path / "one.svg")
    assert (axes.get_xlabel(), axes.get_ylabel()) == (f"Avg ({TAB})", f"STS12 ({TAB})") and (tmp_path / "one.svg").is_file()
    texts = [*axes.figure.axes[1].texts, axes.title, axes.xaxis.label]
    assert {r"$\frac{$ prices", "$a$"} == {text.get_text().rpartition("  ")[2] for text in texts[1:4:2]}
    assert not any(text.get_parse_math() for text in texts)
    with style():  # but powers of ten stay formulas
        axes.set_yscale("log")
        save(axes.figure, tmp_path / "log.svg")
    assert all(label.get_parse_math() for label in axes.get_yticklabels())


def test_a_mean_over_some_of_the_seeds_is_hollow_and_says_so(root, monkeypatch):
    whole = plane.entry_scores

    def without_the_second_run(entry, lines, tab, column):
        scores = whole(entry, lines, tab, column)
        return dict([*scores.items()][:1]) if column == "STS13" else scores

    monkeypatch.setattr(plane, "entry_scores", without_the_second_run)
    axes, names = plane.figure(root, "none", (TAB, "STS13"), TAB).axes
    means = [line for line in axes.lines if line.get_marker() == "o" and line.get_markersize() > 4]
    hollow = [line.get_markerfacecolor() == "white" for line in means]
    partly = ["1 of 2 seeds" in text.get_text() for text in names.texts[1::2]]
    assert hollow == partly and sum(hollow) == 1
