"""DiffCSE in two processes: the gradient and the batch statistics of one, where training.gather is exact."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from diffcse_oracle import TEXTS, diffcse, masked_lm
from method_oracle import MemoryRows
from training_runs import one_thread
from two_processes import both_find, same_gradients, second_pass

from stsbench.training.api.batch import Shares
from stsbench.training.rows.batches import to_batch

__all__ = ["one_thread"]
SPLITS = [(3, 3), (4, 2)]
CHOSEN = [{}, {"operators": ["replace", "insert", "delete"], "edit_ratio": 0.4}, {"task": "corrective_lm"},
          {"task": "conditional_mlm"}, {"rtd_mean": "attended", "contrastive": False}]


def prepared(folder, options, gather="exact"):
    method = diffcse(folder, **({} if options.get("task") == "conditional_mlm" else {"generator_mode": "eval"}), **options)
    method.gather_mode = gather
    return method


def batch_for(method, folder, shares):
    views = method.views(MemoryRows(folder, {"sentence": TEXTS[:6]}), np.random.default_rng(0))
    return to_batch(views, shares, method.backbone.tokenizer.pad_token_id, torch.device("cpu"))


def find(rank, folder):
    found = {}
    for split in SPLITS:
        for number, options in enumerate(CHOSEN):
            for mode in ("exact", "local"):
                method = prepared(folder, options, mode)
                means, gradients = second_pass(method, batch_for(method, folder, Shares(split, rank)), processes=2)
                statistics = {name: value.clone() for name, value in method.projector.named_buffers()}
                found[split, number, mode] = means, gradients, statistics
    return found


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """(folder of the model, [rank] -> what it found)."""
    place = tmp_path_factory.mktemp("shares")
    folder = masked_lm(place / "tiny", copies=True, num_hidden_layers=2)
    return folder, both_find(place, find, folder)


@pytest.mark.parametrize("number", range(len(CHOSEN)))
def test_two_processes_have_the_gradient_and_the_statistics_of_one(both, number):
    folder, found = both
    method = prepared(folder, CHOSEN[number])
    means, gradients = second_pass(method, batch_for(method, folder, Shares((6,))))
    for split in SPLITS:
        for rank in range(2):
            theirs, found_gradients, statistics = found[rank][split, number, "exact"]
            assert theirs == pytest.approx(means, rel=1e-10)
            same_gradients(found_gradients, gradients)
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
