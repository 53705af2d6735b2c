"""WhitenedCSE's views and draws. Its whitening: tests/training/modules/test_generator.py; its loss: test_terms.py."""

import torch
from method_oracle import MemoryRows, batch_of, make
from tiny_models import sentences

from stsbench.methods.whitenedcse.method import WhitenedCSE

TEXTS = sentences(60, longest=9, seed=7)
N, WIDTH = 11, 32
REPEAT = {"rate": 0.6}
EPS = {"groups": 8, "eps": 0.2}


def whitenedcse(folder, *, dropout=0.0, pooler="cls", **options):
    return make(WhitenedCSE, folder, options, dropout=dropout, pooler=pooler)


def rows(folder, count=N, start=0):
    return MemoryRows(folder, {"sentence": TEXTS[start : start + count]})


def test_views_that_shuffling_distorts_need_no_dropout(folder):
    for options, alone in (({"split": "per_view"}, True), ({"split": "per_third"}, False), ({"split": "none"}, False),
                           ({"split": "per_view", "shuffle": False}, False), ({"split": "whole"}, False)):
        options = {**options, **(EPS if options["split"] != "none" else {})}
        assert WhitenedCSE.needs(WhitenedCSE.Options(**options)).dropout != alone
        method = whitenedcse(folder, **options)
        first, second = method.view_vectors(batch_of(method, rows(folder, 17)))
        assert bool(((first - second).norm(dim=1) > 1e-5).all()) == alone
    assert not WhitenedCSE.needs(WhitenedCSE.Options(repeat=REPEAT)).dropout


def test_permutations_are_drawn_with_the_views_and_by_nothing_else(folder):
    """So that a run that is resumed has them, and held-out rows the same at every evaluation."""
    method = whitenedcse(folder, split="per_view", **EPS)
    one, other, later = (batch_of(method, rows(folder), seed=seed) for seed in (1, 1, 2))
    torch.manual_seed(5)
    value = method(one)["contrastive"].value
    torch.manual_seed(6)
    method.eval()
    assert torch.equal(method(other)["contrastive"].value, value)
    assert not torch.equal(method(later)["contrastive"].value, value)
    drawn = method._permutations(one, method.whitening)
    assert drawn.shape == (3, WIDTH) and not torch.equal(drawn[0], drawn[1])
    assert torch.equal(drawn.sort(1).values, torch.arange(WIDTH).expand(3, WIDTH))
