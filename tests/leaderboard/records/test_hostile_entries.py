"""Names and records that would mislead: refused in one line by add and build alike, or shown as what they are."""

import csv
import io
import json
import re
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
import yaml
from board_runs import copied, read_once, runs  # noqa: F401  fixtures

from stsbench.errors import StsbenchError
from stsbench.evaluation.records import load_records
from stsbench.evaluation.rescore import observations_of
from stsbench.leaderboard.page.tables import csv_table, latex_tables, markdown_tables
from stsbench.leaderboard.ranks.gather import gather
from stsbench.leaderboard.records.add import add, described
from stsbench.leaderboard.records.admission import _check_names
from stsbench.leaderboard.records.entries import Entry, load_entries, read_entry

UNSEEN = {"ESC": "a\x1b[31mb", "BEL": "a\x07", "bidi": "a\u202eb", "isolate": "a\u2066b", "zero width": "a\u200bb",
          "soft": "a\u00adb", "line": "a\u2028b",
          "BOM": "\ufeffa", "tag": "a\U000e0041", "return": "a\rb", "NUL": "a\x00b"}  # fmt: skip
BLANK = {"zero width": "\u200b", "filler": "\u3164", "dots": "...", "braille": "\u2800"}
FORMULAS = ['=HYPERLINK("http://x.y","z")', "+1+cmd|' /C calc'!A0", "-2+3", "@SUM(1)"]


@pytest.mark.parametrize("name", UNSEEN)
@pytest.mark.parametrize("field", ["method", "backbone", "note", "recipe"])
def test_what_is_not_seen_is_in_no_description(name, field, tmp_path):
    stated = {"method": "m", "backbone": "b", "setting": "unsup", field: UNSEEN[name]}
    if name == "return" and field in ("method", "backbone", "recipe", "note"):
        stated[field] = "a\x85b"
    with pytest.raises(StsbenchError, match=rf"{field} holds a character that is not seen \(U\+") as error:
        described(stated)
    assert str(error.value).isprintable()
    (tmp_path / "entry.yaml").write_text(yaml.safe_dump(stated))
    with pytest.raises(StsbenchError, match=r"entry.yaml: .*not seen"):
        read_entry(tmp_path / "entry.yaml")


@pytest.mark.parametrize("name", BLANK)
@pytest.mark.parametrize("field", ["method", "backbone"])
def test_a_name_shows_something(name, field):
    with pytest.raises(StsbenchError, match=rf"{field} (needs a letter or a digit|holds a character that is not seen)"):
        described({"method": "m", "backbone": "b", "setting": "unsup", field: BLANK[name]})


@pytest.mark.parametrize("link", ["javascript:alert(1)", "data:text/html,x", "JaVaScRiPt:alert(1)", "vbscript:x"])
@pytest.mark.parametrize("field", ["paper", "card"])
def test_a_link_leads_to_a_page(link, field):
    with pytest.raises(StsbenchError, match=f"--{field}: an address"):
        described({"method": "m", "backbone": "b", "setting": "unsup", field: link})


def test_formulas_and_markup_are_text_in_every_table(runs, tmp_path):
    hostile = [*FORMULAS, "a|b", "<script>alert(1)</script>", r"\input{/etc/passwd}", "[x](http://y.z)"]
    for number, method in enumerate(hostile):
        add(tmp_path / str(number), [runs["letters"]], "letters", Entry(method=method, backbone=method, setting="unsup"))
        found = gather(tmp_path / str(number))
        for row in csv.DictReader(io.StringIO(csv_table(found))):
            assert not any(cell.startswith(("=", "+", "@")) for cell in row.values() if cell), row
            if row["kind"] == "measured":
                assert row["method"].removeprefix("'") == method and (method[0] not in "=+-@" or row["method"][0] == "'")
        markdown = markdown_tables(found)
        assert "<script" not in markdown and not re.search(r"(?<!\\)\]\(http://y", markdown) and "| a|b |" not in markdown
        assert r"\input" not in latex_tables(found)


def edited(board, change):
    """The board's first sts record after `change`, under its right name."""
    path = min(board.glob("measured/*/*/sts.*.json"))
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content, indent=2) + "\n")


LATER = (datetime.now(UTC) + timedelta(days=400)).isoformat()
CHANGES = {
    "2031": (lambda r: r.update(created=LATER), "created: .* has not come yet"),
    "wide": (lambda r: r["encoder"].update(dimension=10**30), "not a valid record: encoder.dimension"),
    "wider": (lambda r: r["encoder"].update(dimension=1024), r"dimension is \d+, in .* it is \d+"),
    "seed": (lambda r: r["provenance"].update(seed="x"), "seed of its provenance is 'x', not a whole number"),
    "half a seed": (lambda r: r["provenance"].update(seed=1.5), "seed of its provenance is 1.5"),
    "escape": (lambda r: r["provenance"].update(command=["\x1b[2J"]), r"holds a character that is not seen \(U\+001B\)"),
    "bidi": (lambda r: r["data"].update(origin="\u202egnp"), r"not seen \(U\+202E\)"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_records_that_nobody_measured_are_refused_by_add_and_build(name, copied, tmp_path):
    change, message = CHANGES[name]
    board = tmp_path / "board"
    run = copied("letters")
    add(board, [run], "letters", Entry(method="m", backbone="b", setting="unsup"))
    edited(board, change)
    for check in (gather, lambda root: load_entries(root / "measured")):
        with pytest.raises(StsbenchError, match=message) as error:
            check(board)
        assert str(error.value).isprintable()
    path = min(run.glob("sts.*.json"))
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    with pytest.raises(StsbenchError, match=message):
        add(tmp_path / "new", [run], "letters", Entry(method="m", backbone="b", setting="unsup"))
    assert not (tmp_path / "new" / "measured").exists()


def test_numbers_beyond_float64_are_none_of_an_observation(runs):
    path, record = next((path, record) for path, record in load_records(runs["letters"]) if record.protocol.name == "sts")
    seen = observations_of(path.parent, record)
    seen = type(seen)({**seen.arrays, "similarity": seen.arrays["similarity"].astype(np.longdouble)}, seen.names)
    with pytest.raises(StsbenchError, match="something that is not a number: similarity"):
        _check_names(path, seen)
