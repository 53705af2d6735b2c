"""SARCSE in whole runs: killed and resumed, in two processes, exported; and its gradient over uneven shares."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tiny_models
import torch
import training_runs
from method_oracle import MemoryRows, total
from safetensors.torch import load_file
from sarcse_oracle import PLAIN, sarcse
from torch import nn
from training_runs import log_of, train, train_ranks, weights_of

from stsbench.training.api.batch import Shares
from stsbench.training.rows.batches import to_batch

SPLITS = [(3, 3), (5, 1), (2, 4)]
CHOSEN = [{"beta": 0.3, "gamma": 0.7}, {"unpool": "repeat+position", "transposed_fusion": "separate", "beta": 1.0},
          {"beta": 0.0, "gamma": 0.0}]  # fmt: skip


# --- the gradient of two processes ---


def batch_for(folder, shares):
    method = sarcse(folder)
    views = method.views(MemoryRows(folder, PLAIN), np.random.default_rng(0))
    return to_batch(views, shares, method.backbone.tokenizer.pad_token_id, torch.device("cpu"))


def worker(rank, place, folder):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{place}/meet", rank=rank, world_size=2)
    found = {}
    for split in SPLITS:
        batch = batch_for(folder, Shares(split, rank))
        for number, options in enumerate(CHOSEN):
            method = sarcse(folder, **options)
            wrapped = nn.parallel.DistributedDataParallel(method)
            for _ in range(2):  # a parameter without a gradient would be noticed by the second pass
                method.zero_grad()
                terms = wrapped(batch)
                values = {name: [term.value.item() * term.count, float(term.count)] for name, term in terms.items()}
                summed = torch.tensor(list(values.values()), dtype=torch.float64)
                torch.distributed.all_reduce(summed)
                loss = sum(2 * term.count / count * term.weight * term.value  # the loop's scaling, before DDP's mean
                           for term, count in zip(terms.values(), summed[:, 1].tolist(), strict=True))  # fmt: skip
                loss.backward()
            means = dict(zip(terms, (summed[:, 0] / summed[:, 1]).tolist(), strict=True))
            found[split, number] = means, {name: weight.grad for name, weight in method.named_parameters()}
    torch.save(found, f"{place}/{rank}.pt")
    torch.distributed.destroy_process_group()


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """(folder of the model, [rank] -> what it found)."""
    place = tmp_path_factory.mktemp("shares")
    folder = tiny_models.build(place / "tiny", "roberta", pooler=False)
    training_runs.spawn(worker, str(place), folder)
    return folder, [torch.load(place / f"{rank}.pt", weights_only=False) for rank in range(2)]


@pytest.mark.parametrize("number", range(len(CHOSEN)))
def test_two_processes_have_the_gradient_of_one(both, number):
    folder, found = both
    method = sarcse(folder, **CHOSEN[number])
    terms = method(batch_for(folder, Shares((6,))))
    total(terms).backward()
    for split in SPLITS:
        for rank in range(2):
            means, gradients = found[rank][split, number]
            assert means == pytest.approx({name: term.value.item() for name, term in terms.items()}, rel=1e-12)
            for name, weight in method.named_parameters():
                assert (gradients[name] - weight.grad).abs().max() < 1e-12 + 1e-10 * weight.grad.abs().max(), name


# --- whole runs ---


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """(a run nobody disturbed, the values it was trained with, the cache). The last batch has 5 rows."""
    place = tmp_path_factory.mktemp("runs")
    model = tiny_models.build(place / "tiny", pooler=False)
    values = training_runs.settings(
        model, training_runs.make_text(place, 65),
        **{"backbone.text_cnn": {"kernels": [2, 3], "channels": 6}, "training.epochs": 1, "training.epsilon": 1e-2,
           "options.beta": 0.05, "options.gamma": 0.1, "options.head_rate": 2.0},
    )  # fmt: skip
    assert train(place / "whole", values, method="sarcse") == (0, None)
    return place / "whole", values, place / "cache"


def test_the_log(whole):
    lines = [line for line in log_of(whole[0]) if line["kind"] == "train"]
    terms = ["contrastive", "reconstruction", "reconstruction_positive"]
    assert lines and all(sorted(line["terms"]) == terms for line in lines)
    for line in lines:
        assert line["reconstruction_error"] > 0 and 0.1 <= line["token_weight"] <= 1
        named = line["terms"]
        expected = named["contrastive"] + 0.05 * named["reconstruction"] + 0.1 * named["reconstruction_positive"]
        assert line["loss"] == pytest.approx(expected, rel=1e-5)
    counts = list((whole[2] / "training" / "counts").iterdir())
    assert len(counts) == 1
    weights = weights_of(whole[0])
    stored = np.frombuffer(weights[next(name for name in weights if name.endswith(" weights"))], np.float32)
    found = np.frombuffer(counts[0].read_bytes()[32:], np.int64)
    assert stored.tolist() == pytest.approx(np.maximum(0.1, 1 - 50 * found / found.sum()).tolist(), abs=1e-6)


def test_killed_and_resumed_is_the_same_run(whole, tmp_path):
    folder, values, cache = whole
    assert train(tmp_path / "run", values, method="sarcse", kill=("step", 6), cache=cache) == (-9, None)
    assert train(tmp_path / "run", values, method="sarcse", resume=True, cache=cache) == (0, None)
    assert weights_of(tmp_path / "run") == weights_of(folder) and log_of(tmp_path / "run") == log_of(folder)


def test_two_ranks_equal_one(whole, tmp_path):
    folder, values, cache = tmp_path / "alone", dict(whole[1]), whole[2]
    values |= {"backbone.dropout": 0.0, "training.max_steps": 4, "selection.by": "none"}
    assert train(folder, values, method="sarcse", cache=cache) == (0, None)
    assert train_ranks(tmp_path / "both", values, method="sarcse", cache=cache) == [(0, None)] * 2
    for mine, theirs in zip(log_of(folder), log_of(tmp_path / "both"), strict=True):
        assert mine["kind"] == theirs["kind"]
        if mine["kind"] == "train":
            assert mine["loss"] == pytest.approx(theirs["loss"], abs=2e-5)
            assert mine["gradient_norm"] == pytest.approx(theirs["gradient_norm"], rel=2e-4)
            assert mine["terms"] == pytest.approx(theirs["terms"], abs=2e-5)
    newest = [sorted((place / "checkpoints").glob("[0-9]*"))[-1] for place in (folder, tmp_path / "both")]
    first, second = (load_file(path / "model.safetensors") for path in newest)
    trained = [name for name in first if name not in ("sums", "tokens")]  # each process counts its own tokens
    start = load_file(Path(values["backbone.model"]) / "model.safetensors")
    moved = max(float((first[f"backbone.model.{name}"] - start[name]).abs().max()) for name in start)
    apart = max(float((first[name] - second[name]).abs().max()) for name in trained)
    assert apart < 2e-3 * moved, (apart, moved)


def test_the_export_is_a_sentence_transformers_model(whole):
    from sentence_transformers import SentenceTransformer

    from stsbench.encoders.load import load_encoder

    texts = [*tiny_models.sentences(9, longest=9, seed=4), "cat", ""]
    ours = load_encoder(str(whole[0] / "best")).encode(texts)
    theirs = SentenceTransformer(str(whole[0] / "best"), device="cpu", trust_remote_code=True).encode(texts)
    assert ours.shape == theirs.shape == (11, 3 * 5)
    assert np.abs(ours - theirs).max() < 1e-6
