"""Whether a row was trained on a test set's sentences: as far as a record, an entry or its makers show."""

from types import SimpleNamespace

import pytest
from board_runs import runs  # noqa: F401  a fixture
from gathered import LETTERS, board, tab  # noqa: F401  board is a fixture
from realdata import real_data

from stsbench.data.own.overlap import available_tests
from stsbench.data.text.store import open_store
from stsbench.leaderboard.page.site import tab_shard
from stsbench.leaderboard.ranks.exposure import Exposures
from stsbench.leaderboard.records.entries import Entry, LoadedEntry
from stsbench.leaderboard.records.statements import training_texts

NO = {"seen": {"all": {"answer": False, "by": "nothing is trained", "shown": "its definition"}}}  # YAML's `no`
NOTHING = "nothing is trained (its definition)"
FROM = {"starts_from": "start"}
WIKIPEDIA = {"data": {"main": training_texts()["wikipedia"].digests[0]}}
NOT_COMPARED = {"text": "notes.txt", "shared": {}, "none": ["sts12/test"], "not_looked_for": ["sts13/test"], "digest": "1"}


def loaded(name, stated, provenance=(), fitted_on=None, set_id="sts12/test"):
    record = SimpleNamespace(provenance=dict(provenance), data=SimpleNamespace(id=set_id),
                             encoder=SimpleNamespace(spec={"fitted_on": fitted_on}))
    entry = Entry.model_validate({"method": name, "backbone": "net", "setting": "unsup", **stated})
    return LoadedEntry(name, entry, (SimpleNamespace(records=[SimpleNamespace(record=record)]),))


@pytest.mark.parametrize(("stated", "provenance", "fitted_on", "set_id", "answer", "why"), [
    ({}, {}, None, "sts12/test", "unknown", ""),
    (NO, {}, None, "sts12/test", "no", "nothing is trained (its definition)"),
    (NO, {}, "sts12/test@1", "sts12/test", "yes", "fitted or trained on its texts, by its record"),
    ({"seen": {**NO["seen"], "stsb": {"answer": "yes", "by": "its pairs", "shown": "its card"}}}, {}, None, "stsb/test",
     "yes", "its pairs (its card)"),
    ({"trained_on": ["flickr30k", "snli"]}, {}, None, "sts15/test", "yes",
     "Flickr30k (1,258 of 5,170 texts); SNLI (154 of 5,170 texts)"),
    ({"trained_on": ["flickr30k"]}, {}, None, "sts13/test", "unknown", ""),  # a part of the captions shows no `no`
    (FROM, WIKIPEDIA, None, "sts13/test", "no", f"{NOTHING}; Wikipedia sentences: none of its texts"),
    (FROM, WIKIPEDIA, None, "cr", "yes", "Wikipedia sentences (1 of 3,766 texts)"),
    ({}, WIKIPEDIA, None, "sts13/test", "unknown", ""),  # nobody says what its backbone was trained on
    ({**FROM, "flags": ["dev-selected"]}, WIKIPEDIA, None, "sts13/test", "yes",
     "STS-B dev, which chose the checkpoint (164 of 2,638 texts)"),
    (FROM, {"data": {"main": "0" * 64}}, None, "sts13/test", "unknown",
     "a training text that was not compared with the set"),
    (FROM, {"training_overlap": [NOT_COMPARED], "data": {"main": "1"}}, None, "sts13/test", "unknown",
     "notes.txt, which was not compared with the set"),
    (FROM, {"training_overlap": [NOT_COMPARED], "data": {"main": "1"}}, None, "sts12/test", "no",
     f"{NOTHING}; notes.txt: none of its texts"),
    (FROM, {**WIKIPEDIA, "teachers": {"teacher 1": "1"}}, None, "sts13/test", "unknown",
     "taught by an encoder whose training is not stated"),
])
def test_an_answer_follows_from_what_shows_it(stated, provenance, fitted_on, set_id, answer, why):
    entries = [loaded("start", NO), loaded("row", stated, provenance, fitted_on, set_id)]
    shown = Exposures(entries).answer("row", set_id)
    assert (shown.answer, shown.why) == (answer, why)


def test_the_sample_has_no_sentence_of_a_published_set():
    exposures = Exposures([loaded("start", NO), loaded("row", FROM, WIKIPEDIA)])
    assert exposures.answer("row", "sts13/test", sample=True).answer == "unknown"


@pytest.mark.parametrize(("words", "lead"), [
    (("no", "no"), ["no", "none"]), (("no", "yes"), ["yes", "of STS13"]), (("unknown", "no"), ["unknown", "of STS12"]),
])
def test_an_average_is_yes_if_one_set_is_and_no_if_all_are(words, lead):
    stated = {name: {"answer": answer, "by": "none", "shown": "x"}
              for name, answer in zip(("sts12", "sts13"), words, strict=True)}
    of = Exposures([loaded("row", {"seen": stated})])
    shown = of.by_columns("row", {"STS12": "sts12/test", "STS13": "sts13/test"}, False, "Avg", ("STS12", "STS13"))["Avg"]
    assert [shown.answer, shown.why.removesuffix(" (x)")] == lead


def test_the_pages_row_has_its_words_and_the_facts_that_its_entry_states(board):
    facts = {"licence": "MIT", "released": "2024-02", "languages": ("de", "no"), "hub": "org/name"}
    stated = LETTERS.model_copy(update={**facts, "statements": Entry.model_validate(
        {"method": "m", "backbone": "b", "setting": "unsup", **NO}).statements})
    made = board(letters=(["letters"], stated), words=(["words"], LETTERS))
    rows = {row["id"]: row for row in tab_shard(made, tab(made, "sts-spearman-all-sample"))["measured"]}
    row = rows["letters"]
    assert {name: row[name] for name in facts} == {**facts, "languages": ["de", "no"]}
    assert row["seen"]["STS12"] == row["seen"]["Avg"] == ["no", "nothing is trained (its definition)"]
    assert row["comparable"] == "Trained on no test sentences" and "licence" not in rows["words"]


def test_the_texts_share_with_test_sets_what_is_stated(tmp_path):
    data = real_data()
    path = data / "train" / "nli_for_simcse.csv"
    if not path.is_file():
        pytest.skip(f"no train/{path.name} beside the data")
    text = training_texts()["nli-triplets"]
    assert open_store(path, cache=tmp_path).digest in text.digests
    leakage = pytest.importorskip("stsbench.extensions.overlap.leakage").leakage
    some = [*[*text.shared][:3], *text.none[:2]]
    counted = leakage(path, available_tests(some, data_dir=data)[0], near=None)
    shared = {one.id: {field: getattr(one, field) for field in ("texts", "exact", "normalised", "rows")}
              for one in counted if one.any}
    assert shared == {id: text.shared[id] for id in some[:3]} and {one.id for one in counted} == {*some}
