"""IS-BERT in whole runs: exported, as a backbone, with labelled rows; the gradient of two processes."""

from __future__ import annotations

import nli_files
import numpy as np
import pytest
import tiny_models
import torch
import training_runs
from isbert_oracle import TEXTS, isbert, local_vectors, mean
from method_oracle import MemoryRows
from safetensors.torch import load_file
from training_runs import log_of, one_thread, undisturbed
from two_processes import check_same_as_one, passes_of_two, shares_of

import stsbench
from stsbench.training.rows.batches import to_batch
from stsbench.training.runs.finish import load_trained

__all__ = ["one_thread"]
CHOSEN = [{}, {"padding": "states"}]
SPLITS = [(7, 7), (2, 12)]


# --- the gradient of two processes ---


def made(folder, options, split=None, rank=0):
    method = isbert(folder, **options)
    views = method.views(MemoryRows(folder, {"sentence": TEXTS}), np.random.default_rng(0))
    shares = shares_of(len(TEXTS), split, rank)
    return method, to_batch(views, shares, method.backbone.tokenizer.pad_token_id, torch.device("cpu"))


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    place = tmp_path_factory.mktemp("shares")
    folder = tiny_models.build(place / "tiny", pooler=False)
    return folder, passes_of_two(place, made, folder, CHOSEN, SPLITS)


@pytest.mark.parametrize("number", range(len(CHOSEN)))
def test_two_processes_have_the_gradient_of_one(both, number):
    folder, passes = both
    check_same_as_one(passes, number, *made(folder, CHOSEN[number]), rel=1e-10)


# --- whole runs ---


def small(place, **more):
    return training_runs.settings(
        tiny_models.build(place / "tiny", pooler=False), training_runs.make_text(place),
        **{"training.max_steps": 12, "training.epsilon": 1e-3, "backbone.max_length": 12,
           "backbone.mean_cnn": {"kernels": [1, 3], "channels": 6}, **more},
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """(a run nobody disturbed, its values, the cache)."""
    place = tmp_path_factory.mktemp("runs")
    values = {**small(place), "training.epochs": 3}
    return undisturbed(place, values, "is-bert")


def test_both_terms_are_logged_and_fall(whole):
    lines = [line["terms"] for line in log_of(whole[0]) if line["kind"] == "train"]
    assert all(set(each) == {"negative", "positive"} for each in lines)
    assert sum(lines[-1].values()) < sum(lines[0].values())


def test_the_export_holds_the_cnn_in_two_libraries(whole):
    from sentence_transformers import SentenceTransformer

    best = whole[0] / "best"
    head = load_file(best / "1_MeanCNN" / "model.safetensors")
    method = load_trained(whole[0], "cpu")
    assert all(torch.equal(method.backbone.head.state_dict()[name], value) for name, value in head.items())
    model = method.backbone.model.double().eval()
    expected = []
    for row in method.backbone.tokenise(TEXTS):
        with torch.no_grad():
            state = model(torch.tensor([row])).last_hidden_state[0].tolist()
        expected.append(mean(local_vectors(method.backbone.head.double(), state, len(row))))
    ours = stsbench.load_encoder(str(best)).encode(TEXTS)
    theirs = SentenceTransformer(str(best), device="cpu", trust_remote_code=True).encode(TEXTS)
    assert ours.shape == (len(TEXTS), 12)
    assert np.abs(ours - expected).max() < 1e-5 and np.abs(ours - theirs).max() < 1e-5


def test_as_a_backbone_and_with_labelled_rows(whole, tmp_path, monkeypatch):
    """It goes on with its own CNN; forward passes of one step are weighted by their tokens."""
    monkeypatch.setenv("STSBENCH_CACHE", str(whole[2]))
    values = {**whole[1], "training.max_steps": 2, "selection.by": "none", "training.accumulate": 2}
    stsbench.train("is-bert", output=tmp_path / "one", settings={**values, "options.padding": "states"}, device="cpu")
    again = {**values, "backbone.model": str(tmp_path / "one"), "backbone.mean_cnn": None, "training.learning_rate": 1e-30}
    stsbench.train("is-bert", output=tmp_path / "two", settings=again, device="cpu")
    kept, first = (load_file(tmp_path / run / "best" / "1_MeanCNN" / "model.safetensors") for run in ("two", "one"))
    assert all(torch.equal(kept[name], value) for name, value in first.items())
    labelled = {"labelled.file": str(nli_files.pairs(tmp_path)), "labelled.batch_size": 8}
    semi = {**values, **labelled, "semi.procedure": "sup-joint"}
    summary = stsbench.train("is-bert", output=tmp_path / "three", settings=semi, device="cpu")
    assert list(summary["stages"]) == ["sup", "main"]
