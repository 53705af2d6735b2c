"""PromptBERT in two processes: the gradient of one, and a whole run."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from method_oracle import MemoryRows
from promptbert_oracle import folders, plain, promptbert, small_run, triplets
from training_runs import one_thread
from two_processes import both_find, same_gradients, second_pass, two_ranks_equal_one

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


def find(rank, folder):
    found = {}
    for split in SPLITS:
        for number, options in enumerate(CHOSEN):
            method = promptbert(folder, **options)
            found[split, number] = second_pass(method, batch_for(method, Shares(split, rank)), processes=2)
    return found


@pytest.fixture(scope="module")
def both(folders, tmp_path_factory):
    """[rank] -> what it found."""
    return both_find(tmp_path_factory.mktemp("shares"), find, folders["bert"])


@pytest.mark.parametrize("number", range(len(CHOSEN)))
def test_two_processes_have_the_gradient_of_one(folders, both, number):
    method = promptbert(folders["bert"], **CHOSEN[number])
    means, gradients = second_pass(method, batch_for(method, Shares((6,))))
    for split in SPLITS:
        for rank in range(2):
            theirs, found = both[rank][split, number]
            assert theirs == pytest.approx(means, rel=1e-10)
            same_gradients(found, gradients)


# --- a whole run ---


def test_two_ranks_equal_one(tmp_path):
    """The last batch has 5 rows: 3 and 2."""
    values = {**small_run(tmp_path), "options.temperature": 0.5, "training.epsilon": 1e-2}
    two_ranks_equal_one(tmp_path, values, "promptbert", tmp_path / "cache")
