"""PromptBERT in whole runs: learned words resumed, with two seeds, exported and tested, refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from clirun import cli, evaluate, record
from clirun import place as workplace
from promptbert_oracle import FIRST, small_run
from safetensors.torch import load_file
from training_runs import log_of, one_thread, train, undisturbed, weights_of

from stsbench.encoders.load import load_encoder
from stsbench.training.engine.selection import live_encoder
from stsbench.training.runs.finish import load_trained

__all__ = ["cli", "evaluate", "one_thread", "workplace"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """(a run nobody disturbed, the values it was trained with, the cache)."""
    place = tmp_path_factory.mktemp("runs")
    values = small_run(place)
    return undisturbed(place, values, "promptbert")


def test_learned_words_are_resumed_and_exported(whole, tmp_path):
    _, values, cache = whole
    values = {**values, "options.trained": "prompt", "options.second_template": None, "options.head": "transform",
              "options.test_denoise": True, "training.learning_rate": 1e-2}
    assert train(tmp_path / "whole", values, method="promptbert", cache=cache) == (0, None)
    assert train(tmp_path / "run", values, method="promptbert", kill=("checkpoint", 2), cache=cache) == (-9, None)
    assert train(tmp_path / "run", values, method="promptbert", resume=True, cache=cache) == (0, None)
    assert weights_of(tmp_path / "run") == weights_of(tmp_path / "whole")
    start = load_file(Path(values["backbone.model"]) / "model.safetensors")
    newest = sorted((tmp_path / "run" / "checkpoints").glob("[0-9]*"))[-1]
    kept = load_file(newest / "model.safetensors")
    encoder = {name: value for name, value in start.items() if name.startswith("bert.")}
    assert encoder and all(torch.equal(kept[name.replace("bert.", "backbone.model.", 1)], encoder[name]) for name in encoder)
    method = load_trained(tmp_path / "run")
    first = torch.stack([start["bert.embeddings.word_embeddings.weight"][token] for token in method.first.word_ids])
    assert (method.words - first).abs().max() > 1e-2
    same(tmp_path / "run")


def same(folder):
    """What RUN/best gives, named as the run or as the folder, is what the kept weights give."""
    texts = ["", "cat", "the man runs .", "a [MASK] dog with a guitar", "blue " * 30]
    vectors = live_encoder(load_trained(folder, device="cpu").inference(), "live").encode(texts)
    for name in (folder, folder / "best"):
        assert np.abs(load_encoder(str(name)).encode(texts) - vectors).max() < 1e-6


@pytest.mark.parametrize("more", [{}, {"options.head": "mlp", "options.test_denoise": True}], ids=["published", "kept"])
def test_exported_loaded_and_tested(whole, tmp_path, more):
    folder, values, cache = whole
    if more:
        folder = tmp_path / "run"
        values = {**values, **more, "training.max_steps": 4}
        assert train(folder, values, method="promptbert", cache=cache, evaluate=["sts"]) == (0, None)
    same(folder)
    summary = json.loads((folder / "train.json").read_text("utf-8"))
    assert summary["method"] == "promptbert" and summary["best"]["score"] == max(
        line["score"] for line in log_of(folder) if line["kind"] == "dev" and line["step"] % 4 == 0 and line["step"]
    )


def test_eval_of_a_run_names_template_and_full_stop(whole, evaluate):
    code, out, err = evaluate(whole[0])
    assert code == 0, err
    assert FIRST["bert"] in out + err and "full stop added" in out + err
    encoder = record()["encoder"]["spec"]
    assert encoder["template"] == FIRST["bert"] and encoder["pooler"] == "mask"
    assert encoder["options"]["prompt"]["full_stop"] and not encoder["options"]["prompt"]["denoise"]


def test_two_seeds_are_reported(whole, tmp_path):
    _, values, cache = whole
    values = {**values, "training.max_steps": 4}
    assert train(tmp_path / "seeds", values, method="promptbert", seeds=2, cache=cache) == (0, None)
    found = json.loads((tmp_path / "seeds" / "seeds.json").read_text("utf-8"))
    runs = [json.loads((tmp_path / "seeds" / f"seed-{seed}" / "train.json").read_text("utf-8")) for seed in (42, 43)]
    assert found["seeds"] == [42, 43] and runs[0]["before"] != runs[0]["after"]
    first, second = (weights_of(tmp_path / "seeds" / f"seed-{seed}") for seed in (42, 43))
    assert any(first[name] != second[name] for name in first)


@pytest.mark.parametrize(("more", "message"), [
    ({"backbone.pooler": "cls"}, "promptbert trains the pooler mask, not cls: set backbone.pooler mask"),
    ({"options.second_template": None, "options.denoise_second_shift": "first"}, "without a second template"),
    ({"options.template": "a {}"}, "options.template"),
    ({"backbone.max_length": 64}, "--set backbone.max_length="),
])
def test_what_a_user_can_put_right(whole, tmp_path, more, message):
    _, values, cache = whole
    code, said = train(tmp_path / "run", {**values, **more}, method="promptbert", cache=cache)
    assert code == 1 and message in said and "\n" not in said
    assert not (tmp_path / "run" / "train.json").exists()
