"""DiffCSE in whole runs: SimCSE inside it, exported, and refused in one line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tiny_models
import torch
from clirun import cli, fails
from clirun import place as workplace
from diffcse_oracle import masked_lm, small_run
from safetensors.torch import load_file
from training_runs import log_of, one_thread, train, undisturbed, weights_of
from transformers import AutoModel, AutoTokenizer

import stsbench
from stsbench.encoders.load import load_encoder

__all__ = ["cli", "one_thread", "workplace"]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """(folder of all runs, values of a small run with a generator of its own, the cache). Dropout is on."""
    place = tmp_path_factory.mktemp("runs")
    return place, small_run(place), place / "cache"


@pytest.fixture(scope="module")
def whole(models):
    """A run nobody disturbed: 7 steps, the last of 5 rows."""
    place, values, _ = models
    return undisturbed(place, values, "diffcse")[0]


def test_another_generator_is_not_resumed_with(models, tmp_path):
    place, values, cache = models
    assert train(tmp_path / "run", values, method="diffcse", kill=("step", 5), cache=cache) == (-9, None)
    generator = masked_lm(place / "changed", seed=13, hidden_size=24, num_hidden_layers=1)
    path = Path(values["options.generator"]) / "model.safetensors"
    before = path.read_bytes()
    try:
        path.write_bytes((generator / "model.safetensors").read_bytes())
        code, said = train(tmp_path / "run", values, method="diffcse", resume=True, cache=cache)
    finally:
        path.write_bytes(before)
    assert code == 1 and said.startswith("--resume: the generator is not what ") and "\n" not in said


def test_the_log(whole):
    names = {name.split(" ")[1] for name in weights_of(whole)}  # what a resumed run goes on with
    assert names >= {"projector.outer_norm.running_var", "projector.inner_norm.num_batches_tracked", "auxiliary.found"}
    lines = [line for line in log_of(whole) if line["kind"] == "train"]
    assert [line["step"] for line in lines] == [3, 4, 6, 7]
    for line in lines:
        assert line["loss"] == pytest.approx(line["terms"]["contrastive"] + 0.005 * line["terms"]["rtd"], rel=1e-5)
        replaced, share = line["replaced_accuracy"], line["replaced_share"]
        assert 0 < share < 1
        assert line["detection_accuracy"] == pytest.approx(replaced * share + line["original_accuracy"] * (1 - share))


def test_the_export_holds_only_the_encoder_and_every_reader_gives_its_vectors(models, whole):
    best = whole / "best"
    exported, start = (load_file(path / "model.safetensors") for path in (best, Path(models[1]["backbone.model"])))
    assert {f"bert.{name}" for name in exported} == {name for name in start if name.startswith("bert.")}
    assert {path.name for path in best.iterdir() if path.is_dir()} == {"1_Pooling"}
    model, tok = AutoModel.from_pretrained(best, add_pooling_layer=False).eval(), AutoTokenizer.from_pretrained(best)
    texts = tiny_models.sentences(9, longest=7, seed=4)
    with torch.no_grad():
        vectors = [model(**tok(text, return_tensors="pt")).last_hidden_state[0, 0].numpy() for text in texts]
    assert np.allclose(load_encoder(str(best)).encode(texts), vectors, rtol=0, atol=2e-6)
    library = pytest.importorskip("sentence_transformers").SentenceTransformer
    again = library(str(best), device="cpu", local_files_only=True).encode(texts)
    assert np.allclose(again, vectors, rtol=0, atol=2e-6)


@pytest.fixture
def own_cache(models, monkeypatch):
    monkeypatch.setenv("STSBENCH_CACHE", str(models[2]))


def test_without_detection_and_with_tanh_it_is_simcse_bit_for_bit(models, own_cache, tmp_path):
    _, values, _ = models
    values = {key: value for key, value in values.items() if not key.startswith("options.")}
    found = {}
    for method, recipe in (("diffcse", "simcse"), ("simcse", "unsup-bert-base")):
        stsbench.train(method, recipe=recipe, output=tmp_path / method, settings=values, sample=True, device="cpu")
        found[method] = weights_of(tmp_path / method)
        found[method] = {name.replace(" projector.", " head."): value for name, value in found[method].items()}
    assert found["diffcse"] == found["simcse"]
    assert log_of(tmp_path / "diffcse") == log_of(tmp_path / "simcse")


def test_a_text_cnn_on_top(models, own_cache, tmp_path):
    _, values, _ = models
    cnn = {"kernels": [2, 3], "channels": 6}
    values = {**values, "backbone.text_cnn": cnn, "selection.by": "none", "training.max_steps": 10}
    stsbench.train("diffcse", recipe="bert-base-sts-text-cnn", output=tmp_path / "run", settings=values, device="cpu")
    texts, best = tiny_models.sentences(9, longest=7, seed=4), str(tmp_path / "run" / "best")
    weights = load_file(sorted((tmp_path / "run" / "checkpoints").glob("[0-9]*"))[-1] / "model.safetensors")
    vectors = load_encoder(best).encode(texts)
    assert weights["projector.inner.weight"].shape == (2 * vectors.shape[1], vectors.shape[1])
    assert weights["projector.outer.weight"].shape == (32, 2 * vectors.shape[1])  # what the discriminator reads
    kept = load_file(Path(best) / "1_TextCNN" / "model.safetensors")
    assert kept and all(torch.equal(value, weights[f"backbone.head.{name}"]) for name, value in kept.items())
    library = pytest.importorskip("sentence_transformers").SentenceTransformer
    again = library(best, device="cpu", local_files_only=True, trust_remote_code=True).encode(texts)
    assert np.allclose(again, vectors, rtol=0, atol=1e-6 * np.abs(vectors).max())


# --- refusals ---


@pytest.mark.parametrize(("kind", "said"), [
    ("other vocabulary", "must share the vocabulary"), ("no head", "stores no masked-LM head"),
    ("nothing", "options.generator"),
])
def test_a_generator_that_does_not_fit(models, cli, tmp_path, kind, said):
    _, values, _ = models
    folder = tmp_path / "other"
    if kind == "other vocabulary":
        masked_lm(folder, "roberta", num_hidden_layers=1)
    elif kind == "no head":
        tiny_models.build(folder, pooler=False)
    more = ("--set", f"options.generator={folder}", "--dtype", "float32", "--device", "cpu", "--sample")
    line = fails(cli("train", "diffcse", "--backbone", values["backbone.model"], "--data", values["data.file"],
                     "--output", "out", *more), said, str(folder))
    assert not Path("out").exists(), line
