"""Sentence-BERT's stages, classifier and gradients at the edges, and its runs. Its terms: tests/methods/test_terms.py."""

from __future__ import annotations

from types import SimpleNamespace

import nli_files
import numpy as np
import pytest
import tiny_models
import torch
import training_runs
from method_oracle import MemoryRows, make
from sentence_transformers import SentenceTransformer
from training_runs import log_of, train, undisturbed, weights_of

import stsbench
from stsbench.encoders.load import load_encoder
from stsbench.encoders.transformer.exported import read_trained_on
from stsbench.errors import DataError, StsbenchError
from stsbench.methods.sbert.method import SBERT
from stsbench.methods.sbert.options import SBERTOptions
from stsbench.training.api.batch import Shares
from stsbench.training.export.export import export_model
from stsbench.training.recipes.method_plan import MethodPlan
from stsbench.training.recipes.recipes import load_recipe
from stsbench.training.rows.batches import to_batch
from stsbench.training.runs.request import TrainOptions
from stsbench.training.runs.run import train as run
from stsbench.training.runs.run_folder import read_manifest

TEXTS = tiny_models.sentences(12, longest=9, seed=3)
LABELS = ("contradiction", "entailment", "neutral")
ROLES = {"nli": ("premise", "hypothesis"), "sts": ("sentence1", "sentence2"), "triplet": ("anchor", "positive", "negative")}


class ValuedRows(MemoryRows):
    """Rows in memory with a class number or a score each."""

    def __init__(self, folder, texts, values, names=LABELS):
        super().__init__(folder, texts)
        self.values, self.store = values, SimpleNamespace(label_names=names)

    def labels(self):
        return [self.values[row] for row in self.rows]

    scores = labels


def rows_of(folder, stage, texts, values=None):
    """Rows of a stage: `texts` in turn for its roles."""
    roles = ROLES[stage]
    count = len(texts) // len(roles)
    parts = {role: texts[i * count : (i + 1) * count] for i, role in enumerate(roles)}
    return ValuedRows(folder, parts, values)


def sbert(folder, stage, pooler="mean", seed=1, classes=3, **options):
    """The method in float64, its classifier made where the stage has one."""
    method = make(SBERT, folder, {"objective": stage, **options}, pooler=pooler, seed=seed)
    if stage == "nli":
        rows = ValuedRows(folder, {"premise": ["cat"], "hypothesis": ["cat"]}, [0], LABELS[:classes])
        torch.manual_seed(seed)
        method.prepare_labelled(rows)
        method.double()
    return method


def batch_of(method, stage, rows):
    rng = np.random.default_rng(0)
    views = method.labelled_views(rows, rng) if stage == "nli" else method.views(rows, rng)
    batch = to_batch(views, Shares((len(rows.rows),)), method.backbone.tokenizer.pad_token_id, torch.device("cpu"))
    batch.labelled_only = stage == "nli"
    return batch


@pytest.fixture(params=["bert", "roberta"])
def folder(request, encoders):
    return encoders[request.param]


@pytest.mark.parametrize("stage", ["nli", "sts", "triplet"])
def test_one_text_twice_has_a_finite_gradient_and_is_no_mistake(folder, stage):
    """At 0 both |u - v| and the distance of two equal vectors have the derivative 0."""
    method, same = sbert(folder, stage), [TEXTS[0], TEXTS[1]] * 2
    rows = rows_of(folder, stage, same if stage != "triplet" else [*same, *TEXTS[2:4]], [1, 0])
    batch = batch_of(method, stage, rows)
    assert method.view_vectors(batch) is None  # nothing of dropout is checked
    method(batch)[stage].value.backward()
    assert all(bool(weight.grad.isfinite().all()) for weight in method.parameters() if weight.grad is not None)


def test_as_many_classes_as_the_data_have_labels(folder):
    assert sbert(folder, "nli", classes=2).classifier.linear.weight.shape[0] == 2
    with pytest.raises(StsbenchError, match="1 label"):
        sbert(folder, "nli", classes=1)
    with pytest.raises(StsbenchError, match=r"needs labelled rows of premise, hypothesis and label \(these give anchor"):
        MethodPlan(SBERT, SBERTOptions()).labelled_roles(("anchor", "positive", "negative"))


@pytest.mark.parametrize(("objective", "stages", "uses"), [
    ("nli", ("nli",), ["only"]), ("sts", ("sts",), ["none"]), ("nli-sts", ("nli", "sts"), ["only", "none"]),
    ("triplet", ("triplet",), ["none"]),
])
def test_which_stages_train_on_labelled_rows(objective, stages, uses):
    options = SBERTOptions(objective=objective)
    assert SBERT.stages_for(options) == stages
    assert [MethodPlan(SBERT, options).labelled(stage) for stage in stages] == uses


def test_the_classifier_has_no_part_in_the_second_stage(folder):
    method = sbert(folder, "nli-sts")
    for stage in ("nli", "sts"):
        method.start_stage(stage)
        assert {weight.requires_grad for weight in method.classifier.parameters()} <= {stage == "nli"}
    assert all(weight.requires_grad for weight in method.backbone.parameters())


@pytest.mark.parametrize(("pooler", "test_pooler"), [("max", None), ("mean", "first_last:layer1")])
def test_the_tested_pooler_is_exported_and_another_one_selected_by(folder, tmp_path, pooler, test_pooler):
    method = sbert(folder, "nli", pooler, test_pooler=test_pooler).float().eval()
    assert method.dev_inference().pooler == pooler
    export_model(method.inference(), tmp_path / "model", card="x", method="sbert", recipe="x")
    ours = load_encoder(str(tmp_path / "model"))
    assert ours.spec.pooler == (test_pooler or pooler)
    theirs = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    assert np.abs(ours.encode(TEXTS) - theirs.encode(TEXTS)).max() < 5e-6


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


def test_pairs_of_stsb_are_said_to_be_in_the_tests_of_the_years(whole):
    """STS-B was drawn from STS12 to STS16: scores there are transductive, those of NLI's stage alone would not be."""
    assert [line["learning_rate"] for line in log_of(whole[0]) if line["kind"] == "train"][-1] < 1e-3
    years = ["sts12", "sts13", "sts14", "sts15", "sts16"]
    data = {item["file"]: item.get("texts_of", []) for item in read_manifest(whole[0]).data.values()}
    assert data == {"pairs-30.tsv": [], "stsb-train.jsonl": years}
    assert list(read_trained_on(whole[0] / "best")) == years


def test_stage_by_stage_is_the_same_run(whole, tmp_path):
    """From a run of the NLI objective alone."""
    folder, values, cache = whole
    how = {"method": "sbert", "recipe": "nli-bert-base", "cache": cache}
    alone = {key: value for key, value in values.items() if key not in ("data.file", "stages.sts.training")}
    assert train(tmp_path / "one", {**alone, "options.objective": "nli"}, stage=1, **how) == (0, None)
    assert train(tmp_path / "two", values, stage=2, start_from=tmp_path / "one", **how) == (0, None)
    assert weights_of(tmp_path / "two") == weights_of(folder)


@pytest.mark.parametrize(("recipe", "settings", "message"), [
    ("nli-bert-base", {"data.file": "stsb/train"}, "data.file has no effect: sbert trains on labelled rows alone"),
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
