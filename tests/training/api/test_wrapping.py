"""Shortened vectors and a guide around `contrast` and `contrast_views`: the library's losses, loops, two processes; and how
two processes gather."""

import itertools

import guided_oracle
import pytest
import torch
from guided_oracle import guides_of, naive_guided
from info_nce_oracle import naive_info_nce, naive_nt_xent
from sentence_transformers.sentence_transformer import losses as library
from torch import nn
from two_processes import both_find

from stsbench.errors import StsbenchError
from stsbench.losses.labelled import labelled_in_batch, pair_angles, pair_cosines
from stsbench.losses.variants import GuideRule
from stsbench.training.api.batch import Shares, gather
from stsbench.training.api.contrasting import Wrapping, contrast, contrast_labelled, contrast_views, rank_pairs, wrapped

N, D = 6, 8
DIMS = ((8, 1.0), (5, 0.5), (2, 2.0))


def drawn(seed, blocks, rows=N, width=D):
    numbers = torch.Generator().manual_seed(seed)
    return [torch.randn(rows, width, generator=numbers, dtype=torch.float64).requires_grad_() for _ in range(blocks)]


def term(wrapping, vectors, shares=None, mode="exact", **options):
    with wrapped(wrapping):
        return contrast(vectors[0], vectors[1], vectors[2:], shares or Shares((len(vectors[0]),)), mode, **options)


def differ(one, other, vectors):
    pairs = zip(*(torch.autograd.grad(value, vectors) for value in (one, other)), strict=True)
    return max(float((a - b).abs().max()) for a, b in pairs)


PLAIN = GuideRule(contrast_anchors=False, contrast_positives=False)
GRADED = torch.tensor([0.0, 3.0, 1.0, 3.0, 2.0, 0.0])
RANKED = {"cosent": (pair_cosines, library.CoSENTLoss), "angle": (pair_angles, library.AnglELoss)}


@pytest.mark.parametrize(("name", "blocks"), [
    ("plain", 0), ("plain", 1), ("plain", 2), ("gist", 1), ("cosent", 0), ("angle", 0)])
def test_matryoshka_is_the_librarys_around_its_own_losses(tmp_path, name, blocks):
    vectors, (guides, cosines) = drawn(1, 2 + blocks), guides_of(N, 2 + blocks)
    tokens = guided_oracle.tokenizer(tmp_path)
    model = guided_oracle.Vectors(D, tokens)
    if name == "plain":
        inner = library.MultipleNegativesRankingLoss(model, scale=20.0)
        ours = term(Wrapping(DIMS), vectors, temperature=0.05)
    elif name == "gist":
        inner = library.GISTEmbedLoss(model, guided_oracle.GuideVectors(4, tokens), temperature=0.1, margin=0.2)
        ours = term(Wrapping(DIMS, GuideRule(margin=0.2, diagonals="by_guide"), cosines), vectors, temperature=0.1)
    else:
        similarity, ranking = RANKED[name]
        inner = ranking(model, scale=20.0)
        with wrapped(Wrapping(DIMS)):
            ours = rank_pairs([tuple(vectors)], similarity, GRADED, Shares((N,)))
    dims, weights = zip(*DIMS, strict=True)
    features = [{"vectors": block, "guide": guide} for block, guide in zip(vectors, guides, strict=True)]
    theirs = library.MatryoshkaLoss(model, inner, list(dims), list(weights))(features, GRADED if name in RANKED else None)
    assert ours.count == N and abs(ours.value - theirs) < 1e-9
    assert differ(ours.value, theirs, vectors) < 1e-9


def test_the_sum_over_dimensions_is_that_of_loops_with_a_queue_a_weight_views_and_labelled_pairs():
    vectors, (stored,) = drawn(4, 3), drawn(5, 1, rows=4)
    stored = stored.detach()
    value = term(Wrapping(DIMS), vectors, stored=stored, alpha=2.0).value
    want = sum(weight * naive_info_nce(a[:, :dim], torch.cat([p, stored])[:, :dim], negatives=[m[:, :dim]], alpha=2.0).mean()
               for a, p, m in [vectors] for dim, weight in DIMS)
    assert abs(value - want) < 1e-10
    first, second = drawn(6, 2)
    with wrapped(Wrapping(DIMS)):
        views = contrast_views(first, second, Shares((N,)))
    want = sum(weight * naive_nt_xent(first[:, :dim], second[:, :dim]).mean() for dim, weight in DIMS)
    assert abs(views.value - want) < 1e-10 and differ(views.value, want, (first, second)) < 1e-9
    labels = torch.tensor([1.0, 0, 1, 1, 0, 1])
    with wrapped(Wrapping(DIMS)):
        ours = contrast_labelled(first, second, labels, Shares((N,)))
    by_hand = sum(weight * labelled_in_batch(first[:, :dim], second[:, :dim], labels) for dim, weight in DIMS)
    assert ours.count == N and abs(ours.value - by_hand) < 1e-12 and differ(ours.value, by_hand, (first, second)) < 1e-12


def test_the_whole_vector_alone_is_the_term_without_a_wrapper_to_the_last_bit():
    vectors = [block.detach().float() for block in drawn(7, 3)]
    plain = contrast(vectors[0], vectors[1], vectors[2:], Shares((N,)))
    assert torch.equal(term(Wrapping(((D, 1.0),)), vectors).value, plain.value)
    assert torch.equal(term(Wrapping(), vectors).value, plain.value)
    views = contrast_views(*vectors[:2], Shares((N,)))
    with wrapped(Wrapping(((D, 1.0),))):
        assert torch.equal(contrast_views(*vectors[:2], Shares((N,))).value, views.value)


def test_what_is_refused():
    for wrapping, blocks, options, message in (
            (Wrapping(((9, 1.0),)), 2, {}, "matryoshka.dims 9 is more than the 8 numbers"),
            (Wrapping(DIMS), 2, {"similarity": "dot"}, "matryoshka: shortened vectors are normalised"),
            (Wrapping((), GuideRule(), torch.zeros(N, N)), 2, {"similarity": "dot"}, "set guide.contrast_anchors"),
            (Wrapping((), GuideRule()), 2, {}, "guide: labelled rows are contrasted"),
            (Wrapping((), GuideRule(), torch.zeros(3, 3)), 2, {}, "other texts than the rows"),
            (Wrapping((), PLAIN, torch.zeros(N, N)), 3, {}, "other texts than those of the rows")):
        with pytest.raises(StsbenchError, match=message):
            term(wrapping, drawn(9, blocks), **options)
    for rule, columns, message in ((PLAIN, N, "guide.contrast_anchors has no effect"),
                                   (GuideRule(diagonals="by_guide"), N, "guide.diagonals has no"),
                                   (GuideRule(), 3 * N, "takes plain sentences")):
        with pytest.raises(StsbenchError, match=message), wrapped(Wrapping((), rule, torch.zeros(N, columns))):
            contrast_views(*drawn(10, 2), Shares((N,)))


# --- two processes against one: each way of gathering, for even and uneven shares, through DDP ---

MODES = ["exact", "simcse", "local"]
SPLITS = {"plain": [(1, 5), (3, 0)], "gist": [(4, 2)]}  # of the rows over the processes
FEWER = ((4, 1.0), (2, 2.0))  # dimensions, and their weights
OPTIONS = {"plain": {"alpha": 2.0, "temperature": 0.2}, "gist": {"temperature": 0.05}}


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
    return [torch.randn(total, 5, generator=generator, dtype=torch.float64) for _ in range(3)], *guides_of(total, 3)


def find(rank):
    results = {}
    for case, mode in itertools.product(SPLITS, MODES):
        for split in SPLITS[case]:
            (views, _, cosines), shares = values_of(sum(split)), Shares(split, rank)
            rows = slice(shares.start, shares.start + split[rank])
            encoder = nn.parallel.DistributedDataParallel(Encoder())
            queries, keys, hard = encoder([view[rows] for view in views])
            wrapping = Wrapping(FEWER, GuideRule(margin=0.2), cosines[rows]) if case == "gist" else Wrapping()
            with wrapped(wrapping):
                one = contrast(queries, keys, [hard], shares, mode, **OPTIONS[case])
            counts = torch.tensor([float(one.count), one.value.item() * one.count], dtype=torch.float64)
            torch.distributed.all_reduce(counts)
            (one.value * 2 * one.count / counts[0]).backward()  # the loop's scaling, before DDP's mean
            results[case, mode, split] = (counts[1] / counts[0]).item(), [p.grad.clone() for p in encoder.parameters()]
            results[mode, split] = gather(views[0][rows], shares, mode)
    with pytest.raises(ValueError, match="a batch split over 3 processes, but there are 2"):
        gather(views[0][rows], Shares((split[rank],) * 3, rank))
    return results


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    return both_find(tmp_path_factory.mktemp("gather"), find)


def alone(views, guides, case):
    """(loss, gradient) over these rows in one process, by loops."""
    encoder = Encoder()
    queries, keys, hard = encoder(views)
    if case == "plain":
        loss = naive_info_nce(queries, keys, negatives=[hard], **OPTIONS[case]).mean()
    else:
        loss = sum(weight * naive_guided(queries[:, :dim], keys[:, :dim], guides, negatives=[hard[:, :dim]], margin=0.2,
                                         **OPTIONS[case])[0] for dim, weight in FEWER)
    loss.backward()
    return loss.item(), [p.grad for p in encoder.parameters()]


def expected(split, mode, case):
    """exact: that of one process; simcse: its loss, and half of its gradient, as the authors' gather has it; local: each
    process on its own."""
    views, guides, _ = values_of(sum(split))
    if mode != "local":
        loss, gradient = alone(views, guides, case)
        return loss, [(0.5 if mode == "simcse" else 1.0) * part for part in gradient]
    total, gradients, start = 0.0, None, 0
    for size in filter(None, split):
        rows, share = slice(start, start + size), size / sum(split)
        loss, gradient = alone([view[rows] for view in views], [guide[rows] for guide in guides], case)
        total, start = total + loss * share, start + size
        gradients = [share * part + (gradients[i] if gradients else 0) for i, part in enumerate(gradient)]
    return total, gradients


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", SPLITS)
def test_two_processes_have_the_loss_and_gradient_that_the_mode_promises(both, case, mode):
    for split in SPLITS[case]:
        loss, gradient = expected(split, mode, case)
        assert max(part.abs().max() for part in gradient) > 1e-3
        rows = values_of(sum(split))[0][0]
        for rank, part in enumerate((slice(split[0]), slice(split[0], None))):
            value, theirs = both[rank][case, mode, split]
            assert value == pytest.approx(loss, abs=1e-10)
            assert all((ours - other).abs().max() < 1e-10 for ours, other in zip(theirs, gradient, strict=True))
            assert torch.equal(both[rank][mode, split], rows[part] if mode == "local" else rows)


def test_a_single_process_gathers_nothing():
    rows = torch.zeros(4, 2)
    for mode in MODES:
        assert gather(rows, Shares((4,)), mode) is rows
    for shares, mode in ((Shares((4,)), "exact"), (Shares((3,)), "excat")):
        with pytest.raises(ValueError, match=r"share of 4|there are exact, simcse, local"):
            gather(torch.zeros(3, 2), shares, mode)
