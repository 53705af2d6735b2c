"""Names that would mislead are refused, or shown as what they are. Records are refused by tests/refusals/board.yaml."""

import csv
import io
import re
from dataclasses import replace

import board_example
import numpy as np
import pytest
import yaml
from board_runs import copied, read_once, runs  # noqa: F401  fixtures
from run_edits import edit_all

from stsbench.errors import StsbenchError
from stsbench.evaluation.protocol import Observations
from stsbench.evaluation.run_file import load_records, read_observations
from stsbench.leaderboard.page.tables import csv_table, latex_tables, markdown_tables
from stsbench.leaderboard.ranks.board import Board
from stsbench.leaderboard.ranks.gather import gather
from stsbench.leaderboard.records.add import add, described
from stsbench.leaderboard.records.admission import _check_names
from stsbench.leaderboard.records.entries import Entry, read_entry, refuse_equal_names

UNSEEN = (  # an escape, a bell, marks of direction, blanks without width, fillers, sixty accents, a tag, a line's end, ...
    "a\x1b[31mb", "a\x07", "a\u202eb", "a\u2066b", "a\u200bb", "a\u00adb", "a\u2028b", "a\u3164", "a\u034fb", "a\ufe0e",
    "a\u2800b", "a" + "\u0301" * 60, "\ufeffa", "a\U000e0041", "a\x85b", "a\x00b",
)
FORMULAS = ['=HYPERLINK("http://x.y","z")', "+1+cmd|' /C calc'!A0", "-2+3", "@SUM(1)", "\uff1d1+1", "\uff20SUM(1)",
            "a;=1+1", "a; @b", "'=1+1"]
MARKUP = ["http://y.z www.y.z", "@b a@b.c", "a|b", "<script>alert(1)</script>", r"\input{/etc/passwd}", "[x](http://y.z)"]


def test_what_is_not_seen_is_in_no_description(tmp_path):
    fields = ("method", "backbone", "note", "recipe")
    for at, text in enumerate(UNSEEN):
        field = fields[at % 4]
        stated = {"method": "m", "backbone": "b", "setting": "unsup", field: text}
        with pytest.raises(StsbenchError, match=rf"^--{field} holds a character that is not seen \(U\+") as error:
            described(stated)
        assert str(error.value).isprintable()
        (tmp_path / "entry.yaml").write_text(yaml.safe_dump(stated))
        with pytest.raises(StsbenchError, match=r"entry.yaml: .*not seen"):
            read_entry(tmp_path / "entry.yaml")


def test_names_that_look_alike_are_one():
    for name, others in (
        ("Letters", ["letters", " LETTERS ", "Le\u0442ters", "\uff2cetters", "L\u0435tt\u0435rs", "\U0001d40betters"]),
        ("a-b c", ["A\u2010B C", "a\u2013b\u00a0c", "a\uff0db\u3000c", "a-b  c"]), ("é", ["e\u0301", "E\u0301"]),
    ):
        entry = Entry(method=name, backbone="b", setting="unsup")
        for other in others:
            with pytest.raises(StsbenchError, match="have one method, backbone and setting"):
                refuse_equal_names([("x", entry), ("y", entry.model_copy(update={"method": other}))])
        refuse_equal_names([("x", entry), ("y", entry.model_copy(update={"method": f"{name} 2"}))])


def test_formulas_and_markup_are_text_in_every_table():
    example = board_example.board(measured=4, published=1)
    for text in (*FORMULAS, *MARKUP):
        row = replace(example.tabs[0].measured[1], method=text, backbone=text)
        board = Board((replace(example.tabs[0], measured=(row,), published=()),), example.entries)
        for line in csv.DictReader(io.StringIO(csv_table(board))):
            parts = [part.strip() for cell in line.values() if cell for part in cell.split(";")]
            assert not any(part.startswith(("=", "+", "@", "\uff1d", "\uff20")) for part in parts), line
            assert line["method"].replace("'", "") == text.replace("'", "")
            assert text[0] not in "=+-@" or line["method"][0] == "'"
        assert not re.search(r"://y|www\.y|@b|<script|(?<!\\)\]\(http://y|\| a\|b \|", markdown_tables(board))
        assert r"\input" not in latex_tables(board)


def test_numbers_beyond_float64_are_none_of_an_observation(runs):
    path, record = next((path, record) for path, record in load_records(runs["letters"]) if record.protocol.name == "sts")
    stored = read_observations(path.parent, record)
    longer = Observations({**stored.arrays, "similarity": stored.arrays["similarity"].astype(np.longdouble)}, stored.names)
    with pytest.raises(StsbenchError, match="something that is not a number: similarity"):
        _check_names(path, longer)


def test_times_of_any_zone_are_shown_in_one(copied, tmp_path):
    """As texts 23:00+14:00 would be later than 12:00+00:00 of the same day, and is not."""
    run = edit_all(copied("letters"), lambda row: row.record.update(created="2026-01-02T23:00:00+14:00"))
    add(tmp_path, [run], "letters", Entry(method="m", backbone="b", setting="unsup"))
    assert gather(tmp_path).entries["letters"].runs[0]["measured"] == ["2026-01-02T09:00:00+00:00"] * 2
