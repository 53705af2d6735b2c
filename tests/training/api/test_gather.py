"""Two processes against one: the gradient of each way of gathering, for even and uneven shares, through DDP."""

from __future__ import annotations

import pytest
import torch
from info_nce_oracle import naive_info_nce
from torch import nn
from training_runs import leave, spawn

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


def alone(rows, options, weight=1.0):
    """(loss, gradient) over `rows` in one process, by the double loop."""
    encoder = Encoder()
    queries, keys, hard = encoder(rows)
    loss = naive_info_nce(queries, keys, negatives=[hard], **options).mean()
    loss.backward()
    return loss.item(), [weight * p.grad for p in encoder.parameters()]


def worker(rank, folder):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    found = {}
    for split in SPLITS:
        shares = Shares(split, rank)
        own = [view[shares.start : shares.start + split[rank]] for view in views_of(sum(split))]
        for mode in MODES:
            for number, options in enumerate(OPTIONS):
                encoder = nn.parallel.DistributedDataParallel(Encoder())
                queries, keys, hard = encoder(own)
                term = contrast(queries, keys, [hard], shares, mode, **options)
                counts = torch.tensor([float(term.count), term.value.item() * term.count], dtype=torch.float64)
                torch.distributed.all_reduce(counts)
                (term.value * 2 * term.count / counts[0]).backward()  # the loop's scaling, before DDP's mean
                gradient = [p.grad.clone() for p in encoder.parameters()]
                found[split, mode, number] = ((counts[1] / counts[0]).item(), gradient)
        rows = gather(own[0], shares, "exact"), gather(own[0], shares, "simcse"), gather(own[0], shares, "local")
        found[split, "rows"] = rows
    try:
        gather(own[0], Shares((len(own[0]),) * 3, rank))
    except ValueError as error:
        found["error"] = str(error)
    torch.save(found, f"{folder}/{rank}.pt")
    leave()


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """[rank] -> what it found."""
    folder = tmp_path_factory.mktemp("gather")
    spawn(worker, str(folder))
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(2)]


def same(found, expected, tolerance=1e-12):
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours - theirs).abs().max() < tolerance


@pytest.mark.parametrize("number", range(len(OPTIONS)))
@pytest.mark.parametrize("split", SPLITS, ids=str)
def test_exact_is_one_process(both, split, number):
    loss, gradient = alone(views_of(sum(split)), OPTIONS[number])
    assert max(part.abs().max() for part in gradient) > 1e-3
    for rank in range(2):
        value, found = both[rank][split, "exact", number]
        assert value == pytest.approx(loss, abs=1e-12)
        same(found, gradient)


@pytest.mark.parametrize("number", range(len(OPTIONS)))
@pytest.mark.parametrize("split", SPLITS, ids=str)
def test_the_authors_gather_is_half_of_it(both, split, number):
    loss, gradient = alone(views_of(sum(split)), OPTIONS[number], weight=0.5)
    for rank in range(2):
        value, found = both[rank][split, "simcse", number]
        assert value == pytest.approx(loss, abs=1e-12)
        same(found, gradient)


@pytest.mark.parametrize("number", range(len(OPTIONS)))
@pytest.mark.parametrize("split", SPLITS, ids=str)
def test_local_is_each_process_on_its_own(both, split, number):
    total, start, loss, gradient = sum(split), 0, 0.0, None
    for size in filter(None, split):
        part, grads = alone([view[start : start + size] for view in views_of(total)], OPTIONS[number], weight=size / total)
        loss += part * size / total
        gradient = grads if gradient is None else [a + b for a, b in zip(gradient, grads, strict=True)]
        start += size
    for rank in range(2):
        value, found = both[rank][split, "local", number]
        assert value == pytest.approx(loss, abs=1e-12)
        same(found, gradient)


@pytest.mark.parametrize("split", SPLITS, ids=str)
def test_rows_come_in_the_order_of_the_ranks(both, split):
    expected = views_of(sum(split))[0]
    start = 0
    for rank, size in enumerate(split):
        exact, simcse, local = both[rank][split, "rows"]
        assert torch.equal(exact, expected) and torch.equal(simcse, expected)
        assert torch.equal(local, expected[start : start + size])
        start += size


def test_a_split_for_other_processes_is_refused(both):
    assert both[0]["error"] == both[1]["error"] == "a batch split over 3 processes, but there are 2"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_single_process_gathers_nothing(mode, options):
    rows = views_of(4)
    assert gather(rows[0], Shares((4,)), mode) is rows[0]
    loss, gradient = alone(rows, options)
    encoder = Encoder()
    queries, keys, hard = encoder(rows)
    term = contrast(queries, keys, [hard], Shares((4,)), mode, **options)
    assert (term.count, term.weight) == (4, 1.0) and term.value.item() == pytest.approx(loss, abs=1e-12)
    term.value.backward()
    same([p.grad for p in encoder.parameters()], gradient)


def test_gather_refuses_what_does_not_line_up():
    with pytest.raises(ValueError, match=r"3 vectors for a share of 4 \(rank 0\)"):
        gather(torch.zeros(3, 2), Shares((4,)))
    with pytest.raises(ValueError, match="there are exact, simcse, local"):
        gather(torch.zeros(3, 2), Shares((3,)), "excat")
