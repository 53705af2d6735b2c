"""What a row of the board is flagged as, refused for or not ranked for, and what stands in its place."""

import json
import shutil

import numpy as np
import pytest
from board_runs import Letters, copied, read_once, runs  # noqa: F401  fixtures
from gathered import LETTERS, board, own, tab  # noqa: F401  board is a fixture
from run_edits import edit, edit_all, rows_of
from toy_encoder import Toy

from stsbench.encoders.base import EncoderSpec
from stsbench.encoders.traits import Traits
from stsbench.errors import StsbenchError
from stsbench.evaluation.measure import RESAMPLES
from stsbench.evaluation.run_file import RUN, load_records
from stsbench.leaderboard.page.site import index
from stsbench.leaderboard.ranks import gather as gather_module
from stsbench.leaderboard.ranks.gather import gather, rounded
from stsbench.leaderboard.records.add import add

STS_TAB = "sts-spearman-all-sample"


@pytest.fixture
def edited(board, copied):
    """`edited(change, row)`: the board of a run whose row (of its rows by number, None for all) was changed."""

    def of_board(change, number=0, name="letters"):
        run = copied(name)
        if number is None:
            edit_all(run, lambda row: change(row.record))
        else:
            edit(run, lambda row: change(row.record), rows_of(run)[number].name)
        return board(edited=([run], LETTERS), words=(["words"], LETTERS)) if name != "words" else board(
            letters=(["letters"], LETTERS), edited=([run], LETTERS))

    return of_board


def row_of(board, name=STS_TAB, entry="edited"):
    return next(row for row in tab(board, name).measured if row.id == entry)


# Flags and marks.


@pytest.mark.parametrize(("recipe", "number"), [("simcse/unsup-changed", 0), ("simcse/unsup-swept", -1)])
def test_one_record_of_a_changed_recipe_flags_the_row(edited, recipe, number):
    whole = edited(lambda record: record["provenance"].update(recipe=recipe, prompts={"text": "query: "}), number)
    row = row_of(whole)
    assert "changed-recipe" in row.flags and "changed-recipe" not in row_of(whole, entry="words").flags
    prompts = [mark for mark in row.marks if "read behind" in mark]
    assert prompts == ['texts are read behind "query: " (STS12)'] or number  # the last record is of another protocol


def test_what_was_fitted_behind_weights_of_a_changed_recipe_is_flagged(board, tmp_path, monkeypatch):
    """Its records name no recipe: they are of a fit, and the weights are the training's."""
    runs = []
    for normalize, change in ((False, lambda vectors: vectors), (True, lambda vectors: vectors - [30, 500, 0])):
        spec = EncoderSpec(name="toy", kind="callable", weights="1" * 64, normalize=normalize)
        runs.append(own(tmp_path, monkeypatch, f"toy-{normalize}", Toy(spec, change), tasks=["STS-B"]))
    edit_all(runs[0], lambda row: row.record["provenance"].update(recipe="simcse/unsup-changed"))
    made = board(trained=([runs[0]], LETTERS), fitted=([runs[1]], LETTERS), letters=(["letters"], LETTERS))
    flagged = {row.id: "changed-recipe" in row.flags for row in tab(made, STS_TAB).measured}
    assert flagged == {"trained": True, "fitted": True, "letters": False}


def test_a_row_trained_on_sentences_of_a_set_it_is_tested_on_is_flagged(board, tmp_path, monkeypatch):
    class Trained(Letters):
        traits = Traits(trained_on=("sts12", "sick-e"))

    entries = {}
    for seed, (name, tasks) in enumerate({"seen": ["STS12", "STS13"], "unseen": ["STS13"]}.items()):
        run = own(tmp_path, monkeypatch, name, Trained(seed, 0.1, name), protocols=["sts"], tasks=tasks)
        assert all(record.provenance["trained_on"] == ["sts12", "sick-e"] for _, record in load_records(run))
        entries[name] = [run], LETTERS
    flags = {row.id: row.flags for row in tab(board(**entries), STS_TAB).measured}
    assert flags == {"seen": ("nli", "transductive"), "unseen": ("nli",)}


# Texts of the tests in the training text.


def overlap(**parts):
    return {"text": "notes.txt", "digest": "0" * 64, "looked_for": ["exact", "normalised"], "shared": {}, "none": [],
            "not_looked_for": [], "sample": True, **parts}


SHARED = {"sts12/test": {"texts": 40, "exact": 2, "normalised": 1, "rows": 4}}
EVERY = [f"{name}/test" for name in ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sick-r", "sick-r/mteb")]
REST = [name for name in EVERY if name != "sts12/test"]


@pytest.mark.parametrize(("texts", "flagged", "notes"), [
    ([overlap(shared=SHARED, none=REST)], True, ["which holds test texts: 3 of 40 of sts12/test, as its training recorded "
                                                 "(near duplicates were not looked for)"]),
    ([overlap(shared=SHARED, none=EVERY, sample=False)], False, ["which was not compared with "]),  # the sample's are others
])
def test_a_row_whose_training_text_holds_test_texts_is_flagged_in_the_tabs_of_these_sets(edited, texts, flagged, notes):
    whole = edited(lambda record: record["provenance"].update(training_overlap=texts), None)
    rows = {found.group: row for found in whole.tabs for row in found.measured if row.id == "edited"}
    assert rows["sts"].flags == (("nli", "shared-texts") if flagged else ("nli",))
    assert rows["retrieval"].flags == ("nli",)
    marks = [mark for mark in rows["sts"].marks if mark.startswith("trained on")]
    assert len(marks) == len(notes)
    assert all(mark.startswith(f"trained on notes.txt, {note}") for mark, note in zip(marks, notes, strict=True))
    if flagged:
        assert json.loads(json.dumps(index(whole)))["flags"]["shared-texts"]["label"] == "shares test texts"


def test_one_seeds_training_text_flags_the_row_and_add_says_so(tmp_path, monkeypatch):
    runs = []
    for seed, parts in enumerate(({"none": ["sts12/test"]}, {"shared": SHARED, "not_looked_for": ["sts13/test"]})):
        class Trained(Letters):
            traits = Traits(training_overlap=(overlap(**parts),))

        runs.append(own(tmp_path, monkeypatch, f"s{seed}", Trained(seed, 0.1, "one"), protocols=["sts"],
                        tasks=["STS12", "STS13"]))
        assert all(record.provenance["training_overlap"] == [overlap(**parts)] for _, record in load_records(runs[-1]))
    warnings = [line for line in add(tmp_path / "board", runs, "both", LETTERS).warnings if "notes.txt" in line]
    flag = "flagged 'shares test texts' in the tabs of these sets: trained on notes.txt, which holds"
    assert warnings[0].startswith(flag) and "trained on notes.txt, which was not compared with sts13/test" in warnings
    (row,) = tab(gather(tmp_path / "board"), STS_TAB).measured
    assert row.flags == ("nli", "shared-texts")


# Costs, and scores that nobody ranks.


def test_a_width_that_differs_by_data_set_is_none(edited):
    """tf-idf is as wide as the words of each set: the first set's width said nothing of the others."""
    made = edited(lambda record: record["encoder"].update(dimension=record["encoder"]["dimension"] + 1), name="words")
    assert {id: entry.runs[0]["width"] for id, entry in made.entries.items()} == {"letters": 27, "edited": None}


def test_costs_and_cut_texts_are_those_of_the_records(edited):
    cost = {"probe": 1, "texts": 8, "seconds": [0.1] * 5, "sentences_per_second": 80.0, "latency_seconds": 0.1,
            "memory_bytes": 250_000_000, "parameters": 7, "bytes_a_vector": 108.0,
            "machine": {"cpu": "Some CPU", "cores": 2}, "device": "cpu", "threads": 2}

    def change(record):
        record["provenance"].update(cost=cost)
        record["counts"].update(truncated=3 if record["data"]["id"] == "sts12/test" else 0)

    made = edited(change, None)
    [mark] = [mark for mark in row_of(made).marks if "cut" in mark]
    assert mark.startswith("3 texts of STS12") and "STS-B" not in mark
    assert not any("cut" in mark for mark in row_of(made, entry="words").marks)
    assert made.entries["edited"].runs[0]["costs"] == {
        "bytes_a_vector": 108.0, "parameters": 7, "sentences_per_second": 80.0, "memory_mb": 250.0,
        "machine": "Some CPU, 2 cores", "run_on": "cpu, 2 threads",
    }
    assert made.entries["words"].runs[0]["costs"] == {"bytes_a_vector": None}  # sparse: not known without a measurement


def test_a_row_that_has_no_score_in_many_resamples_is_not_ranked(board, monkeypatch):
    """It would take these resamples from the test of all rows."""
    some = np.arange(RESAMPLES) % 10 == 0

    lines = gather_module.scored_entries

    def poorer(*where):
        entries, scored = lines(*where)
        for line in [*scored.values()][1]:
            line.draws = {column: np.where(some, np.nan, draws) for column, draws in line.draws.items()}
        return entries, scored

    monkeypatch.setattr(gather_module, "scored_entries", poorer)
    made = tab(board(letters=(["letters"], LETTERS), poor=(["noisy"], LETTERS)), STS_TAB)
    reasons = {row.id: row.unranked for row in made.measured}
    assert reasons == {"letters": "", "poor": "not ranked: too many resamples have no score"}


def test_scores_that_differ_by_rounding_are_one():
    seeds = [0.1, 0.2, 0.3]
    assert len({*rounded([sum(seeds) / 3, sum(seeds[::-1]) / 3, 1e8 * sum(seeds) / 3])}) == 2
    assert len({*rounded([3.0e-9, 3.4e-9])}) == 2  # two errors of a metric with nine digits


def test_a_score_whose_record_has_no_interval_gets_the_boards(board, tmp_path, monkeypatch):
    """Records hold none of the mean squared error; a bare dot looks like certainty."""
    run = own(tmp_path, monkeypatch, "regressed", Letters(1, 1), protocols=["regression"], tasks=["STS-B"], resamples=None)
    (stored,) = [row for _, record in load_records(run) for row in record.scores if row.metric == "mse"]
    (row,) = tab(board(one=([run], LETTERS)), "regression-mse-sample").measured
    cell = row.cells["STS-B"]
    assert stored.low is None and cell.value == stored.value and cell.low < cell.value < cell.high


def test_a_link_in_the_place_of_a_run_is_refused(board, tmp_path):
    board(letters=(["letters"], LETTERS))
    measured = tmp_path / "board/measured"
    (measured / "mine").mkdir()
    shutil.copy(measured / "letters/entry.yaml", measured / "mine")
    run = next(path for path in (measured / "letters").iterdir() if path.is_dir())
    (measured / "mine" / run.name).symlink_to(run)
    with pytest.raises(StsbenchError, match=rf"mine/{run.name} is a link"):
        gather(tmp_path / "board")
    (measured / "mine" / run.name).unlink()
    (measured / "mine" / run.name).mkdir()
    (measured / "mine" / run.name / RUN).symlink_to(run / RUN)
    with pytest.raises(StsbenchError, match=rf"mine/{run.name}/{RUN} is a link"):
        gather(tmp_path / "board")
