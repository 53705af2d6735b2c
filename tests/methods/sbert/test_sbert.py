"""Sentence-BERT's classifier, pooler and a run. Its terms: tests/methods/test_terms.py."""

from types import SimpleNamespace

import numpy as np
import pytest
import tiny_models
import torch
from method_oracle import MemoryRows, make
from sentence_transformers import SentenceTransformer

from stsbench.encoders.load import load_encoder
from stsbench.errors import StsbenchError
from stsbench.methods.sbert.method import SBERT
from stsbench.training.recipes.recipes import load_recipe
from stsbench.training.runs.export import export_model
from stsbench.training.runs.options import TrainOptions
from stsbench.training.runs.run import train as run

TEXTS = tiny_models.sentences(12, longest=9, seed=3)
LABELS = ("contradiction", "entailment", "neutral")


def sbert(folder, stage, pooler="mean", seed=1, classes=3, **options):
    """The method in float64, its classifier made where the stage has one."""
    method = make(SBERT, folder, {"objective": stage, **options}, pooler=pooler, seed=seed)
    if stage == "nli":
        rows = MemoryRows(folder, {"premise": ["cat"], "hypothesis": ["cat"]}, values=[0])
        rows.store = SimpleNamespace(label_names=LABELS[:classes])
        torch.manual_seed(seed)
        method.prepare_labelled(rows)
        method.double()
    return method


@pytest.fixture
def folder(encoders):
    return encoders["bert"]


def test_as_many_classes_as_the_data_have_labels(folder):
    assert sbert(folder, "nli", classes=2).classifier.linear.weight.shape[0] == 2
    with pytest.raises(StsbenchError, match="1 label"):
        sbert(folder, "nli", classes=1)


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


def test_a_file_of_ones_own(folder, tmp_path, monkeypatch):
    """A header sentence1, sentence2, score needs no data.columns; scores from 0 to 1 on a scale to 5 are told of."""
    texts = tiny_models.sentences(20, longest=9, seed=8)
    file = tmp_path / "mine.tsv"
    rows = [f"{texts[i]}\t{texts[10 + i]}\t{i / 10}" for i in range(10)]
    file.write_text("\n".join(["sentence1\tsentence2\tscore", *rows]))
    said = []
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    settings = {"backbone.model": str(folder), "backbone.max_length": 16, "data.file": str(file), "training.max_steps": 1,
                "selection.by": "none"}
    recipe = load_recipe("sbert", "stsb-bert-base", [], settings)
    run(TrainOptions(recipe, tmp_path / "run", device="cpu", sample=True), said.append)
    assert [line for line in said if line.startswith("warning") and "warm-up" not in line] == [
        "warning: mine.tsv: no score is above 0.9, and sbert is told that they go from 0 to 5"
    ]
