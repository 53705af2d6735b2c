"""Mirror-BERT in whole runs: exported with the length of the test; the gradient of two processes."""

from __future__ import annotations

import json

import numpy as np
import pytest
from mirrorbert_oracle import TEXTS, batch_for, folders, mirrorbert, pairs, plain
from sentence_transformers import SentenceTransformer
from tiny_models import build
from training_runs import make_text, one_thread, settings, undisturbed
from two_processes import check_same_as_one, passes_of_two, shares_of

import stsbench
from stsbench.encoders.load import load_encoder
from stsbench.errors import StsbenchError
from stsbench.training.engine.selection import live_encoder
from stsbench.training.runs.finish import load_trained

__all__ = ["folders", "one_thread"]
CHOSEN = [(plain, {}), (pairs, {"pooler": "cls", "drophead": 0.3})]
SPLITS = [(3, 2), (4, 1)]


def made(folder, chosen, split=None, rank=0):
    rows, options = chosen
    method = mirrorbert(folder, **options)
    return method, batch_for(method, rows(folder), shares_of(len(TEXTS), split, rank))[0]


@pytest.fixture(scope="module")
def both(folders, tmp_path_factory):
    return passes_of_two(tmp_path_factory.mktemp("shares"), made, folders["bert"], CHOSEN, SPLITS)


@pytest.mark.parametrize("number", range(len(CHOSEN)))
def test_two_processes_have_the_gradient_of_one(folders, both, number):
    check_same_as_one(both, number, *made(folders["bert"], CHOSEN[number]))


# Whole runs ------------------------------------------------------------------------------------------------------


def small(place, **more):
    """Eight steps with dropout and dropped heads."""
    return settings(build(place / "model", pooler=False), make_text(place), **{
        "data.sample": None, "data.sample_seed": None, "options.drophead": 0.2, "options.test_length": 20,
        "backbone.pooler": "mean_padded:12", "backbone.max_length": 12, "selection.by": "none", "selection.every": 250,
        "training.learning_rate": 1e-3, "training.epsilon": 1e-2, "training.max_steps": 8, **more,
    })


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """(a run nobody disturbed, the values it was trained with, the cache)."""
    place = tmp_path_factory.mktemp("runs")
    values = small(place)
    return undisturbed(place, values, "mirror-bert")


def test_exported_with_the_length_of_the_test(whole):
    folder = whole[0]
    texts = ["cat", "the man runs .", "a [MASK] dog with a guitar", "blue " * 30]
    method = load_trained(folder, device="cpu")
    assert method.inference().pooler == "mean_padded:20"
    vectors = live_encoder(method.inference(), "live").encode(texts)
    encoder = load_encoder(str(folder))
    assert (encoder.spec.pooler, encoder.spec.max_length) == ("mean_padded:20", 20)
    library = SentenceTransformer(str(folder / "best"), device="cpu", trust_remote_code=True)
    for read in (encoder.encode(texts), library.encode(texts)):
        assert np.abs(read - vectors).max() < 1e-5
    assert np.abs(load_encoder(str(folder), pooler="mean_padded:12").encode(texts) - vectors).max() > 1e-2
    assert json.loads((folder / "best" / "stsbench.json").read_text("utf-8"))["pooler"] == "mean_padded:20"


def test_a_run_on_the_training_sentences_of_sts_b_says_what_they_are_tested_as(tmp_path, monkeypatch):
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    values = {"backbone.model": str(build(tmp_path / "model", pooler=False)), "training.max_steps": 1,
              "precision": "float32", "training.batch_size": 8, "data.sample": 40}
    summary = stsbench.train("mirror-bert", output=tmp_path / "run", settings=values, device="cpu", sample=True)
    assert summary["data"]["main"]["texts_of"] == ["sts12", "sts13", "sts14", "sts15", "sts16"]
    assert load_encoder(str(tmp_path / "run")).traits.trained_on == ("sts12", "sts13", "sts14", "sts15", "sts16")


def test_a_backbone_without_dropout_and_views_without_noise(tmp_path):
    values = small(tmp_path, **{"options.drophead": 0, "options.span_chars": 0, "backbone.dropout": None})
    config = tmp_path / "model" / "config.json"
    still = {"hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0}
    config.write_text(json.dumps(json.loads(config.read_text("utf-8")) | still), "utf-8")
    with pytest.raises(StsbenchError, match="has no dropout"):
        stsbench.train("mirror-bert", output=tmp_path / "run", settings=values, device="cpu")
