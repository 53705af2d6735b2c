"""Sentence-BERT's stages, classifier and gradients at the edges, and its runs. Its terms: tests/methods/test_terms.py."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import tiny_models
import torch
from method_oracle import MemoryRows, make
from sentence_transformers import SentenceTransformer

from stsbench.encoders.load import load_encoder
from stsbench.errors import DataError, StsbenchError
from stsbench.methods.sbert.method import SBERT
from stsbench.methods.sbert.options import SBERTOptions
from stsbench.training.api.batch import Shares
from stsbench.training.export.export import export_model
from stsbench.training.recipes.method_plan import MethodPlan
from stsbench.training.recipes.recipes import load_recipe
from stsbench.training.rows.batches import to_batch
from stsbench.training.runs.options import TrainOptions
from stsbench.training.runs.run import train as run

TEXTS = tiny_models.sentences(12, longest=9, seed=3)
LABELS = ("contradiction", "entailment", "neutral")
ROLES = {"nli": ("premise", "hypothesis"), "sts": ("sentence1", "sentence2"), "triplet": ("anchor", "positive", "negative")}


def valued_rows(folder, texts, values, names=LABELS):
    rows = MemoryRows(folder, texts, values=values)
    rows.store = SimpleNamespace(label_names=names)
    return rows


def rows_of(folder, stage, texts, values=None):
    """Rows of a stage: `texts` in turn for its roles."""
    roles = ROLES[stage]
    count = len(texts) // len(roles)
    parts = {role: texts[i * count : (i + 1) * count] for i, role in enumerate(roles)}
    return valued_rows(folder, parts, values)


def sbert(folder, stage, pooler="mean", seed=1, classes=3, **options):
    """The method in float64, its classifier made where the stage has one."""
    method = make(SBERT, folder, {"objective": stage, **options}, pooler=pooler, seed=seed)
    if stage == "nli":
        rows = valued_rows(folder, {"premise": ["cat"], "hypothesis": ["cat"]}, [0], LABELS[:classes])
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
    with pytest.raises(StsbenchError, match=r"needs labelled rows of premise, hypothesis and label, and these give anchor"):
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


def test_the_tested_pooler_is_exported_and_another_one_selected_by(folder, tmp_path):
    method = sbert(folder, "nli", "mean", test_pooler="first_last:layer1").float().eval()
    assert method.dev_inference().pooler == "mean" and sbert(folder, "nli", "max").inference().pooler == "max"
    export_model(method.inference(), tmp_path / "model", card="x", method="sbert", recipe="x")
    ours = load_encoder(str(tmp_path / "model"))
    assert ours.spec.pooler == "first_last:layer1"
    theirs = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    assert np.abs(ours.encode(TEXTS) - theirs.encode(TEXTS)).max() < 5e-6


@pytest.fixture
def values(encoders, tmp_path, monkeypatch):
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    return {"backbone.model": str(encoders["bert"]), "backbone.max_length": 16}


def test_a_file_of_ones_own(values, tmp_path):
    """A header sentence1, sentence2, score needs no data.columns; scores from 0 to 1 on a scale to 5 are told of."""
    texts = tiny_models.sentences(20, longest=9, seed=8)
    file = tmp_path / "mine.tsv"
    rows = [f"{texts[i]}\t{texts[10 + i]}\t{i / 10}" for i in range(10)]
    file.write_text("\n".join(["sentence1\tsentence2\tscore", *rows]))
    said = []
    settings = {**values, "data.file": str(file), "training.max_steps": 1, "selection.by": "none"}
    recipe = load_recipe("sbert", "stsb-bert-base", [], settings)
    run(TrainOptions(recipe, tmp_path / "run", device="cpu", sample=True), said.append)
    assert [line for line in said if line.startswith("warning") and "warm-up" not in line] == [
        "warning: mine.tsv: no score is above 0.9, and sbert is told that they go from 0 to 5"
    ]
    file.write_text(file.read_text("utf-8").replace("\t0.3", "\thigh"))
    with pytest.raises(DataError, match=r"mine.tsv:5: the score 'high' is not a number"):
        run(TrainOptions(recipe, tmp_path / "other", device="cpu", sample=True), said.append)
