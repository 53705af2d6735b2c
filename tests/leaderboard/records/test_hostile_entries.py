"""Names and records that would mislead: refused in one line by add and build alike, or shown as what they are."""

import csv
import io
import re
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
import yaml
from board_runs import copied, read_once, runs  # noqa: F401  fixtures
from run_edits import edit, rows_of, with_column, with_layout, with_metadata, write_rows

from stsbench.errors import StsbenchError
from stsbench.evaluation.protocol import Observations
from stsbench.evaluation.run_file import RUN, load_records, observations_of
from stsbench.leaderboard.page.tables import csv_table, latex_tables, markdown_tables
from stsbench.leaderboard.ranks.gather import gather
from stsbench.leaderboard.records.add import add, described
from stsbench.leaderboard.records.admission import _check_names
from stsbench.leaderboard.records.entries import Entry, load_entries, read_entry, refuse_equal_names

UNSEEN = {"ESC": "a\x1b[31mb", "BEL": "a\x07", "bidi": "a\u202eb", "isolate": "a\u2066b", "zero width": "a\u200bb",
          "soft": "a\u00adb", "line": "a\u2028b", "filler": "a\u3164", "joiner": "a\u034fb", "variant": "a\ufe0e",
          "blank of Braille": "a\u2800b", "accents": "a" + "\u0301" * 60,
          "BOM": "\ufeffa", "tag": "a\U000e0041", "return": "a\rb", "NUL": "a\x00b"}
BLANK = {"zero width": "\u200b", "filler": "\u3164", "dots": "...", "braille": "\u2800"}
FORMULAS = ['=HYPERLINK("http://x.y","z")', "+1+cmd|' /C calc'!A0", "-2+3", "@SUM(1)", "\uff1d1+1", "\uff20SUM(1)",
            "a;=1+1", "a; @b", "'=1+1"]


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


@pytest.mark.parametrize("link", ["https://x.y/\u202egnp", "https://x.y/" + "z" * 500])
def test_a_paper_s_address_can_be_read(link):
    with pytest.raises(StsbenchError, match="--paper"):
        described({"method": "m", "backbone": "b", "setting": "unsup", "paper": link})


@pytest.mark.parametrize("card", ["//x.y/card", "/etc/passwd", r"\\x\card", r"a\b"])
def test_a_card_is_in_the_repository_or_has_an_address(card):
    with pytest.raises(StsbenchError, match="--card: an address"):
        described({"method": "m", "backbone": "b", "setting": "unsup", "card": card})


ALIKE = {"Letters": ["letters", " LETTERS ", "Le\u0442ters", "\uff2cetters", "L\u0435tt\u0435rs", "\U0001d40betters"],
         "a-b c": ["A\u2010B C", "a\u2013b\u00a0c", "a\uff0db\u3000c", "a-b  c"], "é": ["e\u0301", "E\u0301"]}


@pytest.mark.parametrize("name", ALIKE)
def test_names_that_look_alike_are_one(name):
    one = Entry(method=name, backbone="b", setting="unsup")
    for other in ALIKE[name]:
        with pytest.raises(StsbenchError, match="have one method, backbone and setting"):
            refuse_equal_names([("x", one), ("y", one.model_copy(update={"method": other}))])
    refuse_equal_names([("x", one), ("y", one.model_copy(update={"method": f"{name} 2"}))])


def test_formulas_and_markup_are_text_in_every_table(runs, tmp_path):
    links = ["http://y.z www.y.z", "@b a@b.c"]
    hostile = [*FORMULAS, *links, "a|b", "<script>alert(1)</script>", r"\input{/etc/passwd}", "[x](http://y.z)"]
    for number, method in enumerate(hostile):
        add(tmp_path / str(number), [runs["letters"]], "letters", Entry(method=method, backbone=method, setting="unsup"))
        found = gather(tmp_path / str(number))
        for row in csv.DictReader(io.StringIO(csv_table(found))):
            parts = [part.strip() for cell in row.values() if cell for part in cell.split(";")]
            assert not any(part.startswith(("=", "+", "@", "\uff1d", "\uff20")) for part in parts), row
            if row["kind"] == "measured":
                assert row["method"].replace("'", "") == method.replace("'", "")
                assert method[0] not in "=+-@" or row["method"][0] == "'"
        markdown = markdown_tables(found)
        assert not re.search(r"://y|www\.y|@b", markdown)
        assert "<script" not in markdown and not re.search(r"(?<!\\)\]\(http://y", markdown) and "| a|b |" not in markdown
        assert r"\input" not in latex_tables(found)


def edited(run, change):
    """The run's first sts record after `change`."""
    name = min(row.name for row in rows_of(run) if row.name.startswith("sts."))
    return edit(run, lambda row: change(row.record), name)


def only_run(board):
    (file,) = board.glob(f"measured/*/*/{RUN}")
    return file


LATER = (datetime.now(UTC) + timedelta(days=400)).isoformat()
SOON = (datetime.now(UTC) + timedelta(hours=3)).isoformat()
CHANGES = {
    "2031": (lambda r: r.update(created=LATER), "created: .* has not come yet"),
    "wide": (lambda r: r["encoder"].update(dimension=10**30), "not a valid record: encoder.dimension"),
    "wider": (lambda r: r["encoder"].update(dimension=1024), r"dimension is \d+, in .* it is \d+"),
    "seed": (lambda r: r["provenance"].update(seed="x"), "seed of its provenance is 'x', not a whole number"),
    "half a seed": (lambda r: r["provenance"].update(seed=1.5), "seed of its provenance is 1.5"),
    "escape": (lambda r: r["provenance"].update(command=["\x1b[2J"]), r"holds a character that is not seen \(U\+001B\)"),
    "1970": (lambda r: r.update(created="1970-01-01T00:00:00Z"), "created: 1970-01-01 00:00 UTC is long past"),
    "soon": (lambda r: r.update(created=SOON), "created: .* has not come yet"),
    "a text for a time": (lambda r: r.update(created="noon"), "not a valid record: created"),
    "no time": (lambda r: r.update(created=None), "its column created has empty cells"),
    "true for 1": (lambda r: r["encoder"].update(dimension=True), "not a valid record: encoder.dimension"),
    "text for a number": (lambda r: r["data"].update(n=str(r["data"]["n"])), "not a valid record: data.n"),
    "1 for true": (lambda r: r["data"].update(known=0), "not a valid record: data.known"),
    "2e9 wide": (lambda r: r["encoder"].update(dimension=2 * 10**9), "not a valid record: encoder.dimension"),
    "NaN": (lambda r: r["provenance"].update(speed=float("nan")), "valid record: provenance: NaN is not a finite number"),
    "a device": (lambda r: r["provenance"].update(device={}), "not a valid record: provenance.device"),
    "an argument": (lambda r: r["provenance"].update(command=[1]), "not a valid record: provenance.command.0"),
    "a start": (lambda r: r["provenance"].update({"from": "x"}), "not a valid record: provenance.from"),
    "a number trained on": (lambda r: r["provenance"].update(trained_on=5), "not a valid record: provenance.trained_on"),
    "an overlap": (lambda r: r["provenance"].update(training_overlap=[{"text": "a.txt"}]),
                   "not a valid record: provenance.training_overlap.0.digest"),
    "a revision": (lambda r: r["provenance"].update(git="=1+1"), "not a valid record: provenance.git"),
    "options": (lambda r: r["encoder"]["spec"].update(options=[1]), "not a valid record: encoder.spec.options"),
    "a name": (lambda r: r["encoder"]["spec"].update(name="x" * 301), "holds a name of 301 characters, at most 300"),
    "an origin": (lambda r: r["data"].update(origin="x" * 5001), "holds a text of 5,001 characters, at most 5,000"),
    "texts": (lambda r: r["counts"].update(truncated=9999), r"counts: \d+ items have no 9999 texts"),
    "bidi": (lambda r: r["data"].update(origin="\u202egnp"), r"not seen \(U\+202E\)"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_records_that_nobody_measured_are_refused_by_add_and_build(name, copied, tmp_path):
    change, message = CHANGES[name]
    board = tmp_path / "board"
    run = copied("letters")
    add(board, [run], "letters", Entry(method="m", backbone="b", setting="unsup"))
    edited(only_run(board), change)
    refused_by_build(board, message)
    edited(run, change)
    refused_by_add(tmp_path / "new", run, message)


def refused_by_build(board, message):
    for check in (gather, lambda root: load_entries(root / "measured")):
        with pytest.raises(StsbenchError, match=message) as error:
            check(board)
        assert str(error.value).isprintable()


def refused_by_add(board, run, message):
    with pytest.raises(StsbenchError, match=message):
        add(board, [run], "letters", Entry(method="m", backbone="b", setting="unsup"))
    assert not (board / "measured").exists()


SENTENCE = "A sentence of the data set."


def named_twice(text):
    """A layout that names its first array twice: readers of JSON take the second."""
    return f'{{"{text.split(chr(34))[1]}": ["{SENTENCE}", []], {text[1:]}'


def nothing(run, kind):
    return pa.array([None] * len(rows_of(run)), pa.list_(kind))


BESIDE = {  # what a run file might hold that no record speaks of
    "a column of texts": (lambda run: with_column(run, "notes", [SENTENCE] * len(rows_of(run))),
                          "notes does not hold lists of numbers"),
    "a column of lists of texts": (lambda run: with_column(run, "notes", [[SENTENCE]] * len(rows_of(run))),
                                   "notes does not hold lists of numbers"),
    "a column of names": (lambda run: with_column(run, "names.more", [[SENTENCE]] * len(rows_of(run))),
                          "sha256 differs|which the protocol does not declare"),
    "a column of numbers": (lambda run: with_column(run, "notes", [[1, 2]] * len(rows_of(run))),
                            "notes holds lists that its layout does not name"),
    "letters as numbers": (lambda run: with_column(run, "observed.notes", [[*SENTENCE.encode()]] * len(rows_of(run))),
                           "observed.notes holds lists that its layout does not name"),
    "metadata": (lambda run: with_metadata(run, notes=SENTENCE), "it is not marked as run 1"),
    "another form": (lambda run: with_metadata(run, stsbench="run 0"), "it is not marked as run 1"),
    "no form": (lambda run: run.write_bytes(b"PAR1"), "is not a valid run file"),
    "a text beside a shape": (lambda run: with_layout(run, lambda text: text.replace("]]", f'], "{SENTENCE}"]', 1)),
                              "is not a valid run file"),
    "an array twice": (lambda run: with_layout(run, named_twice), "is not a valid run file"),
    "a name of no array": (lambda run: with_column(run, f"observed.{SENTENCE}", nothing(run, pa.float64())),
                           "is not a valid run file"),
    "a name of no names": (lambda run: with_column(run, f"names.{SENTENCE}", nothing(run, pa.string())),
                           "is not a valid run file"),
}


@pytest.mark.parametrize("name", BESIDE)
def test_a_run_file_holds_nothing_beside_its_records(name, copied, tmp_path):
    """A data set's sentences could come into git in a place where nobody looks."""
    change, message = BESIDE[name]
    board, run = tmp_path / "board", copied("letters")
    add(board, [run], "letters", Entry(method="m", backbone="b", setting="unsup"))
    for file in (only_run(board), run / RUN):
        change(file)
    refused_by_build(board, message)
    refused_by_add(tmp_path / "new", run, message)


def test_a_run_without_records_is_refused(copied, tmp_path):
    run = copied("letters")
    write_rows(run, [])
    refused_by_add(tmp_path / "board", run, r"run\.parquet holds no records")


def test_numbers_beyond_float64_are_none_of_an_observation(runs):
    path, record = next((path, record) for path, record in load_records(runs["letters"]) if record.protocol.name == "sts")
    seen = observations_of(path.parent, record)
    seen = Observations({**seen.arrays, "similarity": seen.arrays["similarity"].astype(np.longdouble)}, seen.names)
    with pytest.raises(StsbenchError, match="something that is not a number: similarity"):
        _check_names(path, seen)


def test_times_of_any_zone_are_shown_in_one(copied, tmp_path):
    """As texts 23:00+14:00 would be later than 12:00+00:00 of the same day, and is not."""
    run = copied("letters")
    rows = rows_of(run)
    for row in rows:
        row.record["created"] = "2026-01-02T23:00:00+14:00"
    write_rows(run, rows)
    add(tmp_path, [run], "letters", Entry(method="m", backbone="b", setting="unsup"))
    board = gather(tmp_path)
    assert board.entries["letters"].runs[0]["measured"] == ["2026-01-02T09:00:00+00:00"] * 2
