"""The sentences of the STS data as training text: the paper's counts on the real data, and what the sample holds."""

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


def test_the_counts_are_those_of_the_paper_and_what_a_part_of_the_texts_holds_of_the_tests():
    """All the sentences, STS-B's alone, and those of its training split: shares in percent of each set's sentences."""
    texts = sts_texts(real_data())
    assert texts.counts == COUNTS and sum(COUNTS.values()) == 89_192 and not texts.warnings
    every = texts.path.read_text("utf-8").split("\n")
    assert len(every) == 89_193 and every[-1] == "" and all(every[:-1]) and texts.path.name == "sts-texts.txt"
    start, sets = 0, {}
    for name, count in COUNTS.items():
        sets[name], start = every[start : start + count], start + count
    train, alone = (sts_texts(real_data(), name=name) for name in ("stsb-train-texts", "stsb-texts"))
    assert train.counts == {"stsb": 11_498} and train.path.name == "stsb-train-texts.txt"
    known = set(train.path.read_text("utf-8").splitlines())
    shares = [round(100 * sum(text in known for text in texts) / len(texts)) for texts in [*sets.values()][:5]]
    assert shares == [35, 40, 52, 15, 3] and NAMED["stsb-train-texts"].tested == tuple(COUNTS)[:5]
    lines = alone.path.read_text("utf-8").split("\n")[:-1]
    assert lines == sets["stsb"] and alone.counts == {"stsb": 17_256} and alone.path.name == "stsb-texts.txt"
    shares = {name: 100 * len({*texts} & {*lines}) / len({*texts}) for name, texts in sets.items()}
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
