"""ConSERT in whole runs: exported, tested, marked as transductive; the gradient of two processes."""

from __future__ import annotations

import json

import nli_files
import numpy as np
import pytest
from consert_oracle import TEXTS, batch_for, consert, folders, pairs, plain
from sentence_transformers import SentenceTransformer
from tiny_models import build
from training_runs import make_text, one_thread, settings, train, undisturbed
from two_processes import check_same_as_one, passes_of_two, shares_of

import stsbench
from stsbench.encoders.load import load_encoder
from stsbench.errors import StsbenchError
from stsbench.evaluation.run_file import load_records
from stsbench.training.engine.selection import live_encoder
from stsbench.training.runs.finish import load_trained

__all__ = ["folders", "one_thread"]
ADVERSARIAL = {"setting": "joint", "joint_views": ("none", "adversarial"), "joint_rates": (None, None)}
CHOSEN = [
    {}, {"views": ("dropout", "token_cutoff"), "rates": (0.2, 0.3)}, {"setting": "sup"},
    {"setting": "joint", "joint_views": ("span", "feature_cutoff"), "joint_rates": (0.5, 0.3)}, ADVERSARIAL,
]
SPLITS = [(3, 2), (4, 1)]


def made(folder, options, split=None, rank=0):
    method = consert(folder, **options)
    labelled, shares = method.classifier is not None, shares_of(len(TEXTS), split, rank)
    return method, batch_for(method, (pairs if labelled else plain)(folder), shares, labelled=labelled)[0]


@pytest.fixture(scope="module")
def both(folders, tmp_path_factory):
    return passes_of_two(tmp_path_factory.mktemp("shares"), made, folders["bert"], CHOSEN, SPLITS)


@pytest.mark.parametrize("number", range(len(CHOSEN)))
def test_two_processes_have_the_gradient_of_one(folders, both, number):
    gradients = 1e-7 if CHOSEN[number] is ADVERSARIAL else 1e-9
    check_same_as_one(both, number, *made(folders["bert"], CHOSEN[number]), gradients=gradients)


# Whole runs ------------------------------------------------------------------------------------------------------


def small(place, **more):
    """Two stages, six steps each, with the model's dropout on."""
    return settings(build(place / "model", pooler=False), make_text(place), **{
        "labelled.file": str(nli_files.pairs(place)), "options.setting": "joint-unsup",
        "options.views": ["dropout", "shuffle"],
        "options.joint_views": ["none", "token_cutoff"], "options.joint_rates": [None, 0.3], "training.epsilon": 1e-2,
        "training.max_steps": 6, "selection.every": 3, "backbone.max_length": 12, **more,
    })


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """(a run nobody disturbed, the values it was trained with, the cache)."""
    place = tmp_path_factory.mktemp("runs")
    values = small(place)
    return undisturbed(place, values, "consert")


def test_exported_with_the_pooler_of_the_test(whole):
    folder = whole[0]
    texts = ["cat", "the man runs .", "a [MASK] dog with a guitar", "blue " * 30]
    method = load_trained(folder, device="cpu")
    vectors = live_encoder(method.inference(), "live").encode(texts)
    assert method.inference().pooler == "last2" and method.dev_inference().pooler == "mean"
    library = SentenceTransformer(str(folder / "best"), device="cpu")
    for found in (load_encoder(str(folder)).encode(texts), library.encode(texts)):
        assert np.abs(found - vectors).max() < 1e-5
    other = live_encoder(method.dev_inference(), "live").encode(texts)
    assert np.abs(other - vectors).max() > 1e-2
    assert "trained_on" not in json.loads((folder / "best" / "stsbench.json").read_text("utf-8"))


def test_the_second_stage_from_the_best_of_the_first(whole, tmp_path):
    """What the released code's --continue_training does."""
    folder, values, cache = whole
    more = {"options.setting": "unsup", "options.joint_rates": [None, 0.15], "backbone.model": str(folder)}
    values = {key: value for key, value in values.items() if not key.startswith("labelled.")}
    assert train(tmp_path / "run", {**values, **more}, method="consert", cache=cache) == (0, None)


def test_a_run_on_the_sentences_of_sts_says_so_wherever_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    values = {"backbone.model": str(build(tmp_path / "model", pooler=False)), "training.max_steps": 2,
              "selection.by": "none", "precision": "float32", "backbone.max_length": 12,
              "training.batch_size": 16}
    options = {"device": "cpu", "sample": True, "evaluate": ["sts"]}
    summary = stsbench.train("consert", output=tmp_path / "run", settings=values, **options)
    assert summary["data"]["unsup"]["file"] == "sts-texts-sample.txt" and summary["data"]["unsup"]["rows"] == 950
    assert summary["data"]["unsup"]["texts_of"][:2] == ["sts12", "sts13"]
    best = tmp_path / "run" / "best"
    assert "transductive" in (best / "README.md").read_text("utf-8")
    records = [record for _, record in load_records(tmp_path / "run" / "eval")]
    assert len(records) > 6
    again = stsbench.evaluate(str(best), output=tmp_path / "again", protocols=["sts"], sample=True)
    for provenance in [record.provenance for record in [*records, *again.records]]:
        assert {"sts12", "stsb", "sick-r"} <= set(provenance["trained_on"])
    encoder = load_encoder(str(best))
    assert any("transductive" in line for line in encoder.notes)
    settings = best / "config_sentence_transformers.json"  # another description of the same weights
    settings.write_text(json.dumps(json.loads(settings.read_text("utf-8")) | {"prompts": {"query": "q: "}}), "utf-8")
    assert set(load_encoder(str(best)).traits.trained_on) == set(encoder.traits.trained_on)
    text = make_text(tmp_path, 64)
    later = values | {"backbone.model": str(tmp_path / "run"), "data.file": str(text)}
    stsbench.train("consert", output=tmp_path / "later", settings=later, device="cpu", sample=True)
    seen = load_encoder(str(tmp_path / "later")).traits.trained_on
    assert seen == encoder.traits.trained_on  # what it started from had seen them


def test_the_sentences_of_sts_are_no_labelled_rows(tmp_path):
    values = {"labelled.file": "sts-texts", "data.file": None, "options.setting": "sup", "options.rates": [0.2, None],
              "backbone.model": str(build(tmp_path / "model", pooler=False)), "precision": "float32",
              "backbone.max_length": 12}
    with pytest.raises(StsbenchError, match="sts-texts are not here"):
        stsbench.train("consert", output=tmp_path / "run", settings=values, device="cpu", sample=True)
    views = {"options.setting": "joint", "options.joint_views": ["dropout", "adversarial"],
             "options.joint_rates": [0.2, None]}
    with pytest.raises(StsbenchError, match="adversarial is the second view"):  # before the rows are looked for
        stsbench.train("consert", output=tmp_path / "run", settings=values | views, device="cpu", sample=True)
