"""Two processes against one: the gradient of each way of gathering, for even and uneven shares, through DDP."""

from __future__ import annotations

import itertools

import pytest
import torch
from info_nce_oracle import naive_info_nce
from torch import nn
from two_processes import both_find

from stsbench.training.api.batch import Shares, gather
from stsbench.training.api.contrasting import contrast

SPLITS = [(3, 3), (4, 2), (1, 5), (3, 0)]
MODES = ["exact", "simcse", "local"]
OPTIONS = [{}, {"alpha": 2.0, "temperature": 0.2}, {"similarity": "dot"}]


class Encoder(nn.Module):
    """Views of five numbers a row -> their vectors, all in one pass."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layers = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 4)).double()

    def forward(self, views):
        return self.layers(torch.stack(views)).unbind()


def views_of(total):
    generator = torch.Generator().manual_seed(total)
    return [torch.randn(total, 5, generator=generator, dtype=torch.float64) for _ in range(3)]


def find(rank):
    results = {}
    for split in SPLITS:
        shares = Shares(split, rank)
        own = [view[shares.start : shares.start + split[rank]] for view in views_of(sum(split))]
        for mode, (number, options) in itertools.product(MODES, enumerate(OPTIONS)):
            encoder = nn.parallel.DistributedDataParallel(Encoder())
            queries, keys, hard = encoder(own)
            term = contrast(queries, keys, [hard], shares, mode, **options)
            counts = torch.tensor([float(term.count), term.value.item() * term.count], dtype=torch.float64)
            torch.distributed.all_reduce(counts)
            (term.value * 2 * term.count / counts[0]).backward()  # the loop's scaling, before DDP's mean
            results[split, mode, number] = (counts[1] / counts[0]).item(), [p.grad.clone() for p in encoder.parameters()]
        results[split] = [gather(own[0], shares, mode) for mode in MODES]
    with pytest.raises(ValueError, match="a batch split over 3 processes, but there are 2"):
        gather(own[0], Shares((len(own[0]),) * 3, rank))
    return results


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    return both_find(tmp_path_factory.mktemp("gather"), find)


def alone(rows, options, weight=1.0):
    """(loss, gradient) over `rows` in one process, by the double loop; the gradient times `weight`."""
    encoder = Encoder()
    queries, keys, hard = encoder(rows)
    loss = naive_info_nce(queries, keys, negatives=[hard], **options).mean()
    loss.backward()
    return loss.item(), [weight * p.grad for p in encoder.parameters()]


def expected(split, mode, options):
    """exact: that of one process; simcse: its loss, and half of its gradient, as the authors' gather has it; local: each
    process on its own."""
    rows = views_of(sum(split))
    if mode != "local":
        return alone(rows, options, 0.5 if mode == "simcse" else 1.0)
    shares = [view.split([size for size in split if size]) for view in rows]
    parts = [(len(own[0]) / sum(split), own) for own in zip(*shares, strict=True)]
    losses, gradients = zip(*(alone(list(own), options, weight) for weight, own in parts), strict=True)
    loss = sum(weight * value for (weight, _), value in zip(parts, losses, strict=True))
    return loss, [sum(each) for each in zip(*gradients, strict=True)]


def assert_same(gradients, others, tolerance=1e-12):
    for ours, theirs in zip(gradients, others, strict=True):
        assert (ours - theirs).abs().max() < tolerance


@pytest.mark.parametrize("number", range(len(OPTIONS)))
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("split", SPLITS, ids=str)
def test_two_processes_have_the_loss_and_gradient_that_the_mode_promises(both, split, mode, number):
    loss, gradient = expected(split, mode, OPTIONS[number])
    assert max(part.abs().max() for part in gradient) > 1e-3
    for rank in range(2):
        value, theirs = both[rank][split, mode, number]
        assert value == pytest.approx(loss, abs=1e-12)
        assert_same(theirs, gradient)


@pytest.mark.parametrize("split", SPLITS, ids=str)
def test_rows_come_in_the_order_of_the_ranks(both, split):
    rows = views_of(sum(split))[0]
    for rank, part in enumerate((slice(split[0]), slice(split[0], None))):
        exact, simcse, local = both[rank][split]
        assert torch.equal(exact, rows) and torch.equal(simcse, rows) and torch.equal(local, rows[part])


@pytest.mark.parametrize("mode", MODES)
def test_a_single_process_gathers_nothing(mode):
    rows = views_of(4)
    assert gather(rows[0], Shares((4,)), mode) is rows[0]
    for options in OPTIONS:
        loss, gradient = alone(rows, options)
        encoder = Encoder()
        queries, keys, hard = encoder(rows)
        term = contrast(queries, keys, [hard], Shares((4,)), mode, **options)
        assert (term.count, term.weight) == (4, 1.0) and term.value.item() == pytest.approx(loss, abs=1e-12)
        term.value.backward()
        assert_same([p.grad for p in encoder.parameters()], gradient)


@pytest.mark.parametrize(("shares", "mode"), [(Shares((4,)), "exact"), (Shares((3,)), "excat")])
def test_what_does_not_line_up_is_a_value_error(shares, mode):
    with pytest.raises(ValueError, match=r"share of 4|there are exact, simcse, local"):
        gather(torch.zeros(3, 2), shares, mode)
