"""DiffCSE in two processes: the gradient and the batch statistics of one, where training.gather is exact."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from diffcse_oracle import TEXTS, diffcse, masked_lm, small_run
from method_oracle import MemoryRows, total
from safetensors.torch import load_file
from torch import nn
from training_runs import log_of, one_thread, spawn, train, train_ranks

from stsbench.training.api.batch import Shares
from stsbench.training.rows.batches import to_batch

__all__ = ["one_thread"]
SPLITS = [(3, 3), (4, 2)]
CHOSEN = [{}, {"operators": ["replace", "insert", "delete"], "edit_ratio": 0.4}, {"task": "corrective_lm"},
          {"task": "conditional_mlm"}, {"rtd_mean": "attended", "contrastive": False}]  # fmt: skip


def prepared(folder, options, gather="exact"):
    method = diffcse(folder, **({} if options.get("task") == "conditional_mlm" else {"generator_mode": "eval"}), **options)
    method.gather_mode = gather
    return method


def batch_for(method, folder, shares):
    views = method.views(MemoryRows(folder, {"sentence": TEXTS[:6]}), np.random.default_rng(0))
    return to_batch(views, shares, method.backbone.tokenizer.pad_token_id, torch.device("cpu"))


def worker(rank, place, folder):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{place}/meet", rank=rank, world_size=2)
    found = {}
    for split in SPLITS:
        for number, options in enumerate(CHOSEN):
            for mode in ("exact", "local"):
                method = prepared(folder, options, mode)
                batch = batch_for(method, folder, Shares(split, rank))
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
                gradients = {name: weight.grad for name, weight in method.named_parameters()}
                statistics = {name: value.clone() for name, value in method.projector.named_buffers()}
                found[split, number, mode] = means, gradients, statistics
    torch.save(found, f"{place}/{rank}.pt")
    torch.distributed.destroy_process_group()


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """(folder of the model, [rank] -> what it found)."""
    place = tmp_path_factory.mktemp("shares")
    folder = masked_lm(place / "tiny", copies=True, num_hidden_layers=2)
    spawn(worker, str(place), folder)
    return folder, [torch.load(place / f"{rank}.pt", weights_only=False) for rank in range(2)]


@pytest.mark.parametrize("number", range(len(CHOSEN)))
def test_two_processes_have_the_gradient_and_the_statistics_of_one(both, number):
    folder, found = both
    method = prepared(folder, CHOSEN[number])
    batch = batch_for(method, folder, Shares((6,)))
    for _ in range(2):
        method.zero_grad()
        terms = method(batch)
        total(terms).backward()
    for split in SPLITS:
        for rank in range(2):
            means, gradients, statistics = found[rank][split, number, "exact"]
            assert means == pytest.approx({name: term.value.item() for name, term in terms.items()}, rel=1e-10)
            for name, weight in method.named_parameters():
                if weight.requires_grad:
                    assert (gradients[name] - weight.grad).abs().max() < 1e-12 + 1e-9 * weight.grad.abs().max(), name
                else:
                    assert gradients[name] is None
            for name, value in method.projector.named_buffers():
                assert torch.allclose(statistics[name], value, rtol=1e-12), name


@pytest.mark.parametrize("number", range(len(CHOSEN)))
def test_with_gather_local_each_process_has_its_own_statistics_and_two_are_not_one(both, number):
    folder, found = both
    for split in SPLITS:
        sums, counts = {}, {}
        for rank in range(2):
            method = prepared(folder, CHOSEN[number], "local")
            terms = method(batch_for(method, folder, Shares(split, rank)))
            for name, term in terms.items():
                sums[name] = sums.get(name, 0) + term.value.item() * term.count
                counts[name] = counts.get(name, 0) + term.count
        expected = {name: sums[name] / counts[name] for name in sums}
        for rank in range(2):
            assert found[rank][split, number, "local"][0] == pytest.approx(expected, rel=1e-10)
            exact = found[rank][split, number, "exact"][0]
            assert all(abs(exact[name] / value - 1) > 1e-6 for name, value in expected.items())
        alone = [found[rank][split, number, "local"][2]["outer_norm.running_mean"] for rank in range(2)]
        assert not torch.allclose(*alone)


# --- a whole run ---


def test_two_ranks_equal_one(tmp_path):
    """Without dropout, of which each process has its own. The last batch has 5 rows: 3 and 2."""
    cache = tmp_path / "cache"
    values = {**small_run(tmp_path), "backbone.dropout": 0.0, "options.generator_mode": "eval", "options.rtd_weight": 0.5,
              "options.temperature": 0.5, "training.epsilon": 1e-3, "selection.by": "none"}  # fmt: skip
    assert train(tmp_path / "alone", values, method="diffcse", cache=cache) == (0, None)
    assert train_ranks(tmp_path / "both", values, method="diffcse", cache=cache) == [(0, None)] * 2
    for mine, theirs in zip(log_of(tmp_path / "alone"), log_of(tmp_path / "both"), strict=True):
        assert mine["kind"] == theirs["kind"]
        if mine["kind"] == "train":
            assert mine["loss"] == pytest.approx(theirs["loss"], abs=2e-5)
            assert mine["gradient_norm"] == pytest.approx(theirs["gradient_norm"], rel=2e-4)
            assert mine["terms"] == pytest.approx(theirs["terms"], abs=2e-5)
    newest = [sorted((tmp_path / name / "checkpoints").glob("[0-9]*"))[-1] for name in ("alone", "both")]
    first, second = (load_file(path / "model.safetensors") for path in newest)
    start = load_file(Path(values["backbone.model"]) / "model.safetensors")
    moved = max(float((first[name.replace("bert.", "backbone.model.", 1)] - start[name]).abs().max())
                for name in start if name.startswith("bert."))  # fmt: skip
    statistics = {name for name in first if "running_" in name}
    assert len(statistics) == 4
    for name in statistics:
        assert torch.allclose(first[name], second[name], rtol=1e-4, atol=1e-5), name
    weights = first.keys() - statistics - {"auxiliary.found"}  # each process counts its own tokens
    apart = max(float((first[name] - second[name]).abs().max()) for name in weights)
    assert apart < 2e-3 * moved, (apart, moved)
