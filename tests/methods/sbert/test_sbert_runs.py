"""Sentence-BERT in whole runs: NLI, then scores; stage by stage; the gradient of two processes."""

from __future__ import annotations

from pathlib import Path

import nli_files
import numpy as np
import pytest
import sbert_oracle as oracle
import tiny_models
import training_runs
from sbert_oracle import batch_of, rows_of, sbert
from test_sbert import CLASSES, SCORES, TEXTS
from training_runs import log_of, one_thread, train, undisturbed, weights_of
from two_processes import check_same_as_one, passes_of_two, shares_of

import stsbench
from stsbench.encoders.transformer.exported import trained_on_of
from stsbench.errors import DataError, StsbenchError
from stsbench.training.export.export import export_model
from stsbench.training.recipes.recipes import load_recipe
from stsbench.training.runs.finish import load_trained
from stsbench.training.runs.request import TrainOptions
from stsbench.training.runs.run import train as run
from stsbench.training.runs.run_folder import read_manifest

__all__ = ["one_thread"]
SPLITS = [(3, 3), (4, 2)]
STAGES = {"nli": CLASSES, "sts": SCORES, "triplet": None}


# --- the gradient of two processes ---


def made(folder, stage, split=None, rank=0):
    method = sbert(folder, stage)
    rows = rows_of(folder, stage, (TEXTS * 2)[: 6 * len(oracle.ROLES[stage])], STAGES[stage])
    return method, batch_of(method, stage, rows, shares_of(6, split, rank))


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """(folder of the model, [rank] -> its passes)."""
    place = tmp_path_factory.mktemp("shares")
    folder = tiny_models.build(place / "tiny", pooler=False)
    return folder, passes_of_two(place, made, folder, list(STAGES), SPLITS)


@pytest.mark.parametrize(("number", "stage"), list(enumerate(STAGES)))
def test_two_processes_have_the_gradient_of_one(both, number, stage):
    folder, passes = both
    check_same_as_one(passes, number, *made(folder, stage), rel=1e-12)


# --- whole runs ---


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """(a run of both stages that nobody disturbed, the values it was trained with, the cache)."""
    place = tmp_path_factory.mktemp("runs")
    model = tiny_models.build(place / "tiny", pooler=False)
    values = training_runs.settings(
        model, "stsb/train",
        **{"labelled.file": str(nli_files.pairs(place)), "training.batch_size": 7, "training.max_steps": 5,
           "backbone.max_length": 16, "options.objective": "nli-sts", "stages.sts.training": {"epochs": 4}},
    )
    return undisturbed(place, values, "sbert", recipe="nli-bert-base")


def test_the_log(whole):
    lines = [line for line in log_of(whole[0]) if line["kind"] == "train"]
    assert {(line["stage"], *line["terms"]) for line in lines} == {("nli", "nli"), ("sts", "sts")}
    assert [line["learning_rate"] for line in lines][-1] < 1e-3
    method = load_trained(whole[0], "cpu")
    assert method.classifier.linear.weight.shape == (3, 3 * method.backbone.width)
    files = {item["file"] for item in read_manifest(whole[0]).data.values()}
    assert files == {"pairs-30.tsv", "stsb-train.jsonl"}


def test_pairs_of_stsb_are_said_to_be_in_the_tests_of_the_years(whole):
    """STS-B was drawn from STS12 to STS16: scores there are transductive, those of NLI's stage alone would not be."""
    years = ["sts12", "sts13", "sts14", "sts15", "sts16"]
    data = {item["file"]: item.get("texts_of", []) for item in read_manifest(whole[0]).data.values()}
    assert data == {"pairs-30.tsv": [], "stsb-train.jsonl": years}
    assert list(trained_on_of(whole[0] / "best")) == years


@pytest.mark.parametrize("first", ["nli", "nli-sts"])
def test_stage_by_stage_is_the_same_run(whole, tmp_path, first):
    """Also from a run of the NLI objective alone."""
    folder, values, cache = whole
    how = {"method": "sbert", "recipe": "nli-bert-base", "cache": cache}
    alone = {key: value for key, value in values.items() if key not in ("data.file", "stages.sts.training")}
    before = {**alone, "options.objective": "nli"} if first == "nli" else values
    assert train(tmp_path / "one", before, stage=1, **how) == (0, None)
    assert train(tmp_path / "two", values, stage=2, start_from=tmp_path / "one", **how) == (0, None)
    assert weights_of(tmp_path / "two") == weights_of(folder)


def test_a_run_of_scores_is_no_first_stage(whole, tmp_path):
    _, values, cache = whole
    how = {"method": "sbert", "recipe": "stsb-bert-base", "cache": cache}
    alone = {key: value for key, value in values.items() if key not in ("labelled.file", "stages.sts.training")}
    assert train(tmp_path / "one", {**alone, "options.objective": "sts"}, **how) == (0, None)
    status, said = train(tmp_path / "two", values, stage=2, start_from=tmp_path / "one", method="sbert", cache=cache,
                         recipe="nli-bert-base")
    assert (status, said) == (1, f"--from {tmp_path / 'one'} trained stage sts: name the run that trained stage nli")


@pytest.mark.parametrize(("pooler", "test_pooler"), [("max", None), ("mean", "first_last:layer1")])
def test_the_tested_pooler_is_exported(whole, tmp_path, pooler, test_pooler):
    from sentence_transformers import SentenceTransformer

    from stsbench.encoders.load import load_encoder

    folder = Path(whole[1]["backbone.model"])
    method = sbert(folder, "nli", pooler, test_pooler=test_pooler).float().eval()
    export_model(method.inference(), tmp_path / "model", card="x", method="sbert", recipe="x")
    ours = load_encoder(str(tmp_path / "model"))
    assert ours.spec.pooler == (test_pooler or pooler)
    theirs = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    assert np.abs(ours.encode(TEXTS) - theirs.encode(TEXTS)).max() < 5e-6


# --- mistakes ---


@pytest.mark.parametrize(("recipe", "settings", "message"), [
    ("nli-bert-base", {"data.file": "x.tsv"}, "data.file has no effect: sbert trains on labelled rows alone"),
    ("stsb-bert-base", {"labelled.file": "x.tsv"}, "labelled has no effect"),
    ("stsb-bert-base", {"data.file": "stsb/dev"}, "data.file stsb/dev: of the catalog's sets stsb/train and sick-r/train"),
    ("stsb-bert-base", {"data.file": "stsb/trian"}, r"stsb/trian are not here: .*; did you mean stsb/train or"),
    ("stsb-bert-base", {"options.scale": [1, 5]}, "^stsb-train: its scores go from 0 to 5, and sbert is told that they go"),
    ("stsb-bert-base", {"data.file": "sick-r/train"}, "^sick-r-train: its scores go from 1 to 5, and sbert is told"),
])
def test_wrong_data(whole, tmp_path, monkeypatch, recipe, settings, message):
    _, values, cache = whole
    monkeypatch.setenv("STSBENCH_CACHE", str(cache))
    settings = {"backbone.model": values["backbone.model"], "backbone.max_length": 16, **settings}
    if recipe == "nli-bert-base":
        settings["labelled.file"] = values["labelled.file"]
    with pytest.raises(StsbenchError, match=message) as error:
        stsbench.train("sbert", output=tmp_path / "run", recipe=recipe, settings=settings, device="cpu", sample=True)
    assert "\n" not in str(error.value) and not (tmp_path / "run").exists()


def test_a_file_of_ones_own(whole, tmp_path, monkeypatch):
    """A header sentence1, sentence2, score needs no data.columns; scores from 0 to 1 on a scale to 5 are told of."""
    _, values, cache = whole
    monkeypatch.setenv("STSBENCH_CACHE", str(cache))
    texts = tiny_models.sentences(20, longest=9, seed=8)
    file = tmp_path / "mine.tsv"
    rows = [f"{texts[i]}\t{texts[10 + i]}\t{i / 10}" for i in range(10)]
    file.write_text("\n".join(["sentence1\tsentence2\tscore", *rows]))
    said = []
    settings = {"backbone.model": values["backbone.model"], "backbone.max_length": 16, "data.file": str(file),
                "training.max_steps": 1, "selection.by": "none"}
    recipe = load_recipe("sbert", "stsb-bert-base", [], settings)
    run(TrainOptions(recipe, tmp_path / "run", device="cpu", sample=True), said.append)
    assert [line for line in said if line.startswith("warning") and "warm-up" not in line] == [
        "warning: mine.tsv: no score is above 0.9, and sbert is told that they go from 0 to 5"
    ]
    file.write_text(file.read_text("utf-8").replace("\t0.3", "\thigh"))
    with pytest.raises(DataError, match=r"mine.tsv:5: the score 'high' is not a number"):
        run(TrainOptions(recipe, tmp_path / "other", device="cpu", sample=True), said.append)
