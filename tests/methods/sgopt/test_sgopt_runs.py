"""SG-OPT in whole runs: exported, after labelled rows, on the sentences of STS-B; the gradient of two processes."""

from __future__ import annotations

import json

import nli_files
import numpy as np
import pytest
import torch
from method_oracle import tokens
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from sgopt_oracle import TEXTS, batch_for, sgopt
from tiny_models import build
from training_runs import log_of, make_text, one_thread, settings, undisturbed
from two_processes import (
    both_find,
    check_same_as_one,
    passes,
    same_gradients,
    second_pass,
    shares_of,
)

import stsbench
from stsbench.encoders.load import load_encoder
from stsbench.training.api.batch import Batch, Shares
from stsbench.training.runs.finish import load_trained

__all__ = ["one_thread"]
CHOSEN = [{}, {"objective": "sg"}, {"objective": "opt1"}, {"objective": "opt2"},
          {"objective": "opt2", "skip_negative": True}, {"guide": "trained"}, {"guide": "trained", "objective": "opt1"}]
SPLITS = [(3, 2), (4, 1)]
PLAIN = {"regulariser_weight": 0.0}


def made(folder, options, split=None, rank=0, gather="exact"):
    method = sgopt(folder, temperature=0.1, **options)
    method.gather_mode = gather
    return method, batch_for(method, folder, shares_of(len(TEXTS), split, rank))[0]


def both_compute(rank, folder):
    """Its passes with the gradient of all rows, and those of the other ways of gathering."""
    ways = {(mode, number): second_pass(*made(folder, {**options, **PLAIN}, SPLITS[0], rank, mode), processes=2)
            for mode in ("simcse", "local") for number, options in enumerate(CHOSEN)}
    return passes(rank, made, folder, CHOSEN, SPLITS), ways


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """(the model's folder, [rank] -> what it computed)."""
    place = tmp_path_factory.mktemp("shares")
    folder = build(place / "tiny", pooler=False)
    return folder, both_find(place, both_compute, folder)


@pytest.mark.parametrize("number", range(len(CHOSEN)))
def test_two_processes_have_the_gradient_of_one(both, number):
    folder, computed = both
    check_same_as_one([passes for passes, _ in computed], number, *made(folder, CHOSEN[number]))


@pytest.mark.parametrize("number", range(len(CHOSEN)))
def test_the_other_ways_of_gathering(both, number):
    """simcse: the loss of all rows, half of their gradient; local: the mean of the losses of two batches."""
    folder, [(_, ways), _] = both
    means, gradients = second_pass(*made(folder, {**CHOSEN[number], **PLAIN}))
    theirs, half = ways["simcse", number]
    assert theirs == pytest.approx(means, rel=1e-9)
    same_gradients({name: None if each is None else 2 * each for name, each in half.items()}, gradients)
    method, whole = made(folder, {**CHOSEN[number], **PLAIN})
    losses = []
    for rows in (slice(0, 3), slice(3, 5)):
        by_row = {name: values[rows] for name, values in whole.by_row.items()}
        part = Batch(whole.ids[rows], whole.mask[rows], 1, Shares((rows.stop - rows.start,)), by_row=by_row)
        losses.append(method(part)["contrastive"].value.item())
    theirs, _ = ways["local", number]
    assert theirs["contrastive"] == pytest.approx((3 * losses[0] + 2 * losses[1]) / 5, rel=1e-9)


# --- whole runs ---


def small(place, **more):
    """Six steps, dropout in the trained model and in the copy."""
    return settings(build(place / "model", pooler=False), make_text(place), **{
        "options.projection_width": 16, "options.temperature": 0.1, "options.reference_dropout": True,
        "training.max_steps": 6, "selection.every": 3, "backbone.max_length": 12, **more,
    })


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """(a run nobody disturbed, its values, the cache)."""
    place = tmp_path_factory.mktemp("runs")
    values = small(place)
    return undisturbed(place, values, "sg-opt")


def test_the_copy_and_the_embeddings_stay_as_they_were(whole):
    folder, values, _ = whole
    newest = load_file(sorted((folder / "checkpoints").glob("[0-9]*"))[-1] / "model.safetensors")
    start = {name.removeprefix("bert."): weight
             for name, weight in load_file(f"{values['backbone.model']}/model.safetensors").items()}
    for name, weight in start.items():
        assert torch.equal(newest[f"reference.backbone.model.{name}"], weight)
        assert torch.equal(newest[f"backbone.model.{name}"], weight) == ("embeddings" in name), name
    lines = [line for line in log_of(folder) if line["kind"] == "train"]
    assert all(set(line["terms"]) == {"contrastive", "regulariser"} for line in lines)
    assert lines[-1]["terms"]["regulariser"] > 0


def test_the_export_is_the_trained_encoder_alone(whole):
    folder = whole[0]
    method, best = load_trained(folder, "cpu"), str(folder / "best")
    with torch.no_grad():
        states = [method.backbone.model(torch.tensor([ids])).last_hidden_state[0, 0].numpy()
                  for ids in tokens(folder / "best", TEXTS, 12)]
    ours = stsbench.load_encoder(best).encode(TEXTS)
    theirs = SentenceTransformer(best, device="cpu").encode(TEXTS)
    assert np.abs(ours - states).max() < 1e-5 and np.abs(ours - theirs).max() < 5e-6
    assert not any("reference" in name or "projector" in name for name in load_file(f"{best}/model.safetensors"))


def test_after_labelled_rows_the_copy_is_of_what_they_trained(whole, tmp_path, monkeypatch):
    monkeypatch.setenv("STSBENCH_CACHE", str(whole[2]))
    values = {**whole[1], "selection.by": "none", "training.max_steps": 2, "semi.procedure": "sup-unsup",
              "labelled.file": str(nli_files.pairs(tmp_path)), "labelled.batch_size": 8}
    summary = stsbench.train("sg-opt", output=tmp_path / "run", settings=values, device="cpu")
    assert list(summary["stages"]) == ["sup", "main"]
    ends = [load_file(sorted((tmp_path / "run" / "checkpoints").glob(f"{number}-*"))[-1] / "model.safetensors")
            for number in (0, 1)]
    name = "model.encoder.layer.1.output.dense.weight"
    assert torch.equal(ends[0][f"backbone.{name}"], ends[1][f"reference.backbone.{name}"])
    assert not torch.equal(ends[0][f"reference.backbone.{name}"], ends[1][f"reference.backbone.{name}"])


def test_the_sentences_of_stsb_are_seen_ones(tmp_path, monkeypatch):
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    values = {"backbone.model": str(build(tmp_path / "model", pooler=False)), "training.max_steps": 2,
              "selection.by": "none", "backbone.max_length": 12, "options.projection_width": 16}
    summary = stsbench.train("sg-opt", output=tmp_path / "run", settings=values, device="cpu", sample=True)
    assert summary["data"]["main"]["file"] == "stsb-texts-sample.txt"
    seen = ["sts12", "sts13", "sts14", "sts15", "sts16", "stsb"]
    assert summary["data"]["main"]["texts_of"] == seen
    assert json.loads((tmp_path / "run" / "best" / "stsbench.json").read_text("utf-8"))["trained_on"] == seen
    assert list(load_encoder(str(tmp_path / "run")).traits.trained_on) == seen
