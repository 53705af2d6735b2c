"""WhitenedCSE's views and draws. Its whitening: tests/training/modules/test_group_whitening.py; its loss: test_terms.py."""

from __future__ import annotations

import torch
from method_oracle import MemoryRows, batch_of, make
from tiny_models import sentences

from stsbench.methods.whitenedcse.method import WhitenedCSE

TEXTS = sentences(60, longest=9, seed=7)
N, WIDTH = 11, 32
REPEAT = {"rate": 0.6}
EPS = {"groups": 8, "eps": 0.2}


def whitenedcse(tiny_lm, *, dropout=0.0, pooler="cls", **options):
    return make(WhitenedCSE, tiny_lm, options, dropout=dropout, pooler=pooler)


def rows(tiny_lm, count=N, start=0):
    return MemoryRows(tiny_lm, {"sentence": TEXTS[start : start + count]})


def test_without_dropout_the_released_layer_leaves_the_views_equal(tiny_lm):
    """18 sentences, so that no cut divides one; and the loss is next to nothing. As meant, shuffling makes them differ."""
    values = {}
    for split in ("per_third", "per_view"):
        method = whitenedcse(tiny_lm, split=split, groups=16)
        batch = batch_of(method, rows(tiny_lm, 18))
        with torch.no_grad():
            first, second, third = method._compared(batch)
        assert (max(float((first - other).abs().max()) for other in (second, third)) < 1e-10) == (split == "per_third")
        values[split] = method(batch)["contrastive"].value.item()
    assert values["per_third"] < 1e-2 < values["per_view"]


def test_views_that_shuffling_distorts_need_no_dropout(tiny_lm):
    for options, alone in (({"split": "per_view"}, True), ({"split": "per_third"}, False), ({"split": "none"}, False),
                           ({"split": "per_view", "shuffle": False}, False), ({"split": "whole"}, False)):
        options = {**options, **(EPS if options["split"] != "none" else {})}
        assert WhitenedCSE.needs(WhitenedCSE.Options(**options)).dropout != alone
        method = whitenedcse(tiny_lm, **options)
        first, second = method.view_vectors(batch_of(method, rows(tiny_lm, 17)))
        assert bool(((first - second).norm(dim=1) > 1e-5).all()) == alone
    assert not WhitenedCSE.needs(WhitenedCSE.Options(repeat=REPEAT)).dropout


def test_permutations_are_drawn_with_the_views_and_by_nothing_else(tiny_lm):
    """So that a run that is resumed has them, and held-out rows the same at every evaluation."""
    method = whitenedcse(tiny_lm, split="per_view", **EPS)
    one, other, later = (batch_of(method, rows(tiny_lm), seed=seed) for seed in (1, 1, 2))
    torch.manual_seed(5)
    value = method(one)["contrastive"].value
    torch.manual_seed(6)
    method.eval()
    assert torch.equal(method(other)["contrastive"].value, value)
    assert not torch.equal(method(later)["contrastive"].value, value)
    drawn = method._permutations(one, method.whitening)
    assert drawn.shape == (3, WIDTH) and not torch.equal(drawn[0], drawn[1])
    assert torch.equal(drawn.sort(1).values, torch.arange(WIDTH).expand(3, WIDTH))


def test_a_batch_with_too_few_rows_or_equal_ones_needs_the_constant(tiny_lm):
    """What is said: tests/training/modules/test_group_whitening.py."""
    texts = {"sentence": TEXTS[:3] * 4}
    method = whitenedcse(tiny_lm, groups=4, eps=1e-5, split="per_view")
    for few in (rows(tiny_lm, 8), MemoryRows(tiny_lm, texts)):
        assert method(batch_of(method, few))["contrastive"].value.isfinite()
