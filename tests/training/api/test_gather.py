"""Two processes against one: the loss and the gradient of each way of gathering, for even and uneven shares, through DDP; of
plain, shortened and guided vectors."""

from __future__ import annotations

import itertools

import guided_oracle
import pytest
import torch
from guided_oracle import naive_guided
from info_nce_oracle import naive_info_nce
from torch import nn
from two_processes import both_find

from stsbench.losses.guided import GuideRule
from stsbench.losses.labelled import pair_cosines
from stsbench.training.api.batch import Shares, gather
from stsbench.training.api.contrasting import Wrapping, contrast, rank_pairs, wrapped

SPLITS = [(3, 3), (4, 2), (1, 5), (3, 0)]
MODES = ["exact", "simcse", "local"]
DIMS = ((4, 1.0), (3, 0.5), (2, 2.0))
SCORES = torch.tensor([0.0, 3.0, 1.0, 3.0, 2.0, 0.0])
CASES = {  # options of the term, and what a guide does with shortened vectors
    "plain": ({}, None), "weighted": ({"alpha": 2.0, "temperature": 0.2}, None), "dot": ({"similarity": "dot"}, None),
    "gist": ({}, GuideRule(margin=0.2)), "rows alone": ({}, GuideRule(contrast_anchors=False, contrast_positives=False)),
    "multicsr": ({}, GuideRule("fixed", phi=0.6, contrast_anchors=False, contrast_positives=False, masked="zero",
                               loss="bce_of_softmax")),
}


class Encoder(nn.Module):
    """Views of five numbers a row -> their vectors, all in one pass."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layers = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 4)).double()

    def forward(self, views):
        return self.layers(torch.stack(views)).unbind()


def values_of(total):
    """(three views of so many rows, the guide's vectors, its cosines as a batch holds them)."""
    generator = torch.Generator().manual_seed(total)
    views = [torch.randn(total, 5, generator=generator, dtype=torch.float64) for _ in range(3)]
    return views, *guided_oracle.guides_of(total, 3)


def term(encoder, views, cosines, case, shares, mode):
    options, rule = CASES[case]
    queries, keys, hard = encoder(views)
    with wrapped(Wrapping(DIMS if rule else (), rule, cosines if rule else None)):
        return contrast(queries, keys, [hard], shares, mode, **options)


def splits_of(case):
    return SPLITS if CASES[case][1] is None else SPLITS[1:3]


def find(rank):
    results = {}
    for case, mode in itertools.product(CASES, MODES):
        for split in splits_of(case):
            (views, _, cosines), shares = values_of(sum(split)), Shares(split, rank)
            rows = slice(shares.start, shares.start + split[rank])
            encoder = nn.parallel.DistributedDataParallel(Encoder())
            one = term(encoder, [view[rows] for view in views], cosines[rows], case, shares, mode)
            counts = torch.tensor([float(one.count), one.value.item() * one.count], dtype=torch.float64)
            torch.distributed.all_reduce(counts)
            (one.value * 2 * one.count / counts[0]).backward()  # the loop's scaling, before DDP's mean
            results[case, mode, split] = (counts[1] / counts[0]).item(), [p.grad.clone() for p in encoder.parameters()]
            results[mode, split] = gather(views[0][rows], shares, mode)
            if (case, mode) == ("gist", "exact"):
                encoder = nn.parallel.DistributedDataParallel(Encoder())
                pairs = encoder([view[rows] for view in views[:2]])
                with wrapped(Wrapping(DIMS)):
                    ranked = rank_pairs([tuple(pairs)], pair_cosines, SCORES[: sum(split)][rows], shares)
                (ranked.value * 2 * ranked.count / sum(split)).backward()
                results["ranked", split] = ranked.value.item(), [p.grad.clone() for p in encoder.parameters()]
    with pytest.raises(ValueError, match="a batch split over 3 processes, but there are 2"):
        gather(views[0][rows], Shares((split[rank],) * 3, rank))
    return results


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    return both_find(tmp_path_factory.mktemp("gather"), find)


def alone(views, guides, cosines, case):
    """(loss, gradient) over these rows in one process; of plain vectors by the double loop."""
    options, rule = CASES[case]
    encoder = Encoder()
    if rule is None:
        queries, keys, hard = encoder(views)
        loss = naive_info_nce(queries, keys, negatives=[hard], **options).mean()
    elif case == "gist":
        queries, keys, hard = encoder(views)
        loss = sum(weight * naive_guided(queries[:, :dim], keys[:, :dim], guides, negatives=[hard[:, :dim]], margin=0.2,
                                         temperature=0.05)[0] for dim, weight in DIMS)
    else:
        loss = term(encoder, views, cosines, case, Shares((len(views[0]),)), "exact").value
    loss.backward()
    return loss.item(), [p.grad for p in encoder.parameters()]


def expected(split, mode, case):
    """exact: that of one process; simcse: its loss, and half of its gradient, as the authors' gather has it; local: each
    process on its own."""
    views, guides, cosines = values_of(sum(split))
    if mode != "local":
        loss, gradient = alone(views, guides, cosines, case)
        return loss, [(0.5 if mode == "simcse" else 1.0) * part for part in gradient]
    total, gradients, start = 0.0, None, 0
    for size in filter(None, split):
        rows, n = slice(start, start + size), sum(split)
        own = guided_oracle.cosines_of([guide[rows] for guide in guides])
        loss, gradient = alone([view[rows] for view in views], [guide[rows] for guide in guides], own, case)
        total, start = total + loss * size / n, start + size
        gradients = [size / n * part + (gradients[i] if gradients else 0) for i, part in enumerate(gradient)]
    return total, gradients


def assert_same(gradients, others):
    for ours, theirs in zip(gradients, others, strict=True):
        assert (ours - theirs).abs().max() < 1e-10


@pytest.mark.parametrize("case", CASES)
def test_two_processes_have_the_loss_and_gradient_that_the_mode_promises(both, case):
    for split, mode in itertools.product(splits_of(case), MODES):
        loss, gradient = expected(split, mode, case)
        assert max(part.abs().max() for part in gradient) > 1e-3
        for rank in range(2):
            value, theirs = both[rank][case, mode, split]
            assert value == pytest.approx(loss, abs=1e-10)
            assert_same(theirs, gradient)


def test_two_processes_rank_shortened_pairs_as_one(both):
    for split in SPLITS[1:3]:
        encoder, (views, *_) = Encoder(), values_of(sum(split))
        with wrapped(Wrapping(DIMS)):
            whole = rank_pairs([tuple(encoder(views[:2]))], pair_cosines, SCORES[: sum(split)], Shares((sum(split),)))
        whole.value.backward()
        for rank in range(2):
            value, gradient = both[rank]["ranked", split]
            assert value == pytest.approx(whole.value.item(), abs=1e-10)
            assert_same(gradient, [p.grad for p in encoder.parameters()])


@pytest.mark.parametrize("split", SPLITS, ids=str)
def test_rows_come_in_the_order_of_the_ranks(both, split):
    rows = values_of(sum(split))[0][0]
    for rank, part in enumerate((slice(split[0]), slice(split[0], None))):
        assert torch.equal(both[rank]["exact", split], rows) and torch.equal(both[rank]["simcse", split], rows)
        assert torch.equal(both[rank]["local", split], rows[part])


def test_a_single_process_gathers_nothing():
    views, guides, cosines = values_of(4)
    for mode, case in itertools.product(MODES, ("plain", "weighted", "dot")):
        assert gather(views[0], Shares((4,)), mode) is views[0]
        loss, gradient = alone(views, guides, cosines, case)
        encoder = Encoder()
        one = term(encoder, views, cosines, case, Shares((4,)), mode)
        assert (one.count, one.weight) == (4, 1.0) and one.value.item() == pytest.approx(loss, abs=1e-12)
        one.value.backward()
        assert_same([p.grad for p in encoder.parameters()], gradient)
    for shares, mode in ((Shares((4,)), "exact"), (Shares((3,)), "excat")):
        with pytest.raises(ValueError, match=r"share of 4|there are exact, simcse, local"):
            gather(torch.zeros(3, 2), shares, mode)
