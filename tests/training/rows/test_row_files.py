"""The files that rows are read from: which are at hand, the catalog's scored pairs, what is said of triplets, and texts that
are too many to be tokenised before the first step."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import tiny_models
import training_runs
from training_runs import log_of, weights_of

import stsbench
from stsbench.data.fetch import sources
from stsbench.data.text.store import open_store
from stsbench.errors import StsbenchError
from stsbench.training.recipes.method_plan import load_plan
from stsbench.training.recipes.recipes import load_recipe
from stsbench.training.rows import stage_rows
from stsbench.training.rows.files import SetPlace, catalog_file, check_at_hand
from stsbench.training.rows.stage_rows import shared_words
from stsbench.training.runs.options import TrainOptions
from stsbench.training.runs.run import train

PACKAGED = Path(stsbench.__file__).parent / "data" / "sample"


@pytest.fixture(autouse=True)
def nothing_at_hand(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("STSBENCH_DATA", raising=False)


@pytest.mark.parametrize(("method", "name", "files"), [
    ("sbert", "nli-stsb-bert-base", {"labelled": "labelled.csv", "data": "pairs.tsv"}),
    ("diffaug", "bert-base-semi", {"labelled": "three.csv", "stages.joint.data": "two.csv", "data": "one.csv"}),
])
def test_files_of_every_stage_are_asked_for_at_once_and_of_one_stage_its_own(method, name, files):
    recipe = load_recipe(method, name, [f"{key}.file={file}" for key, file in files.items()] + ["backbone.model=minilm"])
    plan, first, second = load_plan(recipe), *[*files.values()][:2]
    with pytest.raises(StsbenchError, match=f"2 things are missing.*{first}.*{second}.*--sample"):
        check_at_hand(recipe, plan, plan.stages, SetPlace(offline=True))
    with pytest.raises(StsbenchError, match=f"{first} are not here") as error:
        check_at_hand(recipe, plan, plan.stages[:1], SetPlace(offline=True))
    assert "things are missing" not in str(error.value)


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


EVEN = [(f"number {i} is even", "something else", f"number {i} is not odd") for i in range(3000)]  # columns in another order


@pytest.mark.parametrize(("rows", "line"), [
    # 2 of 4 words and 2 of 2; 0 of 6 and 1 of 3
    ([("A cat sleeps", "a cat naps", "no dog barks"), ("it rains", "it rains", "it snows")],
     "words shared with anchor (Jaccard, 2 rows): positive 0.75, negative 0.17; 1 with two equal texts"),
    (EVEN, "words shared with anchor (Jaccard, 1,000 rows): positive 0.00, negative 0.50; 0 with two equal texts"),
])
def test_what_triplets_share_is_said(tmp_path, rows, line):
    with (tmp_path / "triplets.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([("sent0", "sent1", "hard_neg"), *rows])
    assert shared_words(open_store(tmp_path / "triplets.csv")) == line


@pytest.mark.parametrize("order", ["random", "length"])
def test_tokens_on_demand_give_the_same_weights(tmp_path, monkeypatch, order):
    values = training_runs.settings(
        tiny_models.build(tmp_path / "tiny", pooler=False, layers=1), training_runs.make_text(tmp_path),
        **{"selection.by": "none", "training.order": order, "training.epochs": 1, "data.held_out": 5},
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
