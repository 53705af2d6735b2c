"""FSDP2 on two processes of a CPU (gloo), as accelerate's own variables ask for it: what one process trains, and checkpoints
that go on in another number of processes. Dropout off, since each process draws its own masks."""

from __future__ import annotations

import json

import pytest
import torch
from method_runs import make_place, recipe_of, train
from safetensors.torch import load_file
from tiny_decoders import decoder_folder
from training_runs import log_of, serve, weights_of
from two_processes import stopped, train_each

FSDP = {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2", "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP"}
# 55 rows in batches of 7, which two processes share as 4 and 3; checkpoints of steps 2 and 4 come before the log's line
CHANGES = {"training.batch_size": 7, "training.max_steps": 5, "training.epsilon": 1e-2, "training.clip": 0.5,
           "checkpoint_every": 100, "checkpoint_minutes": 1e-9, "selection.every": 3}
RECIPES = {
    # a head, a batch of its own for the MLM term, several passes a step, rows held out
    "bert": ("simcse", {**CHANGES, "training.accumulate": 2, "selection.at_end": True}),
    "llama": ("simcse-lora", {
        **CHANGES, "backbone.model": "llama", "backbone.lora": {"rank": 2, "dropout": 0.0}, "backbone.pooler": "mean",
        "options.head": "none", "options.mlm_weight": 0.0, "adaptive_layers": None, "training.average": None,
        "backbone.gradient_checkpointing": "offload", "selection.by": "none",
    }),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        place = make_place(tmp_path_factory.mktemp("shards"))
        decoder_folder(place / "llama")
        patch.setenv("STSBENCH_CACHE", str(place / "cache"))
        yield place


@pytest.fixture(scope="module")
def runs(place):
    """Folders of runs: by one process, by two, by two that went on from step 4 of two's and of one's, and by one
    that did from two's."""
    serve()
    recipes = {}
    once = {"training.max_steps": 1}
    variants = {**RECIPES, **{name: ("simcse-lora", {**RECIPES["llama"][1], **once, "precision": name})
                              for name in ("float32", "bf16")}}
    for name, (run, changes) in variants.items():
        changes = {**changes, **({"backbone.model": str(place / "llama")} if run == "simcse-lora" else {})}
        recipes[name] = recipe_of(place, run, **changes)
        train(recipes[name], place / f"one-{name}", place, device="cpu")
    bert = recipes["bert"]
    train_each({
        "two": (bert, place / "two"),
        "llama": (recipes["llama"], place / "two-llama"), "bf16": (recipes["bf16"], place / "two-bf16"),
        "again": (bert, place / "again", place / "two", 4), "more": (bert, place / "more", place / "one-bert", 4),
    }, place / "data", **FSDP)
    stopped(place / "two", 4, place / "fewer")
    train(bert, place / "fewer", place, device="cpu", resume=True)
    return place


def files(folder):
    """Weights of the last checkpoint and of best/, and the optimiser's state, by name."""
    newest = sorted((folder / "checkpoints").glob("[0-9]*"))[-1]
    weights = {f"{path.name} {name}": weight for path in (newest, folder / "best")
               for name, weight in load_file(path / "model.safetensors").items()}
    state = torch.load(newest / "optimiser.pt", weights_only=True)["optimiser"]["state"]
    return {**weights, **{f"{number} {key}": value for number, part in state.items() for key, value in part.items()}}


@pytest.mark.parametrize(("one", "other"), [("bert", "two"), ("llama", "two-llama"), ("bert", "more"), ("bert", "fewer")])
def test_shards_train_what_one_process_trains(runs, one, other):
    first, second = log_of(runs / f"one-{one}"), log_of(runs / other)
    assert [(line["kind"], line.get("step")) for line in first] == [(line["kind"], line.get("step")) for line in second]
    for line, same in zip(first, second, strict=True):
        if line["kind"] == "train":
            assert same["loss"] == pytest.approx(line["loss"], abs=2e-6)
            assert same["gradient_norm"] == pytest.approx(line["gradient_norm"], rel=1e-5)
            assert same["terms"] == pytest.approx(line["terms"], abs=2e-6)
        if line["kind"] == "dev":
            assert same["score"] == pytest.approx(line["score"], abs=1e-3)
    first, second = files(runs / f"one-{one}"), files(runs / other)
    assert first.keys() == second.keys()
    assert max(float((first[name] - second[name]).abs().max()) for name in first) < 1e-6


def test_shards_go_on_bit_for_bit_in_as_many_processes(runs):
    assert weights_of(runs / "again") == weights_of(runs / "two")
    assert log_of(runs / "again") == log_of(runs / "two")
    assert json.loads((runs / "two" / "train.json").read_text("utf-8"))["processes"] == 2


def test_bf16_rounds_what_it_rounds_without_shards(runs):
    exact, one, two = (next(line["loss"] for line in log_of(runs / name) if line["kind"] == "train")
                       for name in ("one-float32", "one-bf16", "two-bf16"))
    assert abs(two - one) < abs(one - exact) / 2
