"""A row whose training text holds texts of the tab's test set is flagged by itself, and says by which record."""

import json

import pytest
from board_runs import Letters, copied, read_once, runs  # noqa: F401  fixtures
from gathered import LETTERS, board, own, tab  # noqa: F401  board is a fixture

from stsbench.encoders.roles import Traits
from stsbench.evaluation.run_file import load_records
from stsbench.leaderboard.page.site import index
from stsbench.leaderboard.ranks.gather import gather
from stsbench.leaderboard.records.add import add

SHARED = {"texts": 40, "exact": 2, "normalised": 1, "rows": 4}


def overlap(**parts):
    return {"text": "notes.txt", "digest": "0" * 64, "looked_for": ["exact", "normalised"], "shared": {}, "none": [],
            "not_looked_for": [], "sample": True, **parts}


def encoder(seed, name, *texts):
    class Trained(Letters):
        traits = Traits(training_overlap=texts)

    return Trained(seed, 0.1, name)


def notes(row):
    return [mark for mark in row.marks if mark.startswith("trained on")]


@pytest.fixture
def entry(board, tmp_path, monkeypatch):
    """(texts, tasks) -> the row of an encoder with this record."""

    def made(*texts, tasks=("STS12", "STS13"), protocols=("sts",)):
        run = own(tmp_path, monkeypatch, "one", encoder(1, "one", *texts), protocols=list(protocols), tasks=list(tasks))
        return board(one=([run], LETTERS))

    return made


def test_a_row_is_flagged_in_the_tabs_of_the_sets_alone(entry):
    text = overlap(shared={"sts12/test": SHARED}, none=["sts13/test", "stsb/test"])
    whole = entry(text, tasks=["STS12", "STS13", "STS-B"], protocols=["sts", "retrieval"])
    rows = {each.group: row for each in whole.tabs for row in each.measured}
    assert rows["sts"].flags == ("nli", "shared-texts") and rows["retrieval"].flags == ("nli",)
    assert notes(rows["sts"]) == ["trained on notes.txt, which holds test texts: 3 of 40 of sts12/test, as its training "
                                  "recorded (near duplicates were not looked for)"]
    assert notes(rows["retrieval"]) == []
    flags = json.loads(json.dumps(index(whole)))["flags"]
    assert flags["shared-texts"]["label"] == "shares test texts"


def test_what_was_not_compared_is_said_and_no_flag(entry):
    (row,) = tab(entry(overlap(none=["sts12/test"], not_looked_for=["sts13/test"])), "sts-spearman-all-sample").measured
    assert row.flags == ("nli",) and notes(row) == ["trained on notes.txt, which was not compared with sts13/test"]


def test_the_sample_s_sets_are_not_those_of_their_names(entry):
    (row,) = tab(entry(overlap(shared={"sts12/test": SHARED}, sample=False)), "sts-spearman-all-sample").measured
    assert row.flags == ("nli",) and "not compared with sts12/test, sts13/test" in notes(row)[0]


def test_records_that_say_nothing_are_as_they_were(entry):
    (row,) = tab(entry(), "sts-spearman-all-sample").measured
    assert row.flags == ("nli",) and notes(row) == []


def test_one_seed_s_text_flags_the_row(board, tmp_path, monkeypatch):
    texts = [overlap(none=["sts12/test"]), overlap(shared={"sts12/test": SHARED})]
    both = [own(tmp_path, monkeypatch, f"s{seed}", encoder(seed, "one", text), protocols=["sts"], tasks=["STS12"])
            for seed, text in enumerate(texts)]
    (row,) = tab(board(both=(both, LETTERS)), "sts-spearman-all-sample").measured
    assert "shared-texts" in row.flags and len(notes(row)) == 1


def test_add_says_it(tmp_path, monkeypatch):
    text = overlap(shared={"sts12/test": SHARED}, not_looked_for=["sts13/test"])
    run = own(tmp_path, monkeypatch, "one", encoder(1, "one", text), protocols=["sts"], tasks=["STS12", "STS13"])
    said = [line for line in add(tmp_path / "board", [run], "one", LETTERS).warnings if "notes.txt" in line]
    assert len(said) == 2
    assert said[0].startswith("flagged 'shares test texts' in the tabs of these sets: trained on notes.txt, which holds")
    assert said[1] == "trained on notes.txt, which was not compared with sts13/test"
    (row,) = tab(gather(tmp_path / "board"), "sts-spearman-all-sample").measured
    assert row.flags == ("nli", "shared-texts")
    assert all(record.provenance["training_overlap"] == [text] for _, record in load_records(run))
