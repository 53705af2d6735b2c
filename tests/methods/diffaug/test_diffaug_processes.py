"""DiffAug in two processes with uneven shares: each term and every gradient are those of one process."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from diffaug_oracle import build
from diffaug_small import NLI, TEXTS, Texts, diffaug
from training_runs import one_thread
from two_processes import both_find, same_gradients, second_pass

from stsbench.training.rows.batches import shares_of, to_batch

__all__ = ["one_thread"]
PLAIN = {"sentence": [TEXTS[i] for i in (4, 0, 2, 5, 7)]}  # 3 and 2
LABELLED = {role: texts[:3] for role, texts in NLI.items()}  # 2 and 1
CHOSEN = [{"stage": "joint", "aux_weight": 0.5}, {"stage": "prefix", "clip_frozen": True},
          {"stage": "joint", "aux_weight": 0.5, "module": "adapter", "rank": 3},
          {"stage": "prefix", "module": "lora", "rank": 3}, {"stage": "joint", "module": "lora", "rank": 3}]


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
    return second_pass(method, batch_for(method, processes, rank), processes)


def find(rank, folder):
    return [trained(folder, options, 2, rank) for options in CHOSEN]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return build(tmp_path_factory.mktemp("diffaug") / "bert", "bert")


@pytest.fixture(scope="module")
def both(folder, tmp_path_factory):
    """[rank] -> what it found."""
    return both_find(tmp_path_factory.mktemp("shares"), find, folder)


@pytest.mark.parametrize("number", range(len(CHOSEN)))
def test_two_processes_have_the_gradient_of_one(folder, both, number):
    values, gradients = trained(folder, CHOSEN[number])
    both_terms = "aux_weight" in CHOSEN[number]
    assert set(values) == ({"contrastive", "nli"} if both_terms else {"nli" if number in (1, 3) else "contrastive"})
    assert sum(gradient is not None and bool(gradient.any()) for gradient in gradients.values()) > 1
    for found, theirs in (both[rank][number] for rank in range(2)):
        assert found == pytest.approx(values, rel=1e-10)
        same_gradients(theirs, gradients)
