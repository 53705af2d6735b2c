"""The sentences of the STS data as training text: the paper's counts on the real data, and what the sample holds."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from realdata import real_data

import stsbench.data
from stsbench.data.fetch.sources import NAMED, sts_texts
from stsbench.errors import DataError

COUNTS = {"sts12": 6216, "sts13": 3000, "sts14": 7500, "sts15": 17000, "sts16": 18366, "stsb": 17256, "sick-r": 19854}
SAMPLE = Path(stsbench.data.__file__).parent / "sample"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))


def test_the_counts_are_those_of_the_paper():
    texts = sts_texts(real_data())
    assert texts.counts == COUNTS and sum(COUNTS.values()) == 89_192
    lines = texts.path.read_text("utf-8").split("\n")
    assert len(lines) == 89_193 and lines[-1] == "" and all(lines[:-1])
    assert texts.path.name == "sts-texts.txt" and not texts.warnings


def test_the_sentences_of_the_training_split_and_how_many_are_tested_elsewhere():
    """What is flagged, and the shares that it gives."""
    train = sts_texts(real_data(), name="stsb-train-texts")
    assert train.counts == {"stsb": 11_498} and train.path.name == "stsb-train-texts.txt"
    known = set(train.path.read_text("utf-8").splitlines())
    every = sts_texts(real_data()).path.read_text("utf-8").splitlines()
    start, shares = 0, []
    for count in list(COUNTS.values())[:5]:
        tested = every[start : start + count]
        shares.append(round(100 * sum(text in known for text in tested) / count))
        start += count
    assert shares == [35, 40, 52, 15, 3] and NAMED["stsb-train-texts"].tested == tuple(COUNTS)[:5]


def test_stsb_alone_in_the_order_of_its_splits_and_what_it_holds_of_other_tests():
    texts = sts_texts(real_data(), name="stsb-texts")
    every = sts_texts(real_data()).path.read_text("utf-8").split("\n")
    assert texts.counts == {"stsb": 17_256} and texts.path.name == "stsb-texts.txt"
    lines = texts.path.read_text("utf-8").split("\n")
    before = sum(COUNTS[f"sts{year}"] for year in range(12, 17))
    assert lines[:-1] == every[before : before + 17_256]
    seen, start, shares = set(lines), 0, {}
    for name, count in COUNTS.items():
        part = set(every[start : start + count])
        start, shares[name] = start + count, 100 * len(part & seen) / len(part)
    rounded = {"sts12": 55, "sts13": 54, "sts14": 62, "sts15": 27, "sts16": 9, "stsb": 100, "sick-r": 0}
    assert {name: round(share) for name, share in shares.items()} == rounded
    assert set(NAMED["stsb-texts"].tested) == {name for name, share in shares.items() if share}


def test_both_sentences_of_every_pair_scored_or_not(tmp_path):
    folder = tmp_path / "data"
    shutil.copytree(SAMPLE, folder)
    before = sts_texts(folder)
    year = folder / "downstream" / "STS" / "STS12-en-test"
    scores = year / "STS.gs.MSRpar.txt"
    scores.write_text("\n" * len(scores.read_text("utf-8").splitlines()), "utf-8")
    after = sts_texts(folder)
    assert after.path == before.path and after.counts == before.counts
    first = (year / "STS.input.MSRpar.txt").read_text("utf-8").split("\n")[0].split("\t")
    assert before.path.read_text("utf-8").split("\n")[:2] == [" ".join(text.split()) for text in first]
    assert set(before.counts) < set(NAMED["sts-texts"].tested)


def test_changed_files_are_said_and_missing_ones_named(tmp_path):
    folder = tmp_path / "data"
    shutil.copytree(SAMPLE, folder)
    assert sts_texts(folder).warnings and not sts_texts(sample=True).warnings
    (folder / "downstream" / "SICK" / "SICK_trial.txt").unlink()
    with pytest.raises(DataError, match=r"SICK_trial\.txt is missing"):
        sts_texts(folder)
