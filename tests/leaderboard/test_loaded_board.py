"""A board as an object: its frame is the CSV, its table the page's, its picture its rows."""

import csv
import io
import json
from pathlib import Path

import board_example
import pyarrow
import pytest
from clirun import refuses

from stsbench.errors import StsbenchError
from stsbench.leaderboard import Board
from stsbench.leaderboard.page.site import site
from stsbench.leaderboard.page.tables import csv_table, latex, latex_tables
from stsbench.leaderboard.ranks import board as ranks


def loaded(board):
    return Board(**vars(board), folder=Path("leaderboard"))


EXAMPLE, SYNTHETIC = loaded(board_example.board(published=12)), loaded(board_example.synthetic(30))


def test_the_frame_holds_what_the_csv_holds_what_a_score_is_and_who_leads():
    """Numbers to six decimals, what is absent as nothing: compared cell by cell."""
    frame = EXAMPLE.to_pandas()
    lines = list(csv.DictReader(io.StringIO(csv_table(EXAMPLE))))
    assert pyarrow.table(EXAMPLE).num_rows == len(frame) == len(lines)  # through Arrow's own interface
    assert [*lines[0]] == [*frame.columns[: len(lines[0])]]
    for (_, row), line in zip(frame.iterrows(), lines, strict=True):
        for name, text in line.items():
            value = row[name]
            if text == "":
                assert value is None or value != value or value == "", name
            elif name in ("value", "low", "high", "sd", "printed", "over_tasks_low", "over_tasks_high"):
                assert value == pytest.approx(float(text), abs=1e-6), name
            elif name in ("seeds", "best_of", "n", "place", "first", "last", "tier"):
                assert value == int(text), name
            else:
                assert " ".join(value.split()) == text.removeprefix("'"), name
    frame, tab = SYNTHETIC.to_pandas(), SYNTHETIC.tabs[0]
    of_tab = frame[(frame.tab == tab.id) & (frame.column == tab.lead) & (frame.kind == "measured")]
    assert [*of_tab.clear_lead] == [row.rank.last == 1 for row in tab.measured] and set(of_tab.protocol) == {"sts"}
    assert set(frame[frame.kind == "published"].clear_lead) == {None} and set(frame.better) == {"higher"}
    assert set(EXAMPLE.to_pandas().query("tab == 'geometry-stsb'").better) == {"lower"}
    empty = loaded(ranks.Board((), {}))
    assert str(empty) == repr(empty) and empty._repr_html_().startswith("&lt;Board") and empty.to_pandas().empty
    refuses(StsbenchError, "has no tab", empty.tab)


def test_the_leading_table_has_intervals_ranks_and_what_was_left_out():
    tab = SYNTHETIC.tab()
    best = tab.measured[0]
    header, _, first, *rest = str(SYNTHETIC).splitlines()[1:]
    assert tab.id == "sts-spearman-all" and header.split()[-1] == "rank"
    cell = best.cells["Avg"]
    assert f"{cell.value:.2f} [{cell.low:.2f}, {cell.high:.2f}]" in first and best.method in first
    assert "10 rows further down left out" in rest and "60 published rows: never ranked" in rest
    html = EXAMPLE._repr_html_()
    assert "not ranked: its text was changed" in html and board_example.HOSTILE not in html and "<table>" in html
    assert len(repr(SYNTHETIC)) < 100 and "30 entries, 6 tabs" in repr(SYNTHETIC)


def test_the_picture_is_of_the_ranked_rows():
    axes, tab = SYNTHETIC.plot("sts-pearson-mean"), SYNTHETIC.tab("sts-pearson-mean")
    points = [line for line in axes.lines if line.get_marker() == "o"]
    assert [label.get_text() for label in axes.get_yticklabels()] == [row.method for row in tab.measured]
    assert [point.get_xdata()[0] for point in points] == [row.cells["Avg"].value for row in tab.measured]
    bars = [line for line in axes.lines if line.get_marker() != "o"]
    assert [[*bar.get_xdata()] for bar in bars] == [[row.cells["Avg"].low, row.cells["Avg"].high] for row in tab.measured]
    labels = [label.get_text().endswith(" (transductive)") for label in EXAMPLE.plot().get_yticklabels()]
    assert labels == ["transductive" in row.flags for row in EXAMPLE.tab().measured if row.rank]
    refuses(StsbenchError, "has no ranked rows", EXAMPLE.plot, "cost-minutes")
    refuses(StsbenchError, "no tab 'sts-spearman-al'; did you mean sts-spearman-all", EXAMPLE.plot, "sts-spearman-al")


def test_latex_json_and_files_are_the_build_s(tmp_path):
    assert EXAMPLE.latex() == latex_tables(EXAMPLE) and EXAMPLE.latex("cost-minutes") == latex(EXAMPLE.tab("cost-minutes"))
    whole, pages = json.loads(EXAMPLE.to_json()), site(EXAMPLE)
    assert {**whole, "tabs": 0} == {**json.loads(pages["index.json"]), "tabs": 0}
    for tab in whole["tabs"]:
        shard = json.loads(pages[f"tabs/{tab['id']}.json"])
        assert tab["measured"] == shard["measured"] and tab["published"] == shard["published"] and tab["columns"]
    written = EXAMPLE.save(tmp_path / "page")
    assert {name: (tmp_path / "page" / name).read_text("utf-8") for name in pages} == pages
    assert len(written) == len(pages) + 3 and EXAMPLE.save(str(tmp_path / "page")) == ()
