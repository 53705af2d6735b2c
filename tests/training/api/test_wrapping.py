"""Shortened vectors and a guide around `contrast` and `contrast_views`: the library's losses, loops, two processes."""

from __future__ import annotations

import guided_oracle
import pytest
import torch
from guided_oracle import guides_of
from info_nce_oracle import naive_info_nce, naive_nt_xent
from sentence_transformers.sentence_transformer.losses import (
    AnglELoss,
    CoSENTLoss,
    GISTEmbedLoss,
    MatryoshkaLoss,
    MultipleNegativesRankingLoss,
)

from stsbench.errors import StsbenchError
from stsbench.losses.guided import GuideRule
from stsbench.losses.labelled import labelled_in_batch, pair_angles, pair_cosines
from stsbench.training.api.batch import Shares
from stsbench.training.api.contrasting import (
    Wrapping,
    contrast,
    contrast_labelled,
    contrast_views,
    rank_pairs,
    watched,
    wrapped,
)

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
GIST = GuideRule(margin=0.2, diagonals="by_guide")
RANKED = {"cosent": (pair_cosines, CoSENTLoss), "angle": (pair_angles, AnglELoss)}


@pytest.mark.parametrize(("name", "blocks"), [("plain", 0), ("plain", 1), ("plain", 2), ("gist", 1), ("cosent", 0),
                                              ("angle", 0)])
def test_matryoshka_is_the_librarys_around_its_own_losses(tmp_path, name, blocks):
    vectors, (guides, cosines) = drawn(1, 2 + blocks), guides_of(N, 2 + blocks)
    tokens = guided_oracle.tokenizer(tmp_path)
    model = guided_oracle.Vectors(D, tokens)
    if name == "plain":
        inner, ours = MultipleNegativesRankingLoss(model, scale=20.0), term(Wrapping(DIMS), vectors, temperature=0.05)
    elif name == "gist":
        inner = GISTEmbedLoss(model, guided_oracle.GuideVectors(4, tokens), temperature=0.1, margin=0.2)
        ours = term(Wrapping(DIMS, GIST, cosines), vectors, temperature=0.1)
    else:
        similarity, library = RANKED[name]
        inner = library(model, scale=20.0)
        with wrapped(Wrapping(DIMS)):
            ours = rank_pairs([tuple(vectors)], similarity, GRADED, Shares((N,)))
    dims, weights = zip(*DIMS, strict=True)
    features = [{"vectors": block, "guide": guide} for block, guide in zip(vectors, guides, strict=True)]
    theirs = MatryoshkaLoss(model, inner, list(dims), list(weights))(features, GRADED if name in RANKED else None)
    assert ours.count == N and abs(ours.value - theirs) < 1e-9
    assert differ(ours.value, theirs, vectors) < 1e-9


def test_labelled_pairs_in_the_batch_are_shortened_by_hand():
    first, second = vectors = drawn(15, 2)
    labels = torch.tensor([1.0, 0, 1, 1, 0, 1])
    with wrapped(Wrapping(DIMS)):
        ours = contrast_labelled(first, second, labels, Shares((N,)))
    by_hand = sum(weight * labelled_in_batch(first[:, :dim], second[:, :dim], labels) for dim, weight in DIMS)
    assert ours.count == N and abs(ours.value - by_hand) < 1e-12 and differ(ours.value, by_hand, vectors) < 1e-12


def test_a_guide_alone_changes_no_labelled_pairs():
    first, second = drawn(16, 2)
    wrapping = Wrapping((), GuideRule(), torch.zeros(N, 3 * N))
    plain = rank_pairs([(first, second)], pair_cosines, GRADED, Shares((N,)))
    with wrapped(wrapping):
        guided = rank_pairs([(first, second)], pair_cosines, GRADED, Shares((N,)))
    assert torch.equal(plain.value, guided.value) and not wrapping.calls and not wrapping.masked


def test_the_sum_by_hand_with_a_queue_a_weight_and_views():
    vectors, (stored,) = drawn(4, 3), drawn(5, 1, rows=4)
    stored = stored.detach()
    value = term(Wrapping(DIMS), vectors, stored=stored, alpha=2.0).value
    by_hand = 0.0
    for dim, weight in DIMS:
        a, p, m = (block[:, :dim] for block in vectors)
        score = lambda x, y: torch.nn.functional.cosine_similarity(x, y, dim=-1) / 0.05  # noqa: E731
        for i in range(N):
            others = [score(a[i], y) for y in [*p, *stored[:, :dim]]]
            others += [score(a[i], y) + (torch.log(torch.tensor(2.0)) if j == i else 0) for j, y in enumerate(m)]
            by_hand = by_hand - weight * (score(a[i], p[i]) - torch.stack(others).logsumexp(0)) / N
    assert abs(value - by_hand) < 1e-6  # the logarithm above is float32
    first, second = drawn(6, 2)
    with wrapped(Wrapping(DIMS)):
        views = contrast_views(first, second, Shares((N,)))
    want = sum(weight * naive_nt_xent(first[:, :dim], second[:, :dim]).mean() for dim, weight in DIMS)
    assert abs(views.value - want) < 1e-10 and differ(views.value, want, (first, second)) < 1e-9


def test_the_whole_vector_alone_is_the_term_without_a_wrapper_to_the_last_bit():
    vectors = [block.detach().float() for block in drawn(7, 3)]
    plain = contrast(vectors[0], vectors[1], vectors[2:], Shares((N,)))
    assert torch.equal(term(Wrapping(((D, 1.0),)), vectors).value, plain.value)
    assert torch.equal(term(Wrapping(), vectors).value, plain.value)
    views = contrast_views(*vectors[:2], Shares((N,)))
    with wrapped(Wrapping(((D, 1.0),))):
        assert torch.equal(contrast_views(*vectors[:2], Shares((N,))).value, views.value)


def test_further_terms_see_whole_vectors_and_calls_are_counted():
    vectors, wrapping = drawn(8, 2), Wrapping(DIMS)
    with watched() as calls, wrapped(wrapping):
        contrast(*vectors, [], Shares((N,)))
        contrast_views(*vectors, Shares((N,)))
    assert wrapping.calls == 2 and [call[0].shape for call in calls] == [(N, D)] * 2


def test_what_is_refused():
    for wrapping, options, message in (
        (Wrapping(((9, 1.0),)), {}, "matryoshka.dims 9 is more than the 8 numbers"),
        (Wrapping(DIMS), {"similarity": "dot"}, "matryoshka: shortened vectors are normalised"),
        (Wrapping((), GuideRule(), torch.zeros(N, N)), {"similarity": "dot"}, "set guide.contrast_anchors"),
        (Wrapping((), GuideRule()), {}, "guide: labelled rows are contrasted"),
        (Wrapping((), GuideRule(), torch.zeros(3, 3)), {}, "other texts than the rows"),
    ):
        with pytest.raises(StsbenchError, match=message):
            term(wrapping, drawn(9, 2), **options)
    with pytest.raises(StsbenchError, match="other texts than those of the rows"):
        term(Wrapping((), PLAIN, torch.zeros(N, N)), drawn(11, 3))
    for rule, columns, message in (
        (PLAIN, N, "guide.contrast_anchors has no effect"), (GuideRule(diagonals="by_guide"), N, "guide.diagonals has no"),
        (GuideRule(), 3 * N, "takes plain sentences"),
    ):
        with pytest.raises(StsbenchError, match=message), wrapped(Wrapping((), rule, torch.zeros(N, columns))):
            contrast_views(*drawn(10, 2), Shares((N,)))




def test_without_a_margin_and_blocks_it_is_the_plain_term():
    vectors, (_, cosines) = drawn(14, 3), guides_of(N, 3)
    rule = GuideRule(margin=-9.0, contrast_anchors=False, contrast_positives=False)
    want = naive_info_nce(*vectors[:2], negatives=vectors[2:]).mean()
    assert abs(term(Wrapping((), rule, cosines), vectors).value - want) < 1e-10
