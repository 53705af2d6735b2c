"""Readers: what SentEval keeps and what it drops."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from realdata import real_data

from stsbench.data.fetch.sources import load_data
from stsbench.data.sets import readers
from stsbench.data.sets.catalog import catalog, entries, entry


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


def test_exotic_line_ends_stay_inside_a_sentence(tmp_path: Path) -> None:
    for odd in "\u2028\u0085\x0b\x0c\x1c\r":
        rows = year(tmp_path, f"a{odd}b\tc\nd\te\n".encode(), b"1\n2\n")
        assert rows.first == ["a b", "d"] and rows.gold == [1.0, 2.0]


def test_stsb_keeps_quotes_and_ignores_trailing_columns(tmp_path: Path) -> None:
    path = tmp_path / "sts-x.csv"
    path.write_text('g\tf\ty\t1\t5.000\t"a man\the said "b"\nG\tF\tY\t2\t0\tc\td\textra\textra\n')
    rows = readers.read_stsb(path)
    assert rows.first == ['"a man', "c"] and rows.second == ['he said "b"', "d"] and rows.gold == [5.0, 0.0]


SICK_HEADER = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\r\n"


def test_sick_header_and_crlf(tmp_path: Path) -> None:
    path = tmp_path / "SICK.txt"
    path.write_bytes((SICK_HEADER + "1\tA b\tC\t4.5\tNEUTRAL\r\n").encode())
    rows = readers.read_sick(path)
    assert (rows.first, rows.second, rows.gold) == (["A b"], ["C"], [4.5])


def test_raw_keeps_texts_letter_by_letter(tmp_path: Path) -> None:
    line = json.dumps({"sentence1": "A  b\u2028c.", "sentence2": " D", "score": "2.5"}, ensure_ascii=False) + "\n"
    (tmp_path / "t.jsonl").write_text(line)
    (tmp_path / "t.jsonl.gz").write_bytes(gzip.compress(line.encode()))
    plain, packed = (readers.read_raw(tmp_path / name, "STS12") for name in ("t.jsonl", "t.jsonl.gz"))
    assert plain == packed and plain.first == ["A  b\u2028c."] and plain.second == [" D"] and plain.gold == [2.5]


def test_sick_mteb_is_train_trial_test_merged() -> None:
    data = real_data()
    parts = [load_data(f"sick-r/{split}", data_dir=data) for split in ("train", "trial", "test")]
    whole = load_data("sick-r/mteb", data_dir=data)
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
