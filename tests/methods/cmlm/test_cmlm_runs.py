"""CMLM in whole runs on ordered text: what its log says, held-out rows; the gradient of two processes."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from cmlm_oracle import PAIRED, cmlm, documents, folders
from diffcse_oracle import masked_lm
from tiny_models import sentences
from training_runs import log_of, one_thread, settings, undisturbed
from two_processes import check_same_as_one, passes_of_two, shares_of

import stsbench
from stsbench.training.rows.batches import to_batch

__all__ = ["folders", "one_thread"]
CHOSEN = [{"vectors": 3}, {"vectors": 2, "both_directions": True, "probability": 0.4}]
SPLITS = [(4, 3), (6, 1)]


def made(folder, options, split=None, rank=0):
    method = cmlm(folder, **options)
    views = method.views(documents(folder), np.random.default_rng(1))
    shares = shares_of(len(PAIRED), split, rank)
    return method, to_batch(views, shares, method.backbone.tokenizer.pad_token_id, torch.device("cpu"))


def test_two_processes_have_the_gradient_of_one(folders, tmp_path):
    """The mean is over the masked tokens of both, of which they have unequally many."""
    passes = passes_of_two(tmp_path, made, folders["bert"], CHOSEN, SPLITS)
    for number, options in enumerate(CHOSEN):
        check_same_as_one(passes, number, *made(folders["bert"], options), rel=1e-10)


# --- whole runs ---


def small(place, **more):
    """12 steps on 20 documents of four sentences."""
    lines = sentences(80, longest=9)
    path = place / "documents.txt"
    path.write_text("\n\n".join("\n".join(lines[at : at + 4]) for at in range(0, 80, 4)) + "\n", "utf-8")
    return settings(masked_lm(place / "model", num_hidden_layers=1), path, **{
        "options.vectors": 3, "backbone.max_length": 12, "training.max_steps": 12, "training.epochs": 3,
        "options.both_directions": True, **more,
    })


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """(a run nobody disturbed, its values, the cache)."""
    place = tmp_path_factory.mktemp("runs")
    values = small(place)
    return undisturbed(place, values, "cmlm")


def test_what_the_run_says(whole):
    lines = [line for line in log_of(whole[0]) if line["kind"] == "train"]
    assert all(set(line["terms"]) == {"mlm", "mlm_back"} and line["gradient_norm"] > 0 for line in lines)
    assert all(0 <= line["masked_accuracy"] <= 1 for line in lines)
    summary = json.loads((whole[0] / "train.json").read_text("utf-8"))
    assert summary["data"]["main"]["rows"] == 60  # the last sentence of each document has no next one


def test_held_out_rows_of_ordered_text_choose_the_weights(whole, tmp_path, monkeypatch):
    monkeypatch.setenv("STSBENCH_CACHE", str(whole[2]))
    values = {**whole[1], "selection.by": "held-out", "data.held_out": 12, "selection.every": 2, "training.max_steps": 4}
    summary = stsbench.train("cmlm", output=tmp_path / "run", settings=values, device="cpu")
    assert summary["data"]["main"]["held_out"] == 12 and summary["data"]["main"]["rows"] < 48
    assert 0 <= summary["best"]["score"] <= 100  # masked accuracy
