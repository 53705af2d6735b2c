"""NT-Xent against the double loop, in float64; over two processes one process's loss and gradient."""

from __future__ import annotations

import pytest
import torch
from info_nce_oracle import naive_nt_xent
from torch import nn
from torch.nn.functional import cross_entropy, normalize
from two_processes import both_find

from stsbench.losses.contrastive import nt_xent
from stsbench.training.api.batch import Shares
from stsbench.training.api.contrasting import contrast_views

SPLITS = [(3, 3), (4, 2), (1, 5), (3, 0)]


def vectors(count, width=4, seed=0):
    numbers = torch.Generator().manual_seed(seed)
    return [torch.randn(count, width, generator=numbers, dtype=torch.float64).requires_grad_() for _ in range(2)]


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("temperature", [0.05, 0.1, 1.0])
def test_loss_and_gradient_are_those_of_the_double_loop(count, temperature):
    views = vectors(count)
    found, want = nt_xent(*views, temperature=temperature), naive_nt_xent(*views, temperature).mean()
    assert abs(found - want) < 1e-12
    for ours, theirs in zip(torch.autograd.grad(found, views), torch.autograd.grad(want, views), strict=True):
        assert (ours - theirs).abs().max() < 1e-10


def test_the_released_code_has_twice_the_mean():
    first, second = (normalize(view) for view in vectors(6))
    mask, rows = torch.eye(6, dtype=torch.float64) * 1e9, torch.arange(6)
    both = (first, second), (second, first)
    sums = [cross_entropy(torch.cat([a @ b.T / 0.1, a @ a.T / 0.1 - mask], 1), rows) for a, b in both]
    assert abs(sum(sums) - 2 * nt_xent(first, second)) < 1e-12


def test_shares_of_a_batch_add_up_and_none_gives_zero_with_a_gradient():
    first, second = vectors(5)
    parts = [
        nt_xent(first[a:b], second[a:b], all_first=first, all_second=second, start=a) * (b - a) for a, b in ((0, 2), (2, 5))
    ]
    assert abs(sum(parts) / 5 - nt_xent(first, second)) < 1e-12
    nothing = nt_xent(first[:0], second[:0], all_first=first, all_second=second)
    assert nothing == 0 and nothing.requires_grad
    with pytest.raises(ValueError, match="do not fit"):
        nt_xent(first, second, all_first=first, all_second=second, start=1)


def test_bfloat16_vectors_are_compared_in_float32():
    first, second = (view.detach().bfloat16() for view in vectors(6))
    with torch.autocast("cpu", torch.bfloat16):
        found = nt_xent(first, second)
    assert found.dtype == torch.float32
    assert abs(found - naive_nt_xent(first.float(), second.float()).mean()) < 1e-5


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layers = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 4)).double()

    def forward(self, views):
        return self.layers(torch.stack(views)).unbind()


def find(rank):
    found = {}
    for split in SPLITS:
        shares = Shares(split, rank)
        own = [view.detach()[shares.start : shares.start + split[rank]] for view in vectors(sum(split))]
        for mode in ("exact", "simcse", "local"):
            encoder = nn.parallel.DistributedDataParallel(Encoder())
            term = contrast_views(*encoder(own), shares, mode)
            counts = torch.tensor([float(term.count), term.value.item() * term.count], dtype=torch.float64)
            torch.distributed.all_reduce(counts)
            (term.value * 2 * term.count / counts[0]).backward()  # the loop's scaling, before DDP's mean
            found[split, mode] = (counts[1] / counts[0]).item(), [weight.grad for weight in encoder.parameters()]
    return found


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    return both_find(tmp_path_factory.mktemp("nt_xent"), find)


def alone(views, weight=1.0):
    encoder = Encoder()
    loss = naive_nt_xent(*encoder(views)).mean()
    (weight * loss).backward()
    return loss.item(), [weight.grad for weight in encoder.parameters()]


@pytest.mark.parametrize("split", SPLITS, ids=str)
@pytest.mark.parametrize(("mode", "weight"), [("exact", 1.0), ("simcse", 0.5)])
def test_two_processes_have_the_loss_of_one(both, split, mode, weight):
    loss, gradient = alone([view.detach() for view in vectors(sum(split))], weight)
    for rank in range(2):
        value, found = both[rank][split, mode]
        assert value == pytest.approx(loss, abs=1e-12)
        assert all((ours - theirs).abs().max() < 1e-12 for ours, theirs in zip(found, gradient, strict=True))


def test_local_is_each_process_on_its_own(both):
    views = [view.detach() for view in vectors(6)]
    losses = [alone([view[part] for view in views])[0] for part in (slice(4), slice(4, 6))]
    assert both[0][(4, 2), "local"][0] == pytest.approx((4 * losses[0] + 2 * losses[1]) / 6, abs=1e-12)
