"""Readers: what SentEval keeps, what it drops, and one line naming file and line for everything malformed."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from realdata import real_data

from stsbench.data.fetch.sources import load
from stsbench.data.sets import readers
from stsbench.data.sets.catalog import catalog, entries, entry
from stsbench.errors import DataError

PAIR_SETS = [item for item in entries("senteval") if item.kind in ("sts-year", "stsb", "sick")]


def year(folder: Path, pairs: bytes, gold: bytes) -> readers.PairRows:
    (folder / "STS.input.x.txt").write_bytes(pairs)
    (folder / "STS.gs.x.txt").write_bytes(gold)
    return readers.read_sts_year(folder, ["x"])


def test_blank_gold_is_dropped_after_zipping(tmp_path: Path) -> None:
    rows = year(tmp_path, b"a\tb\nc\td\ne\tf\n", b"1\n\n2.5\n")
    assert (rows.first, rows.second, rows.gold, rows.subsets) == (["a", "e"], ["b", "f"], [1.0, 2.5], ["x", "x"])


def test_whitespace_runs_become_one_space_and_line_ends_do_not_matter(tmp_path: Path) -> None:
    rows = year(tmp_path, b"  a   b\tc\xc2\xa0d \r\ne\tf", b"1\r\n2")
    assert (rows.first, rows.second, rows.gold) == (["a b", "e"], ["c d", "f"], [1.0, 2.0])


@pytest.mark.parametrize("odd", ["\u2028", "\u0085", "\x0b", "\x0c", "\x1c", "\r"])
def test_exotic_line_ends_stay_inside_a_sentence(tmp_path: Path, odd: str) -> None:
    rows = year(tmp_path, f"a{odd}b\tc\nd\te\n".encode(), b"1\n2\n")
    assert rows.first == ["a b", "d"] and rows.gold == [1.0, 2.0]


@pytest.mark.parametrize(("pairs", "gold", "message"), [
    (b"a\tb\nc\td\n", b"1\n", r"STS\.input\.x\.txt has 2 lines but .*STS\.gs\.x\.txt has 1"),
    (b"a\tb\nc d\n", b"1\n2\n", r"STS\.input\.x\.txt:2: .*0 tabs"),
    (b"a\tb\tc\n", b"1\n", r"STS\.input\.x\.txt:1: .*2 tabs"),
    (b"a\tb\n \tc\n", b"1\n2\n", r"STS\.input\.x\.txt:2: a sentence is empty"),
    (b"a\tb\n", b"five\n", r"STS\.gs\.x\.txt:1: the score 'five' is not a number"),
    (b"a\tb\n", b"1_0e-1\n", r"STS\.gs\.x\.txt:1: the score '1_0e-1' is not a number"),
    (b"a\tb\nc\td\n", b"1\n5.1\n", r"STS\.gs\.x\.txt:2: the score 5\.1 is outside 0-5"),
    (b"a\tb\n", b"-0.5\n", r"STS\.gs\.x\.txt:1: the score -0\.5 is outside"),
    (b"a\tb\n", b"nan\n", r"STS\.gs\.x\.txt:1: the score nan is outside"),
    (b"a\tb\nc\t\xe9t\xe9\n", b"1\n2\n", r"STS\.input\.x\.txt:2: not valid UTF-8 \(byte 0xe9\)"),
    (b"a\tb\n", "\ufeff1\n".encode("utf-16"), r"STS\.gs\.x\.txt:1: not valid UTF-8"),
])
def test_malformed_year(tmp_path: Path, pairs: bytes, gold: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        year(tmp_path, pairs, gold)


def test_stsb_keeps_quotes_and_ignores_trailing_columns(tmp_path: Path) -> None:
    path = tmp_path / "sts-x.csv"
    path.write_text('g\tf\ty\t1\t5.000\t"a man\the said "b"\nG\tF\tY\t2\t0\tc\td\textra\textra\n')
    rows = readers.read_stsb(path)
    assert rows.first == ['"a man', "c"] and rows.second == ['he said "b"', "d"] and rows.gold == [5.0, 0.0]


@pytest.mark.parametrize(("line", "message"), [
    ("g\tf\ty\t1\t5\tonly one", ":1: expected at least 7 tab-separated columns, found 6"),
    ("g\tf\ty\t1\tx\ta\tb", ":1: the score 'x'"),
    ("g\tf\ty\t1\t6\ta\tb", ":1: the score 6 is outside"),
])
def test_malformed_stsb(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "sts-x.csv"
    path.write_text(line + "\n")
    with pytest.raises(DataError, match=message):
        readers.read_stsb(path)


SICK_HEADER = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\r\n"


def test_sick_header_and_crlf(tmp_path: Path) -> None:
    path = tmp_path / "SICK.txt"
    path.write_bytes((SICK_HEADER + "1\tA b\tC\t4.5\tNEUTRAL\r\n").encode())
    rows = readers.read_sick(path)
    assert (rows.first, rows.second, rows.gold) == (["A b"], ["C"], [4.5])


@pytest.mark.parametrize(("text", "message"), [
    ("1\tA\tB\t4.5\tNEUTRAL\n", r"SICK\.txt:1: expected SICK's header"),
    (SICK_HEADER + "1\tA\tB\t0.5\tNEUTRAL\n", r"SICK\.txt:2: the score 0\.5 is outside 1-5"),
    (SICK_HEADER + "1\tA\tB\n", r"SICK\.txt:2: expected at least 5"),
])
def test_malformed_sick(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "SICK.txt"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        readers.read_sick(path)


def test_raw_keeps_texts_letter_by_letter(tmp_path: Path) -> None:
    line = json.dumps({"sentence1": "A  b\u2028c.", "sentence2": " D", "score": "2.5"}, ensure_ascii=False) + "\n"
    (tmp_path / "t.jsonl").write_text(line)
    (tmp_path / "t.jsonl.gz").write_bytes(gzip.compress(line.encode()))
    plain, packed = (readers.read_raw(tmp_path / name, "STS12") for name in ("t.jsonl", "t.jsonl.gz"))
    assert plain == packed and plain.first == ["A  b\u2028c."] and plain.second == [" D"] and plain.gold == [2.5]


@pytest.mark.parametrize(("line", "message"), [
    ("{", ":1: not valid JSON"), ("[1]", ":1: expected a JSON object"), ("", ":1: not valid JSON"),
    ('{"sentence1": "a", "score": 1}', ":1: sentence1 and sentence2 must be texts"),
    ('{"sentence1": "a", "sentence2": "b"}', ":1: the score None is not a number"),
    ('{"sentence1": "a", "sentence2": "b", "score": true}', ":1: the score True is not a number"),
    ('{"sentence1": "a", "sentence2": "b", "score": 9}', ":1: the score 9 is outside 0-5"),
])
def test_malformed_raw(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(DataError, match=message):
        readers.read_raw(path, "STS12")


def test_broken_gzip(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"sentence1": "a"}\n' * 99)[:-12])
    with pytest.raises(DataError, match=r"t\.jsonl\.gz is not a complete gzip file"):
        readers.read_raw(path, "STS12")


def test_unreadable_path_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot read .*absent\.csv: No such file"):
        readers.read_stsb(tmp_path / "absent.csv")


WORD = st.text(st.characters(exclude_categories=("Cs", "Z", "Cc")), min_size=1, max_size=6)
SENTENCE = st.lists(WORD, min_size=1, max_size=5).map(" ".join)
ROW = st.tuples(SENTENCE, SENTENCE, st.none() | st.floats(0, 5))


@given(rows=st.lists(ROW, max_size=12), end=st.sampled_from(["\n", "\r\n"]), last=st.booleans())
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str, float | None]], end: str, last: bool
) -> None:
    folder = tmp_path_factory.mktemp("year")
    # The final line end may be left out unless the last gold line is blank: then it is what makes that line a line.
    tail = end if last or not rows or rows[-1][2] is None else ""
    pairs = end.join(f"{first}\t{second}" for first, second, _ in rows)
    gold = end.join("" if score is None else repr(score) for _, _, score in rows)
    read = year(folder, (pairs + tail if rows else "").encode(), (gold + tail if rows else "").encode())
    scored = [row for row in rows if row[2] is not None]
    assert list(zip(read.first, read.second, read.gold, strict=True)) == scored


@pytest.mark.parametrize("item", PAIR_SETS, ids=lambda item: item.id)
def test_real_data_have_the_catalog_s_counts_and_digest(item) -> None:
    found = load(item.id, data_dir=real_data(), strict=True)
    assert found.known and found.warnings == () and found.digest == item.digest
    assert {name: found.subsets.count(name) for name in found.order} == item.counts
    assert found.order == tuple(item.counts) and len(found) == item.total


def test_sick_mteb_is_train_trial_test_merged() -> None:
    data = real_data()
    parts = [load(f"sick-r/{split}", data_dir=data) for split in ("train", "trial", "test")]
    whole = load("sick-r/mteb", data_dir=data)
    assert whole.first == sum((part.first for part in parts), ()) and len(whole) == 9927


def test_catalog_totals_are_the_published_ones() -> None:
    assert [entry(f"sts{year}/test").total for year in range(12, 17)] == [3108, 1500, 3750, 3000, 1186]
    assert [entry(f"stsb/{split}").total for split in ("train", "dev", "test")] == [5749, 1500, 1379]
    assert entry("sick-r/test").total == 4927
    for item in entries():
        assert sum(item.counts.values()) == item.total
        assert all(len(digest) == (0 if item.text_version == "raw" else 64) for digest in item.files.values())
    years = {f"sts{year}/test" for year in range(12, 17)}
    assert {item.id for item in entries("raw")} == years | {"stsb/test", "sick-r/mteb"}
    assert all(len(item.hub.revision) == 40 for item in entries("raw") if item.hub)
    assert len(catalog().archive.revision) == 40


def test_unknown_id_suggests_the_nearest() -> None:
    with pytest.raises(DataError, match="did you mean stsb/dev"):
        entry("stsb/dv")
    with pytest.raises(DataError, match=r"stsb/dev has no text version 'raw': it has senteval"):
        entry("stsb/dev", "raw")
    with pytest.raises(DataError, match="known: sts12/test"):
        entry("qqqqqq")
