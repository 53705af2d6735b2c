"""The files that rows are read from: the catalog's scored pairs, what is said of triplets, texts that are too many to be
tokenised before the first step, and rows held out of ordered text."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import tiny_models
import training_runs
from training_runs import log_of, weights_of

import stsbench
from stsbench.data.fetch import sources
from stsbench.data.text.store import open_store
from stsbench.errors import DataError
from stsbench.training.recipes.method_plan import load_plan
from stsbench.training.recipes.recipes import load_recipe
from stsbench.training.rows import stage_rows
from stsbench.training.rows.files import SetPlace, catalog_file
from stsbench.training.rows.stage_rows import open_rows, shared_words
from stsbench.training.runs.options import TrainOptions
from stsbench.training.runs.prepare import make_backbone
from stsbench.training.runs.run import train

PACKAGED = Path(stsbench.__file__).parent / "data" / "sample"


@pytest.fixture(autouse=True)
def nothing_at_hand(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("STSBENCH_DATA", raising=False)


@pytest.mark.parametrize(("name", "low"), [("stsb/train", 0), ("sick-r/train", 1)])
def test_the_rows_of_a_catalogs_set_are_those_of_the_set(name, low):
    lines = []
    file = catalog_file(name, SetPlace(sample=True), lines.append)
    pairs, store = sources.load_data(name, sample=True), open_store(file)
    every = range(len(store))
    assert (*store.texts("sentence1", every),) == pairs.first and (*store.texts("sentence2", every),) == pairs.second
    assert store.scores(every).tolist() == pairs.gold.tolist() and low <= min(pairs.gold) and max(pairs.gold) <= 5
    assert lines == [f"{name}: {len(pairs)} pairs from sample"]
    assert catalog_file(name, SetPlace(sample=True), lines.append) == file
    assert catalog_file("mine.tsv", SetPlace(), pytest.fail) is None


def test_a_catalogs_set_in_a_folder_of_ones_own_is_another_file(tmp_path):
    """What is not the catalog's file is said; another file is another cached one."""
    lines = []
    first = catalog_file("stsb/train", SetPlace(PACKAGED), lines.append)
    assert lines[0].startswith("warning: ") and "sts-train.csv differs from the file known to the catalog" in lines[0]
    mine = tmp_path / "data" / "downstream" / "STS" / "STSBenchmark"
    mine.mkdir(parents=True)
    text = (PACKAGED / "downstream" / "STS" / "STSBenchmark" / "sts-train.csv").read_text("utf-8")
    (mine / "sts-train.csv").write_text("\n".join(text.splitlines()[:9]) + "\n", "utf-8")
    second = catalog_file("stsb/train", SetPlace(tmp_path / "data"), lines.append)
    assert second != first and second.name == "stsb-train.jsonl" and len(open_store(second)) == 9


@pytest.mark.parametrize(("rows", "line"), [
    # 2 of 4 words and 2 of 2; 0 of 6 and 1 of 3
    ([("A cat sleeps", "a cat naps", "no dog barks"), ("it rains", "it rains", "it snows")],
     "words shared with anchor (Jaccard, 2 rows): positive 0.75, negative 0.17; 1 with two equal texts"),
    ([("it is even", "something else", "it is not odd")] * 1200,
     "words shared with anchor (Jaccard, 1,000 rows): positive 0.00, negative 0.40; 0 with two equal texts"),
])
def test_what_triplets_share_is_said(tmp_path, rows, line):
    with (tmp_path / "triplets.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([("sent0", "sent1", "hard_neg"), *rows])
    assert shared_words(open_store(tmp_path / "triplets.csv")) == line


@pytest.mark.parametrize("order", ["random", "length"])
def test_tokens_on_demand_give_the_same_weights(tmp_path, monkeypatch, order):
    values = training_runs.settings(
        tiny_models.build(tmp_path / "tiny", pooler=False, layers=1), training_runs.make_text(tmp_path),
        **{"selection.by": "none", "training.order": order, "training.max_steps": 2, "data.held_out": 5},
    )
    lines = {}
    for name, limit in (("stored", 1_000_000), ("live", 59)):
        monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / name / "cache"))
        monkeypatch.setattr(stage_rows, "_TOKENISED_FIRST", limit)
        recipe, lines[name] = load_recipe("simcse", None, [], values), []
        train(TrainOptions(recipe=recipe, output=tmp_path / name / "run", device="cpu"), lines[name].append)
    assert weights_of(tmp_path / "live" / "run") == weights_of(tmp_path / "stored" / "run")
    assert log_of(tmp_path / "live" / "run") == log_of(tmp_path / "stored" / "run")
    assert [line for line in lines["live"] if "text.txt: 60 texts, each tokenised when it is needed; about " in line]
    built = {name: sum(line.startswith("tokenising ") for line in printed) for name, printed in lines.items()}
    assert built == {"stored": 1, "live": int(order == "length")}  # batches by length need the lengths of all
    summary = json.loads((tmp_path / "live" / "run" / "train.json").read_text())
    assert summary["truncated"] == {"main": {"sentence": None}}


# --- rows held out of ordered text: none that is trained on holds or reads a text that one of them holds or reads ---


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """40 documents of one to six sentences, some of which stand in several; a model."""
    place = tmp_path_factory.mktemp("ordered")
    tiny_models.build(place / "tiny", pooler=False)
    rng, pool = np.random.default_rng(0), tiny_models.sentences(110, longest=9)
    documents = [[pool[i] for i in rng.integers(0, len(pool), rng.integers(1, 7))] for _ in range(40)]
    (place / "documents.txt").write_text("\n\n".join("\n".join(texts) for texts in documents) + "\n", "utf-8")
    return place, documents


def opened(place, method="simcse", **values):
    """(the rows of the only stage, what was said)."""
    folder, said = place[0], []
    settings = {"backbone.model": str(folder / "tiny"), "data.file": str(folder / "documents.txt"),
                "data.contiguous": True, **values}
    recipe = load_recipe(method, None, [], settings)
    backbone = make_backbone(recipe)
    plan = load_plan(recipe)
    (data,) = open_rows(recipe, plan, backbone, plan.stages, said.append).values()
    return data, said


def naive(documents, reach):
    """[row] -> the texts that a batch of it may read: its own, first, and up to `reach` more of its document."""
    return [texts[at : at + 1 + reach] for texts in documents for at in range(len(texts))]


@pytest.mark.parametrize(("method", "options", "reach"), [
    ("simcse", {"options.view": "next3"}, 3),
    ("diffcse", {"options.sentence": "same+next", "options.rtd_weight": 0.0, "options.contrastive": True}, 1),
    ("cmlm", {}, 1),
])
def test_no_text_of_the_held_out_rows_is_read_in_training(place, method, options, reach):
    if method == "diffcse":
        options = {"options.sentence": "same+next", "options.task": "conditional_mlm", "options.generator": None}
    data, said = opened(place, method, **{"data.held_out": 4, **options})
    read = naive(place[1], reach)
    every = data.store.texts("sentence", range(len(data.store)))
    assert every == [texts[0] for texts in read]
    usable = [row for row, texts in enumerate(read) if len(texts) > 1]
    kept_back = {text for row in data.held_out for text in read[row]}
    assert len(data.held_out) == 4 and set(data.held_out) <= set(usable)
    expected = [row for row in usable if row not in set(data.held_out) and not kept_back & {*read[row]}]
    assert data.trained.tolist() == expected and 0 < len(expected) < len(usable) - 4
    assert f"{len(read) - len(usable)} of {len(read)} rows cannot be used by these options" in " ".join(said)
    again, _ = opened(place, method, **{"data.held_out": 4, **options})
    assert np.array_equal(again.held_out, data.held_out)


def test_a_method_that_does_not_read_on_is_told(place):
    with pytest.raises(DataError, match=r"simcse is not known to read further sentences .* set data.contiguous=false$"):
        opened(place, **{"data.held_out": 4})


def test_what_drop_duplicates_leaves_has_new_neighbours(place):
    """Also in what a method reads, not only in the store."""
    data, _ = opened(place, "cmlm", **{"data.drop_duplicates": True})
    seen, kept = set(), []
    for texts in place[1]:
        fresh = [text for text in dict.fromkeys(texts) if text not in seen]
        seen |= set(texts)
        kept.append(fresh)
    pairs = {(texts[at], texts[at + 1]) for texts in kept for at in range(len(texts) - 1)}
    rows = data.rows(data.trained)
    followed = set(zip(rows.texts("sentence"), rows.at(rows.following(1)).texts("sentence"), strict=True))
    assert followed == pairs and len(data.trained) == len(pairs)
