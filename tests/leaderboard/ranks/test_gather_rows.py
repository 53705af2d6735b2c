"""What a row of the board is flagged as, refused for or not ranked for; whether it was trained on a test set's sentences, as
far as a record, an entry or its makers show; and what an extension may add to a board."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from board_runs import LETTERS, Letters, board, entry, own, read_once, rows_by_id, runs, tab  # noqa: F401 - fixtures
from clirun import refuses
from realdata import real_data
from run_edits import edit, edit_all, rows_of
from toy_encoder import Toy

from stsbench.data.own.overlap import available_tests
from stsbench.data.text.store import open_store
from stsbench.encoders.base import EncoderSpec
from stsbench.encoders.traits import Traits
from stsbench.errors import StsbenchError
from stsbench.evaluation.measure import RESAMPLES
from stsbench.evaluation.run_file import RUN, load_records
from stsbench.leaderboard import board_files
from stsbench.leaderboard.page.site import index, tab_shard
from stsbench.leaderboard.ranks import gather as gather_module
from stsbench.leaderboard.ranks import plan
from stsbench.leaderboard.ranks.board import PromptSpread
from stsbench.leaderboard.ranks.exposure import Exposures
from stsbench.leaderboard.ranks.gather import gather, rounded
from stsbench.leaderboard.ranks.plan import RowExtra, Section
from stsbench.leaderboard.records.add import add
from stsbench.leaderboard.records.entries import Entry, LoadedEntry
from stsbench.leaderboard.records.statements import training_texts

SHARED = {"sts12/test": {"texts": 40, "exact": 2, "normalised": 1, "rows": 4}}
EVERY = [f"{name}/test" for name in ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sick-r", "sick-r/mteb")]
NO = {"seen": {"all": {"answer": False, "by": "nothing is trained", "shown": "its definition"}}}  # YAML's `no`
COST = {"probe": 1, "texts": 8, "seconds": [0.1] * 5, "sentences_per_second": 80.0, "latency_seconds": 0.1,
        "memory_bytes": 250_000_000, "parameters": 7, "bytes_a_vector": 108.0, "machine": {"cpu": "Some CPU", "cores": 2},
        "device": "cpu", "threads": 2}
NOTHING = "nothing is trained (its definition)"
FROM = {"starts_from": "start"}
WIKIPEDIA = {"data": {"main": training_texts()["wikipedia"].digests[0]}}
NOT_COMPARED = {"data": {"main": "1"}, "training_overlap": [
    {"text": "notes.txt", "shared": {}, "none": ["sts12/test"], "not_looked_for": ["sts13/test"], "digest": "1"}]}


def overlap(**parts):
    return {"text": "notes.txt", "digest": "0" * 64, "looked_for": ["exact", "normalised"], "shared": {}, "none": [],
            "not_looked_for": [], "sample": True, **parts}


def test_rows_have_the_flags_marks_widths_and_costs_of_their_records(runs, tmp_path):
    """One record of a changed recipe flags the row, and what was fitted behind its weights, whose records name no recipe."""
    made = {name: Path(shutil.copytree(runs[name], tmp_path / name)) for name in ("letters", "noisy", "words")}

    def of_letters(row):
        row.record["provenance"].update(cost=COST, training_overlap=[overlap(shared=SHARED, none=EVERY[1:])])
        row.record["counts"].update(truncated=3 if row.record["data"]["id"] == "sts12/test" else 0)

    other = overlap(shared=SHARED, none=EVERY, sample=False)  # the texts of the sample are others
    edit_all(made["letters"], of_letters)
    edit_all(made["noisy"], lambda row: row.record["provenance"].update(training_overlap=[other]))
    for name, number, provenance in (("letters", 0, {"recipe": "simcse/unsup-changed", "prompts": {"text": "query: "}}),
                                     ("noisy", -1, {"recipe": "simcse/unsup-swept"})):
        edit(made[name], lambda row, to=provenance: row.record["provenance"].update(to), rows_of(made[name])[number].name)
    edit(made["words"], lambda row: row.record["encoder"].update(dimension=row.record["encoder"]["dimension"] + 1))
    for name, moved in (("trained", 0), ("fitted", [30, 500, 0])):
        spec = EncoderSpec(name="toy", kind="callable", weights="1" * 64, normalize=name == "fitted")
        made[name] = own(tmp_path / name, Toy(spec, lambda vectors, moved=moved: vectors - moved), tasks=["STS-B"])
    edit_all(made["trained"], lambda row: row.record["provenance"].update(recipe="simcse/unsup-changed"))
    for name, run in {**made, "noisy-2": runs["noisy-2"]}.items():
        add(tmp_path / "board", [run], name, entry(name))
    edited = gather(tmp_path / "board")
    rows = rows_by_id(edited)
    assert {name for name, row in rows.items() if "changed-recipe" in row.flags} == {"letters", "noisy", "trained", "fitted"}
    prompts = [mark for row in rows.values() for mark in row.marks if "read behind" in mark]
    assert prompts == ['texts are read behind "query: " (STS12)']
    # What a training text holds of the test texts flags it in the tabs of these sets.
    shared = {(found.group, row.id) for found in edited.tabs for row in found.measured if "shared-texts" in row.flags}
    assert shared == {("sts", "letters")}
    recorded = "holds test texts: 3 of 40 of sts12/test, as its training recorded (near duplicates were not looked for)"
    for name, note in (("letters", recorded), ("noisy", "was not compared with ")):
        (mark,) = [mark for mark in rows[name].marks if mark.startswith("trained on")]
        assert mark.startswith(f"trained on notes.txt, which {note}")
    assert json.loads(json.dumps(index(edited)))["flags"]["shared-texts"]["label"] == "shares test texts"
    # tf-idf is as wide as the words of each set: the first set's width said nothing of the others.
    behind = {name: about.runs[0] for name, about in edited.entries.items()}
    assert (behind["noisy-2"]["width"], behind["words"]["width"]) == (27, None)
    [mark] = [mark for mark in rows["letters"].marks if "cut" in mark]
    assert mark.startswith("3 texts of STS12") and "STS-B" not in mark
    assert not any("cut" in mark for mark in rows["words"].marks)
    assert behind["letters"]["costs"] == {
        "bytes_a_vector": 108.0, "parameters": 7, "sentences_per_second": 80.0, "memory_mb": 250.0,
        "machine": "Some CPU, 2 cores", "run_on": "cpu, 2 threads"}
    assert behind["words"]["costs"] == {"bytes_a_vector": None}  # sparse: not known without a measurement


def test_a_row_trained_on_sentences_of_a_set_it_is_tested_on_is_flagged(board, tmp_path):
    class Trained(Letters):
        traits = Traits(trained_on=("sts12", "sick-e"))

    entries = {}
    for seed, (name, tasks) in enumerate({"seen": ["STS12", "STS13"], "unseen": ["STS13"]}.items()):
        run = own(tmp_path / name, Trained(seed, 0.1, name), protocols=["sts"], tasks=tasks)
        assert all(record.provenance["trained_on"] == ["sts12", "sick-e"] for _, record in load_records(run))
        entries[name] = [run], LETTERS
    rows = rows_by_id(board(**entries))
    assert (rows["seen"].flags, rows["unseen"].flags) == (("nli", "transductive"), ("nli",))


def test_one_seeds_training_text_flags_the_row_and_add_says_so(tmp_path):
    runs = []
    for seed, parts in enumerate(({"none": ["sts12/test"]}, {"shared": SHARED, "not_looked_for": ["sts13/test"]})):
        class Trained(Letters):
            traits = Traits(training_overlap=(overlap(**parts),))

        runs.append(own(tmp_path / f"s{seed}", Trained(seed, 0.1, "one"), protocols=["sts"], tasks=["STS12", "STS13"]))
        assert all(record.provenance["training_overlap"] == [overlap(**parts)] for _, record in load_records(runs[-1]))
    warnings = [line for line in add(tmp_path / "board", runs, "both", LETTERS).warnings if "notes.txt" in line]
    flag = "flagged 'shares test texts' in the tabs of these sets: trained on notes.txt, which holds"
    assert warnings[0].startswith(flag) and "trained on notes.txt, which was not compared with sts13/test" in warnings
    (row,) = tab(gather(tmp_path / "board")).measured
    assert row.flags == ("nli", "shared-texts")


def test_a_row_that_has_no_score_in_many_resamples_is_not_ranked(board, monkeypatch):
    """It would take these resamples from the test of all rows."""
    some, lines = np.arange(RESAMPLES) % 10 == 0, gather_module.scored_entries

    def poorer(*where):
        entries, scored = lines(*where)
        for line in [*scored.values()][1]:
            line.draws = {column: np.where(some, np.nan, draws) for column, draws in line.draws.items()}
        return entries, scored

    monkeypatch.setattr(gather_module, "scored_entries", poorer)
    rows = rows_by_id(board(letters=(["letters"], LETTERS), poor=(["noisy"], LETTERS)))
    assert rows["letters"].rank and rows["poor"].unranked == "not ranked: too many resamples have no score"


def test_scores_that_differ_by_rounding_are_one():
    seeds = [0.1, 0.2, 0.3]
    assert len({*rounded([sum(seeds) / 3, sum(seeds[::-1]) / 3, 1e8 * sum(seeds) / 3])}) == 2
    assert len({*rounded([3.0e-9, 3.4e-9])}) == 2  # two errors of a metric with nine digits


def test_a_score_whose_record_has_no_interval_gets_the_boards(board, tmp_path):
    """Records hold none of the mean squared error; a bare dot looks like certainty."""
    run = own(tmp_path / "regressed", Letters(1, 1), protocols=["regression"], tasks=["STS-B"], resamples=None)
    (stored,) = [row for _, record in load_records(run) for row in record.scores if row.metric == "mse"]
    (row,) = tab(board(one=([run], LETTERS)), "regression-mse-sample").measured
    cell = row.cells["STS-B"]
    assert stored.low is None and cell.value == stored.value and cell.low < cell.value < cell.high


def test_a_link_in_the_place_of_a_run_is_refused(runs, tmp_path):
    add(tmp_path / "board", [runs["letters"]], "letters", LETTERS)
    measured = tmp_path / "board/measured"
    (measured / "mine").mkdir()
    shutil.copy(measured / "letters/entry.yaml", measured / "mine")
    run = next(path for path in (measured / "letters").iterdir() if path.is_dir())
    mine = measured / "mine" / run.name
    mine.symlink_to(run)
    refuses(StsbenchError, rf"mine/{run.name} is a link", gather, tmp_path / "board")
    mine.unlink()
    mine.mkdir()
    (mine / RUN).symlink_to(run / RUN)
    refuses(StsbenchError, rf"mine/{run.name}/{RUN} is a link", gather, tmp_path / "board")


def loaded(name, stated, provenance=(), fitted_on=None, set_id="sts12/test"):
    record = SimpleNamespace(provenance=dict(provenance), data=SimpleNamespace(id=set_id),
                             encoder=SimpleNamespace(spec={"fitted_on": fitted_on}))
    entry = Entry.model_validate({"method": name, "backbone": "net", "setting": "unsup", **stated})
    return LoadedEntry(name, entry, (SimpleNamespace(records=[SimpleNamespace(record=record)]),))


@pytest.mark.parametrize(("stated", "provenance", "fitted_on", "set_id", "answer", "why"), [
    ({}, {}, None, "sts12/test", "unknown", ""),
    (NO, {}, None, "sts12/test", "no", NOTHING),
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
    (FROM, {"data": {"main": "0" * 8}}, None, "sts13/test", "unknown", "a training text that was not compared with the set"),
    (FROM, NOT_COMPARED, None, "sts13/test", "unknown", "notes.txt, which was not compared with the set"),
    (FROM, NOT_COMPARED, None, "sts12/test", "no", f"{NOTHING}; notes.txt: none of its texts"),
    (FROM, {**WIKIPEDIA, "teachers": {"teacher 1": "1"}}, None, "sts13/test", "unknown",
     "taught by an encoder whose training is not stated")])
def test_an_answer_follows_from_what_shows_it(stated, provenance, fitted_on, set_id, answer, why):
    shown = Exposures([loaded("start", NO), loaded("row", stated, provenance, fitted_on, set_id)]).answer("row", set_id)
    assert (shown.answer, shown.why) == (answer, why)


def test_an_average_is_yes_if_one_set_is_and_no_if_all_are():
    for *words, answer, why in (("no", "no", "no", "none"), ("no", "yes", "yes", "of STS13"),
                                ("unknown", "no", "unknown", "of STS12")):
        stated = {name: {"answer": word, "by": "none", "shown": "x"}
                  for name, word in zip(("sts12", "sts13"), words, strict=True)}
        of, sets = Exposures([loaded("row", {"seen": stated})]), {"STS12": "sts12/test", "STS13": "sts13/test"}
        shown = of.by_columns("row", sets, False, "Avg", ("STS12", "STS13"))["Avg"]
        assert (shown.answer, shown.why.removesuffix(" (x)")) == (answer, why)
    # The sample has no sentence of a published set.
    exposures = Exposures([loaded("start", NO), loaded("row", FROM, WIKIPEDIA)])
    assert exposures.answer("row", "sts13/test", sample=True).answer == "unknown"


def test_the_pages_row_has_its_words_and_the_facts_that_its_entry_states(board):
    facts = {"licence": "MIT", "released": "2024-02", "languages": ("de", "no"), "hub": "org/name"}
    stated = LETTERS.model_copy(update={**facts, "statements": Entry.model_validate(
        {"method": "m", "backbone": "b", "setting": "unsup", **NO}).statements})
    made = board(letters=(["letters"], stated), words=(["words"], LETTERS))
    rows = {row["id"]: row for row in tab_shard(made, tab(made))["measured"]}
    row = rows["letters"]
    assert {name: row[name] for name in facts} == {**facts, "languages": ["de", "no"]}
    assert row["seen"]["STS12"] == row["seen"]["Avg"] == ["no", NOTHING]
    assert row["comparable"] == "Trained on no test sentences" and "licence" not in rows["words"]


def test_the_texts_share_with_test_sets_what_is_stated(tmp_path):
    data = real_data()
    path = data / "train" / "nli_for_simcse.csv"
    if not path.is_file():
        pytest.skip(f"no train/{path.name} beside the data")
    text = training_texts()["nli-triplets"]
    assert open_store(path, cache=tmp_path).digest in text.digests
    leakage = pytest.importorskip("stsbench.extensions.overlap.leakage").leakage
    some = [*[*text.shared][:2], text.none[0]]
    counted = leakage(path, available_tests(some, data_dir=data)[0], near=None)
    shared = {one.id: {field: getattr(one, field) for field in ("texts", "exact", "normalised", "rows")}
              for one in counted if one.any}
    assert shared == {id: text.shared[id] for id in some[:2]} and {one.id for one in counted} == {*some}


class Everything(Section):
    folders = ("more",)

    def rows(self, plans, entries, lines):
        assert {run.folder for entry in entries for run in entry.runs} <= lines.keys()
        extra = RowExtra({"prompts": PromptSpread(2, 50.0, 1.0, 49.0, 51.0)}, {"chance": 0.5}, ("odd",))
        return {(plan.name, i): extra for plan in plans for i in plan.able}

    def tabs(self, tabs, root):
        return [replace(tab, notes=(*tab.notes, root.name)) for tab in tabs]

    def content(self, root, placed, tabs, tests):
        assert {tab.id for tab in tabs} >= tests.keys()
        return len(placed)

    def index(self, content):
        return {"placed": content}

    def files(self, content):
        return {"more/numbers": {"placed": content}}

    def findings(self, content, board, docs):
        return {docs / "findings/more.md": f"{content} {len(board.tabs)}\n"}


@pytest.fixture
def known(monkeypatch):
    """Two sections are installed: one that adds nothing, one that adds whatever it may."""
    known = {"all": Everything, "nothing": Section}
    monkeypatch.setattr(plan, "names", lambda group: sorted(known))
    monkeypatch.setattr(plan, "resolve", lambda group, name: known[name])
    plan.sections.cache_clear()
    yield
    plan.sections.cache_clear()


@pytest.mark.usefixtures("known")
def test_a_board_shows_what_sections_add_and_nothing_else(runs, tmp_path):
    root = tmp_path / "leaderboard"
    for name in ("letters", "words"):
        add(root, [runs[name]], name, entry(name))
    (root.parent / "README.md").write_text(f"{board_files.BEGIN}\n{board_files.END}\n")
    old = root / "site/more/old.json"
    old.parent.mkdir(parents=True)
    old.touch()
    board_files.build(root)
    board = gather(root)
    assert not old.exists()  # a build deletes what a section no longer has
    ranked = [row for tab in board.tabs for row in tab.measured if row.rank]
    assert ranked and board.sections.keys() == {"all"}
    assert all(row.rank.chance == 0.5 and row.prompts.n == 2 and "odd" in row.marks for row in ranked)
    assert all("leaderboard" in tab.notes for tab in board.tabs)
    assert {path.name for path in old.parent.iterdir()} == {"numbers.json", "numbers.js"}
    assert '"placed":' in (root / "site/index.json").read_text()
    assert (root.parent / "docs/findings/more.md").read_text() == f"{board.sections['all']} {len(board.tabs)}\n"
