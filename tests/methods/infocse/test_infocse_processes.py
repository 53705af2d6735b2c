"""InfoCSE in two processes and by several forward passes: whose statistics batch normalisation has, and what is weighted."""

import numpy as np
import promptbert_oracle
import pytest
import torch
from infocse_oracle import TEXTS, infocse
from method_oracle import MemoryRows
from training_runs import one_thread
from two_processes import both_find, same_gradients, second_pass, shares_of

from stsbench.training.rows.batches import to_batch

__all__ = ["one_thread"]
N, SPLITS = 6, [(3, 3), (4, 2)]
CHOSEN = [{}, {"projector": "tanh", "temperature": 0.3}]


def made(folder, number, mode, split=None, rank=0):
    method = infocse(folder, **CHOSEN[number])
    method.gather_mode = mode
    views = method.views(MemoryRows(folder, {"sentence": TEXTS[:N]}), np.random.default_rng(0))
    pad = method.backbone.tokenizer.pad_token_id
    return method, to_batch(views, shares_of(N, split, rank), pad, torch.device("cpu"))


def find(rank, folder):
    by_case = {}
    for split in SPLITS:
        for number in range(len(CHOSEN)):
            for mode in ("exact", "simcse", "local"):
                method, batch = made(folder, number, mode, split, rank)
                means, gradients = second_pass(method, batch, processes=2)
                statistics = {name: value.clone() for name, value in method.projector.named_buffers()}
                vectors = method.vectors(batch.ids, batch.mask).detach()
                by_case[split, number, mode] = means, gradients, statistics, vectors
    return by_case


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """(folder of the model, [rank] -> what it computed)."""
    place = tmp_path_factory.mktemp("shares")
    folder = promptbert_oracle.build(place / "tiny", "bert")
    return folder, both_find(place, find, folder)


@pytest.mark.parametrize("number", range(len(CHOSEN)))
def test_two_processes_have_the_gradient_and_the_statistics_of_one(both, number):
    folder, computed = both
    method, batch = made(folder, number, "exact")
    means, gradients = second_pass(method, batch)
    for split in SPLITS:
        for rank in range(2):
            theirs, their_gradients, statistics, _ = computed[rank][split, number, "exact"]
            assert theirs == pytest.approx(means, rel=1e-10)
            same_gradients(their_gradients, gradients)
            for name, value in method.projector.named_buffers():
                assert torch.allclose(statistics[name], value, rtol=1e-12), name


def test_the_vectors_of_two_processes_are_those_of_one(both):
    folder, computed = both
    method, batch = made(folder, 0, "exact")
    first, second = method.vectors(batch.ids, batch.mask).detach().split(N)
    for split in SPLITS:
        parts = [computed[rank][split, 0, "exact"][3].split(split[rank]) for rank in range(2)]
        for view, expected in enumerate((first, second)):
            assert torch.allclose(torch.cat([part[view] for part in parts]), expected, atol=1e-10)


@pytest.mark.parametrize("mode", ["simcse", "local"])
def test_otherwise_each_process_has_its_own_statistics_as_released(both, mode):
    """The reconstruction, which reads the vectors before the projector, is the same in every mode."""
    _, computed = both
    for split in SPLITS:
        running = [computed[rank][split, 0, mode][2]["outer_norm.running_mean"] for rank in range(2)]
        assert not torch.allclose(*running)
        for rank in range(2):
            theirs, exact = computed[rank][split, 0, mode][0], computed[rank][split, 0, "exact"][0]
            assert abs(theirs["contrastive"] / exact["contrastive"] - 1) > 1e-6
            assert theirs["mlm"] == pytest.approx(exact["mlm"], rel=1e-10)


def test_each_forward_pass_of_an_accumulated_step_has_statistics_of_its_own(both):
    """As in the released code: a step's passes are normalised apart, so it is not a step on one large batch."""
    folder, _ = both
    method, whole = made(folder, 0, "exact")
    raw = method.backbone.pooled(whole.ids, whole.mask).detach()
    halves = [[row for view in range(2) for row in range(view * N + start, view * N + start + 3)] for start in (0, 3)]
    together = method.projector(raw)
    for half in halves:
        apart = method.projector(raw[half])
        mean = apart.mean(0)
        assert mean.abs().max() < 1e-10 and not torch.allclose(apart, together[half])
