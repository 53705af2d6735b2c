"""WhitenedCSE against a loop over rows, in several processes, and what is refused."""

import numpy as np
import pytest
import torch
from method_oracle import MemoryRows, batch_of, masked_lm_folder
from shipped_recipes import one_line
from two_processes import both_find, check_same_as_one, passes_of_two, shares_of
from whitenedcse_oracle import TEXTS, Naive, batch_for, whitenedcse

from stsbench import losses
from stsbench.config import validate
from stsbench.losses.contrastive import info_nce
from stsbench.methods.whitenedcse.method import WhitenedCSE
from stsbench.methods.whitenedcse.options import WhitenedCSEOptions
from stsbench.training.modules.projector import GroupWhitening

N, WIDTH = 11, 32
REPEAT = {"rate": 0.6}
EPS = {"groups": 8, "eps": 0.2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return masked_lm_folder(tmp_path_factory.mktemp("whitenedcse") / "tiny-mlm")


def rows(folder, count=N, start=0):
    return MemoryRows(folder, {"sentence": TEXTS[start : start + count]})


CASES = [
    {"split": "per_third", **EPS}, {"split": "per_view", **EPS}, {"split": "whole", **EPS}, {"split": "none"},
    {"split": "per_third", "groups": 16, "repeat": REPEAT},  # as released, but for the views: their rows have to differ
    {"split": "per_view", "groups": 8, "temperature": 0.3},
    {"split": "per_view", "groups": 4, "shuffle": False, "repeat": REPEAT},
    {"split": "per_third", **EPS, "detach_matrix": False}, {"split": "per_view", "groups": 8, "detach_matrix": False},
    {"split": "per_third", **EPS, "views": 2}, {"split": "per_view", **EPS, "views": 4, "reduce": "mean"},
    {"split": "whole", "groups": 32, "detach_matrix": False},
]


@pytest.mark.parametrize("options", CASES)
def test_the_loss_and_its_gradient_are_those_of_a_loop(folder, options):
    """To 1e-8 in float64, with padding that no row needs."""
    method = whitenedcse(folder, **options)
    batch = batch_of(method, rows(folder), seed=4, more_padding=3)
    term = method(batch)["contrastive"]
    naive = Naive(folder, method)
    expected = naive.loss(method.views(rows(folder), np.random.default_rng(4)))
    assert term.count == N and term.value.item() == pytest.approx(expected.item(), abs=1e-8)
    term.value.backward()
    expected.backward()
    weights = {name: weight for name, weight in method.named_parameters() if weight.requires_grad}
    assert weights.keys() == naive.weights().keys()
    for name, weight in naive.weights().items():
        assert (weights[name].grad - weight.grad).abs().max() < 1e-8, name


def test_without_whitening_it_is_the_sum_of_two_losses_of_simcse(folder):
    method = whitenedcse(folder, split="none", dropout=0.1)
    batch = batch_of(method, rows(folder))
    assert not batch.by_row
    state = torch.random.get_rng_state()
    value = method(batch)["contrastive"].value
    torch.random.set_rng_state(state)
    first, second, third = method._compared(batch)
    both = losses.simcse(first, second) + losses.simcse(first, third)
    assert value.item() == pytest.approx(both.item(), abs=1e-12) and not torch.equal(second, third)
    assert method.head(method.backbone.pooled(batch.ids, batch.mask)).shape == (3 * N, WIDTH)


def test_without_dropout_the_released_layer_leaves_the_views_equal(folder):
    """18 sentences, so that no cut divides one; and the loss is next to nothing. As meant, shuffling makes them differ."""
    values = {}
    for split in ("per_third", "per_view"):
        method = whitenedcse(folder, split=split, groups=16)
        batch = batch_of(method, rows(folder, 18))
        with torch.no_grad():
            first, second, third = method._compared(batch)
        assert (max(float((first - other).abs().max()) for other in (second, third)) < 1e-10) == (split == "per_third")
        values[split] = method(batch)["contrastive"].value.item()
    assert values["per_third"] < 1e-2 < values["per_view"]


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


def test_the_tested_encoder_has_neither_head_nor_whitening(folder):
    method = whitenedcse(folder, **EPS)
    inference = method.inference()
    assert (inference.pooler, inference.dense) == ("cls", None)
    assert {name.partition(".")[0] for name, _ in method.named_parameters()} == {"backbone", "head"}
    assert not list(method.whitening.state_dict())


# Several processes -------------------------------------------------------------------------------------------------

CHOSEN = [{"split": "per_third", **EPS}, {"split": "per_view", "groups": 8, "detach_matrix": False},
          {"split": "whole", "groups": 4, "eps": 0.1, "reduce": "mean"},
          {"split": "per_third", "groups": 16, "repeat": REPEAT}]
SPLITS = [(6, 5), (9, 2)]


def made(folder, options, split=None, rank=0):
    method = whitenedcse(folder, **options)
    return method, batch_for(method, rows(folder), shares_of(N, split, rank))


@pytest.fixture(scope="module")
def both(folder, tmp_path_factory):
    return passes_of_two(tmp_path_factory.mktemp("shares"), made, folder, CHOSEN, SPLITS)


@pytest.mark.parametrize("number", range(len(CHOSEN)))
def test_two_processes_have_the_gradient_of_one(folder, both, number):
    """Statistics of both processes' rows, though the second has fewer rows than a group features."""
    check_same_as_one(both, number, *made(folder, CHOSEN[number]), rel=1e-8, gradients=1e-7)


def value_by(rank, folder, mode):
    method, batch = made(folder, CHOSEN[0], (6, 5), rank)
    method.gather_mode = mode
    term = method(batch)["contrastive"]
    return term.value.item(), term.count


@pytest.mark.parametrize("mode", ["local", "simcse"])
def test_elsewhere_a_process_whitens_its_rows_alone(folder, tmp_path, mode):
    """As in the released code, whose keys are gathered and whose statistics are not."""
    computed = both_find(tmp_path, value_by, folder, mode)
    shares = []
    for rank in range(2):
        method, batch = made(folder, CHOSEN[0], (6, 5), rank)
        vectors = method.vectors(batch.ids, batch.mask).reshape(3, len(batch), WIDTH)
        whitening = GroupWhitening(**EPS)
        shares.append(method.head(whitening(vectors, method._permutations(batch, whitening))))
    if mode == "simcse":
        shares = [torch.cat(shares, dim=1)] * 2
    for (value, count), (first, *others) in zip(computed, shares, strict=True):
        expected = sum(info_nce(first, other) for other in others)
        assert value == pytest.approx(expected.item(), abs=1e-10) and count == len(first)


# Refused -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("options", "message"), [
    ({"split": "none", "groups": 8}, "options.groups 8 has no effect with split none: it goes with split per_third"),
    ({"split": "none", "shuffle": False}, "options.shuffle false has no effect with split none"),
    ({"split": "none", "eps": 0.1}, "options.eps 0.1 has no effect with split none"),
    ({"split": "none", "detach_matrix": False}, "options.detach_matrix false has no effect with split none"),
    ({"groups": 1, "shuffle": False}, "options.shuffle false has no effect with groups 1: it goes with groups above 1"),
    ({"views": 2, "reduce": "mean", **EPS}, "options.reduce mean has no effect with views 2: it goes with views above 2"),
])
def test_what_has_no_effect_is_one_line(options, message):
    assert one_line(lambda: validate(WhitenedCSEOptions, options, "recipe", "options.")).startswith(f"recipe: {message}")


def test_what_does_not_fit_the_width_is_one_line(folder):
    for options, *parts in (
        ({"groups": 32, "shuffle": False}, "options.shuffle false has no effect", "32 groups of one feature"),
        ({"groups": 5}, "options.groups 5 does not divide the 32 features", "a divisor of 32"),
        ({}, "options.groups 128 does not divide the 32 features"),
    ):
        one_line(lambda options=options: whitenedcse(folder, **options), *parts)


def test_a_batch_with_too_few_rows_or_equal_ones_is_one_line(folder):
    method = whitenedcse(folder, groups=4, split="per_view")
    one_line(lambda: method(batch_of(method, rows(folder, 8))), "groups of 8 features over 8 rows", "training.drop_last")
    texts = {"sentence": TEXTS[:3] * 4}
    one_line(lambda: method(batch_of(method, MemoryRows(folder, texts))), "span too few dimensions")
    method = whitenedcse(folder, groups=4, eps=1e-5, split="per_view")
    for few in (rows(folder, 8), MemoryRows(folder, texts)):
        assert method(batch_of(method, few))["contrastive"].value.isfinite()
