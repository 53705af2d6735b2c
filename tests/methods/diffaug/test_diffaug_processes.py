"""DiffAug in two processes with uneven shares: each term and every gradient are those of one process."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from diffaug_oracle import build
from diffaug_small import NLI, TEXTS, Texts, diffaug
from torch import nn
from training_runs import one_thread, spawn

from stsbench.training.rows.batches import shares_of, to_batch

__all__ = ["one_thread"]
PLAIN = {"sentence": [TEXTS[i] for i in (4, 0, 2, 5, 7)]}  # 3 and 2
LABELLED = {role: texts[:3] for role, texts in NLI.items()}  # 2 and 1
CHOSEN = [{"stage": "joint", "aux_weight": 0.5}, {"stage": "prefix", "clip_frozen": True},
          {"stage": "joint", "aux_weight": 0.5, "module": "adapter", "rank": 3},
          {"stage": "prefix", "module": "lora", "rank": 3}, {"stage": "joint", "module": "lora", "rank": 3}]  # fmt: skip


def batch_for(method, processes, rank):
    def part(views, texts):
        rows = Texts(method.backbone.folder, texts)
        shares = shares_of(len(rows.rows), processes, rank)
        pad = method.backbone.tokenizer.pad_token_id
        return to_batch(views(rows, np.random.default_rng(0)), shares, pad, torch.device("cpu"))

    if method.stage == "prefix":
        batch = part(method.labelled_views, LABELLED)
        batch.labelled_only = True
        return batch
    batch = part(method.views, PLAIN)
    batch.labelled = part(method.labelled_views, LABELLED) if method.options.aux_weight else None
    return batch


def trained(folder, options, processes=1, rank=0):
    """The terms' values over all processes, and the gradients after the second of two passes."""
    torch.manual_seed(5)
    method = diffaug(folder, "bert", **options)
    wrapped = nn.parallel.DistributedDataParallel(method) if processes > 1 else method
    for _ in range(2):  # a parameter without a gradient would be noticed by the second pass
        method.zero_grad()
        terms = wrapped(batch_for(method, processes, rank))
        summed = torch.tensor([[term.value.item() * term.count, term.count] for term in terms.values()], dtype=torch.float64)
        if processes > 1:
            torch.distributed.all_reduce(summed)
        counts = summed[:, 1].tolist()  # the loop's scaling, before DDP's mean
        parts = [processes * term.count / count * term.weight * term.value
                 for term, count in zip(terms.values(), counts, strict=True)]  # fmt: skip
        sum(parts).backward()
    values = dict(zip(terms, (summed[:, 0] / summed[:, 1]).tolist(), strict=True))
    return values, {name: weight.grad for name, weight in method.named_parameters()}


def worker(rank, place, folder):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{place}/meet", rank=rank, world_size=2)
    torch.save([trained(folder, options, 2, rank) for options in CHOSEN], f"{place}/{rank}.pt")
    torch.distributed.destroy_process_group()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return build(tmp_path_factory.mktemp("diffaug") / "bert", "bert")


@pytest.fixture(scope="module")
def both(folder, tmp_path_factory):
    """[rank] -> what it found."""
    place = tmp_path_factory.mktemp("shares")
    spawn(worker, str(place), folder)
    return [torch.load(place / f"{rank}.pt", weights_only=False) for rank in range(2)]


@pytest.mark.parametrize("number", range(len(CHOSEN)))
def test_two_processes_have_the_gradient_of_one(folder, both, number):
    values, gradients = trained(folder, CHOSEN[number])
    both_terms = "aux_weight" in CHOSEN[number]
    assert set(values) == ({"contrastive", "nli"} if both_terms else {"nli" if number in (1, 3) else "contrastive"})
    assert sum(gradient is not None and bool(gradient.any()) for gradient in gradients.values()) > 1
    for found, theirs in (both[rank][number] for rank in range(2)):
        assert found == pytest.approx(values, rel=1e-10)
        for name, gradient in gradients.items():
            if gradient is None:
                assert theirs[name] is None, name
            else:
                assert (theirs[name] - gradient).abs().max() < 1e-12 + 1e-9 * gradient.abs().max(), name
