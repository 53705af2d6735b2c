"""Sentences in common: on made-up sets, on the real ones, and through the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from realdata import real_data

from stsbench.cli.data import data
from stsbench.data.fetch.sources import load_data
from stsbench.data.own.overlap import overlapping_pairs
from stsbench.data.sets.sentences import normalise
from stsbench.data.sets.sets import PairSet
from stsbench.errors import DataError
from stsbench.extensions.overlap.leakage import overlap


def pairs(name: str, *rows: tuple[str, str]) -> PairSet:
    return PairSet(
        id=name, task="T", text_version="senteval", first=tuple(a for a, _ in rows), second=tuple(b for _, b in rows),
        gold=np.zeros(len(rows)), subsets=("x",) * len(rows),
    )


def test_counts_and_mask() -> None:
    target = pairs("t", ("A man, runs.", "b"), ("c", "d"), ("e", "A man runs"), ("...", "f"))
    report = overlap(target, [pairs("u", ("a man runs", "x")), pairs("v", ("D!", "???"), ("a  man runs", "y"))])
    assert (report.sentences, report.shared, report.by_other) == (6, 2, {"u": 1, "v": 2})
    assert report.percent == pytest.approx(100 * 2 / 6) and (report.pairs, report.touched_pairs) == (4, 3)
    mask = overlapping_pairs(target, [pairs("u", ("a man runs", "x"))])
    assert mask.tolist() == [True, False, True, False] and target.keep(~mask).first == ("c", "...")
    assert overlap(target, [target]).shared == 6
    assert overlap(pairs("t"), []).percent == 0.0 and overlapping_pairs(pairs("t"), []).shape == (0,)
    scored, labelled = load_data("stsb/dev", sample=True), load_data("mr", sample=True)
    for asked, others in ((labelled, [scored]), (scored, [labelled])):
        for measure in (overlap, overlapping_pairs):
            with pytest.raises(DataError, match=r"^mr holds labelled texts, not scored pairs"):
                measure(asked, others)
    for text, same in (("It &apos;s  a\tTest .", "it s a test"), ("It's a test", "it s a test"), ("a_b-C", "a b c"),
                       ("Été 3!", "été 3"), ("…", "")):
        assert normalise(text) == same


def test_stsb_dev_stands_mostly_in_the_test_sets() -> None:
    folder = real_data()
    others = [load_data(f"{name}/test", data_dir=folder) for name in ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb")]
    report = overlap(load_data("stsb/dev", data_dir=folder), others)
    assert (report.sentences, report.shared, report.touched_pairs) == (2907, 2237, 1180)
    assert round(report.percent, 2) == 76.95


def run(*arguments: str) -> str:
    result = CliRunner().invoke(data, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_command_line(tmp_path: Path) -> None:
    table = run("overlap", "stsb/dev", "--sample")
    assert "any of these" in table and "not comparable with published numbers" in table
    report = json.loads(run("overlap", "stsb/dev", "--with", "stsb/test,stsb/dev", "--sample", "--json", "-"))
    assert report["others"] == ["stsb/test"] and report["view"] == "sample" and len(report["digests"]["stsb/dev"]) == 64
    run("overlap", "stsb/dev", "--sample", "--json", str(tmp_path / "o.json"))
    assert json.loads((tmp_path / "o.json").read_text())["target"] == "stsb/dev"
    with pytest.raises(DataError, match="at least one set other than the target"):
        run("overlap", "stsb/dev", "--with", "stsb/dev", "--sample")
