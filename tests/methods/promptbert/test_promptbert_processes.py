"""PromptBERT in two processes: the gradient of one, and a whole run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from method_oracle import MemoryRows, total
from promptbert_oracle import folders, plain, promptbert, small_run, triplets
from safetensors.torch import load_file
from torch import nn
from training_runs import log_of, one_thread, spawn, train, train_ranks

from stsbench.training.api.batch import Shares
from stsbench.training.rows.batches import to_batch

__all__ = ["folders", "one_thread"]
SPLITS = [(3, 3), (4, 2)]
CHOSEN = [{}, {"head": "transform", "denoise_second_shift": "first"}, {"trained": "prompt", "head": "transform"},
          {"view": "given", "second_template": None, "denoise_gradient": False}]  # fmt: skip


def batch_for(method, shares):
    rows = triplets("bert") if method.options.view == "given" else plain("bert")
    rows = {role: (texts * 2)[:6] for role, texts in rows.items()}
    views = method.views(MemoryRows(method.backbone.folder, rows), np.random.default_rng(0))
    return to_batch(views, shares, method.backbone.tokenizer.pad_token_id, torch.device("cpu"))


def worker(rank, place, folder):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{place}/meet", rank=rank, world_size=2)
    found = {}
    for split in SPLITS:
        for number, options in enumerate(CHOSEN):
            method = promptbert(folder, **options)
            wrapped = nn.parallel.DistributedDataParallel(method)
            for _ in range(2):  # a parameter without a gradient would be noticed by the second pass
                method.zero_grad()
                term = wrapped(batch_for(method, Shares(split, rank)))["contrastive"]
                summed = torch.tensor([term.value.item() * term.count, float(term.count)], dtype=torch.float64)
                torch.distributed.all_reduce(summed)
                (2 * term.count / summed[1].item() * term.value).backward()  # the loop's scaling, before DDP's mean
            gradients = {name: weight.grad for name, weight in method.named_parameters()}
            found[split, number] = (summed[0] / summed[1]).item(), gradients
    torch.save(found, f"{place}/{rank}.pt")
    torch.distributed.destroy_process_group()


@pytest.fixture(scope="module")
def both(folders, tmp_path_factory):
    """[rank] -> what it found."""
    place = tmp_path_factory.mktemp("shares")
    spawn(worker, str(place), folders["bert"])
    return [torch.load(place / f"{rank}.pt", weights_only=False) for rank in range(2)]


@pytest.mark.parametrize("number", range(len(CHOSEN)))
def test_two_processes_have_the_gradient_of_one(folders, both, number):
    method = promptbert(folders["bert"], **CHOSEN[number])
    loss = total(method(batch_for(method, Shares((6,)))))
    loss.backward()
    for split in SPLITS:
        for rank in range(2):
            mean, gradients = both[rank][split, number]
            assert mean == pytest.approx(loss.item(), rel=1e-10)
            for name, weight in method.named_parameters():
                if weight.requires_grad:
                    assert (gradients[name] - weight.grad).abs().max() < 1e-12 + 1e-9 * weight.grad.abs().max(), name
                else:
                    assert gradients[name] is None and weight.grad is None


# --- a whole run ---


def test_two_ranks_equal_one(tmp_path):
    """Without dropout, of which each process has its own. The last batch has 5 rows: 3 and 2."""
    values, cache = small_run(tmp_path), tmp_path / "cache"
    values |= {"backbone.dropout": 0.0, "options.temperature": 0.5, "training.epsilon": 1e-2, "selection.by": "none"}
    assert train(tmp_path / "alone", values, method="promptbert", cache=cache) == (0, None)
    assert train_ranks(tmp_path / "both", values, method="promptbert", cache=cache) == [(0, None)] * 2
    for mine, theirs in zip(log_of(tmp_path / "alone"), log_of(tmp_path / "both"), strict=True):
        assert mine["kind"] == theirs["kind"]
        if mine["kind"] == "train":
            assert mine["loss"] == pytest.approx(theirs["loss"], abs=2e-5)
            assert mine["gradient_norm"] == pytest.approx(theirs["gradient_norm"], rel=2e-4)
    newest = [sorted((tmp_path / name / "checkpoints").glob("[0-9]*"))[-1] for name in ("alone", "both")]
    first, second = (load_file(path / "model.safetensors") for path in newest)
    start = load_file(Path(values["backbone.model"]) / "model.safetensors")
    moved = max(float((first[name.replace("bert.", "backbone.model.", 1)] - start[name]).abs().max())
                for name in start if name.startswith("bert."))  # fmt: skip
    apart = max(float((first[name] - second[name]).abs().max()) for name in first)
    assert apart < 2e-3 * moved, (apart, moved)
