"""Contrastive Tension in whole runs: selected, exported, with labelled rows, from a run, in two processes."""

from __future__ import annotations

import json

import nli_files
import numpy as np
import pytest
import tiny_models
import torch
import training_runs
from ct_oracle import TEXTS, ct
from method_oracle import MemoryRows
from training_runs import log_of, one_thread, undisturbed
from two_processes import check_same_as_one, passes_of_two, two_ranks_equal_one

import stsbench
from stsbench.errors import StsbenchError
from stsbench.training.api.batch import Shares
from stsbench.training.rows.batches import to_batch
from stsbench.training.runs.finish import load_trained

__all__ = ["one_thread"]
CHOSEN = [{"k": 2}, {"k": 2, "negatives": "anchor", "reduction": "sum"}, {"objective": "in-batch"},
          {"objective": "in-batch", "similarity": "cosine", "scale": 5.0}]
SPLITS = [0.5, 0.25]


# --- the gradient of two processes ---


def made(folder, options, split=None, rank=0):
    """split: the first process's part of the pairs."""
    method = ct(folder, **options)
    views = method.views(MemoryRows(folder, {"sentence": TEXTS[:15]}), np.random.default_rng(0))
    total = len(views.tokens[0])
    shares = Shares((total,)) if split is None else Shares((int(total * split), total - int(total * split)), rank)
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
    """12 steps of two groups of 5 sentences: 6 pairs."""
    return training_runs.settings(
        tiny_models.build(place / "tiny", pooler=False), training_runs.make_text(place, 63),
        **{"training.max_steps": 12, "training.learning_rate": 1e-4, "training.milestones": [5], "training.rates": [5e-5],
           "options.k": 2, "backbone.dropout": 0.0, "backbone.max_length": 12, **more},
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """(a run nobody disturbed, its values, the cache)."""
    place = tmp_path_factory.mktemp("runs")
    values = {**small(place, **{"selection.every": 3}), "training.epochs": 3, "training.drop_last": False}
    return undisturbed(place, values, "ct")


def test_the_better_encoder_of_each_evaluation_is_kept(whole):
    lines = [line for line in log_of(whole[0]) if line["kind"] == "dev"]
    assert [line["step"] for line in lines] == [0, 3, 6, 9, 12]
    for line in lines:
        assert set(line["encoders"]) == {"model1", "model2"}
        assert line["score"] == max(line["encoders"].values()) == line["encoders"][line["encoder"]]
    assert lines[0]["encoders"]["model1"] == lines[0]["encoders"]["model2"] and lines[0]["encoder"] == "model2"
    assert lines[-1]["encoders"]["model1"] != lines[-1]["encoders"]["model2"]
    best = max(lines[1:], key=lambda line: line["score"])
    summary = json.loads((whole[0] / "train.json").read_text("utf-8"))
    assert (summary["best"]["step"], summary["best"]["score"]) == (best["step"], best["score"])
    assert summary["encoder"] == best["encoder"] and summary["after"] == lines[-1]["score"]
    assert f"of {best['encoder']} of step {best['step']}" in (whole[0] / "best" / "README.md").read_text("utf-8")
    method = load_trained(whole[0], "cpu")
    assert int(method.kept) == int(best["encoder"][-1])


def test_the_export_is_the_kept_encoder_in_three_libraries(whole):
    from sentence_transformers import SentenceTransformer

    method, best = load_trained(whole[0], "cpu"), str(whole[0] / "best")
    ids = method.backbone.tokenise(TEXTS[:9])
    with torch.no_grad():
        encoder = method.first if int(method.kept) == 1 else method.backbone
        expected = [encoder.model(torch.tensor([row])).last_hidden_state[0].mean(0).numpy() for row in ids]
    ours = stsbench.load_encoder(best).encode(TEXTS[:9])
    theirs = SentenceTransformer(best, device="cpu").encode(TEXTS[:9])
    assert np.abs(ours - expected).max() < 1e-5 and np.abs(ours - theirs).max() < 1e-6


@pytest.mark.parametrize("wanted", ["model1", "model2"])
def test_either_may_be_kept(whole, tmp_path, monkeypatch, wanted):
    """Before the first step both score the same, and the first named wins: what it chose is what is exported."""
    from stsbench.methods.ct import method

    monkeypatch.setattr(method, "MODELS", (wanted, *({"model1", "model2"} - {wanted})))
    monkeypatch.setenv("STSBENCH_CACHE", str(whole[2]))
    values = {**whole[1], "training.max_steps": 1, "training.learning_rate": 1e-30, "selection.every": 1}
    summary = stsbench.train("ct", output=tmp_path / "run", settings=values, sample=True, device="cpu")
    assert summary["encoder"] == wanted
    assert int(load_trained(tmp_path / "run", "cpu").kept) == int(wanted[-1])


def test_nothing_to_choose_by(whole, tmp_path, monkeypatch):
    monkeypatch.setenv("STSBENCH_CACHE", str(whole[2]))
    for by in ("none", "held-out"):
        values = {**whole[1], "selection.by": by, **({"data.held_out": 20} if by == "held-out" else {})}
        with pytest.raises(StsbenchError, match=f"ct chooses among model2, model1 by development scores.* is {by}: set"):
            stsbench.train("ct", output=tmp_path / by, settings=values, device="cpu")
    values = {**values, "options.keep": "model1", "training.max_steps": 2}
    summary = stsbench.train("ct", output=tmp_path / "held-out", settings=values, device="cpu")
    assert summary["after"] < 0  # the loss of whole groups, negated


def test_batches_are_whole_groups(whole, tmp_path, monkeypatch):
    monkeypatch.setenv("STSBENCH_CACHE", str(whole[2]))
    with pytest.raises(StsbenchError, match=r"training.batch_size 12: ct takes 5 rows together .* a multiple: 10 or 15$"):
        stsbench.train("ct", output=tmp_path / "a", settings={**whole[1], "training.batch_size": 12}, device="cpu")


@pytest.mark.parametrize("more", [{}, {"options.objective": "in-batch", "options.k": 7, "training.batch_size": 7}])
def test_two_ranks_equal_one(tmp_path, more):
    """Of 6 pairs the ranks have 3 each, of 7 sentences 4 and 3."""
    values = {**small(tmp_path, **{"options.keep": "model2", "training.epsilon": 1e-3, "training.max_steps": 6}), **more}
    two_ranks_equal_one(tmp_path, values, "ct", tmp_path / "cache", but=("log_scale",))


def test_two_ranks_keep_the_same_encoder(whole, tmp_path):
    """Only the first of them scores; the choice is part of what it writes."""
    _, values, cache = whole
    values = {**values, "training.max_steps": 6}
    assert training_runs.train_ranks(tmp_path / "run", values, method="ct", cache=cache) == [(0, None)] * 2
    summary = json.loads((tmp_path / "run" / "train.json").read_text("utf-8"))
    assert int(load_trained(tmp_path / "run", "cpu").kept) == int(summary["encoder"][-1])


def test_from_a_trained_run_and_with_labelled_rows(whole, tmp_path, monkeypatch):
    """CT-SBERT starts from an encoder trained on NLI: from its run, or after a stage of labelled rows."""
    monkeypatch.setenv("STSBENCH_CACHE", str(whole[2]))
    values = {**whole[1], "options.keep": "model2", "training.max_steps": 2, "selection.by": "none"}
    first = stsbench.train("ct", output=tmp_path / "one", settings=values, device="cpu")
    assert first["exported"] == "the last step"
    again = {**values, "backbone.model": str(tmp_path / "one")}
    stsbench.train("ct", output=tmp_path / "two", settings=again, device="cpu")
    labelled = {"labelled.file": str(nli_files.pairs(tmp_path)), "labelled.batch_size": 8}
    semi = {**values, **labelled, "semi.procedure": "sup-unsup"}
    summary = stsbench.train("ct", output=tmp_path / "three", settings=semi, device="cpu")
    assert list(summary["stages"]) == ["sup", "main"]
