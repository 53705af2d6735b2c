"""PromptBERT in two processes: the gradient of one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from method_oracle import MemoryRows
from promptbert_oracle import folders, plain, promptbert, triplets
from training_runs import one_thread
from two_processes import check_same_as_one, passes_of_two, shares_of

from stsbench.training.rows.batches import to_batch

__all__ = ["folders", "one_thread"]
SPLITS = [(3, 3), (4, 2)]
CHOSEN = [{}, {"head": "transform", "denoise_second_shift": "first"}, {"trained": "prompt", "head": "transform"},
          {"view": "given", "second_template": None, "denoise_gradient": False}]


def made(folder, options, split=None, rank=0):
    method = promptbert(folder, **options)
    rows = triplets("bert") if method.options.view == "given" else plain("bert")
    rows = {role: (texts * 2)[:6] for role, texts in rows.items()}
    views = method.views(MemoryRows(folder, rows), np.random.default_rng(0))
    return method, to_batch(views, shares_of(6, split, rank), method.backbone.tokenizer.pad_token_id, torch.device("cpu"))


@pytest.fixture(scope="module")
def both(folders, tmp_path_factory):
    return passes_of_two(tmp_path_factory.mktemp("shares"), made, folders["bert"], CHOSEN, SPLITS)


@pytest.mark.parametrize("number", range(len(CHOSEN)))
def test_two_processes_have_the_gradient_of_one(folders, both, number):
    check_same_as_one(both, number, *made(folders["bert"], CHOSEN[number]), rel=1e-10)


# --- a whole run ---
