"""WhitenedCSE once more: texts one at a time by transformers, a flat list of rows, loops over parts and groups."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
import torch
from method_oracle import MemoryRows, batch_of, make
from shipped_recipes import one_line
from tiny_models import sentences
from transformers import AutoModel

from stsbench import losses
from stsbench.methods.whitenedcse.method import WhitenedCSE

TEXTS = sentences(60, longest=9, seed=7)
N, WIDTH = 11, 32
REPEAT = {"rate": 0.6}
EPS = {"groups": 8, "eps": 0.2}


def whitenedcse(tiny_lm, *, dropout=0.0, pooler="cls", **options):
    return make(WhitenedCSE, tiny_lm, options, dropout=dropout, pooler=pooler)


def whitened(rows, groups, order, eps, detach):
    """A list of (d,) vectors, whitened together. order: which old feature stands at each index."""
    width, result = len(rows[0]), [[None] * len(rows[0]) for _ in rows]
    size = width // groups
    for group in range(groups):
        features = [int(order[group * size + at]) for at in range(size)]
        table = torch.stack([torch.stack([row[feature] for feature in features]) for row in rows])
        mean = sum(table) / len(table)
        covariance = sum(torch.outer(row - mean, row - mean) for row in table) / len(table) + eps * torch.eye(size).double()
        if detach:
            root = torch.from_numpy(scipy.linalg.inv(scipy.linalg.sqrtm(covariance.detach().numpy())).real)
        else:
            values, vectors = torch.linalg.eigh(covariance)
            root = sum(torch.outer(vector, vector) / value.sqrt() for value, vector in zip(values, vectors.T, strict=True))
        for number, row in enumerate(table):
            for at, feature in enumerate(features):
                result[number][feature] = (row - mean) @ root[:, at]
    return [torch.stack(row) for row in result]


class Naive:
    """The released head sees the flat batch: all views of the first sentence, then all of the second, ..."""

    def __init__(self, tiny_lm, method):
        self.model = AutoModel.from_pretrained(tiny_lm, dtype=torch.float32).double().eval()
        self.weight, self.bias = (each.detach().clone().requires_grad_() for each in method.head.dense.parameters())
        self.options = method.options

    def weights(self):
        """By the names that the method has for them."""
        weights = {f"backbone.model.{name}": weight for name, weight in self.model.named_parameters()
                   if "pooler" not in name}
        return {**weights, "head.dense.weight": self.weight, "head.dense.bias": self.bias}

    def loss(self, views):
        """A scalar with a graph. views: the method's, token ids and seeds."""
        options, v, n = self.options, len(views.tokens), len(views.tokens[0])
        flat = [self.model(input_ids=torch.tensor([[int(token) for token in views.tokens[k][i]]])).last_hidden_state[0, 0]
                for i in range(n) for k in range(v)]
        if options.split == "per_third":
            parts = [range(part * n, part * n + n) for part in range(v)]
        else:
            parts = {"per_view": [range(k, n * v, v) for k in range(v)], "whole": [range(n * v)], "none": []}[options.split]
        for number, part in enumerate(parts):
            order = np.arange(len(flat[0]))
            if views.by_row:
                order = np.random.default_rng(views.by_row["permutation"][number][0]).permutation(len(order))
            rows = whitened([flat[row] for row in part], options.groups, order, options.eps, options.detach_matrix)
            for row, new in zip(part, rows, strict=True):
                flat[row] = new
        flat = [torch.tanh(self.weight @ row + self.bias) for row in flat]
        first, *others = (torch.stack(flat[k::v]) for k in range(v))
        return losses.whitenedcse(first, torch.cat(others), temperature=options.temperature, reduce=options.reduce)


def rows(tiny_lm, count=N, start=0):
    return MemoryRows(tiny_lm, {"sentence": TEXTS[start : start + count]})
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
def test_the_loss_and_its_gradient_are_those_of_a_loop(tiny_lm, options):
    """To 1e-8 in float64, with padding that no row needs."""
    method = whitenedcse(tiny_lm, **options)
    batch = batch_of(method, rows(tiny_lm), seed=4, more_padding=3)
    term = method(batch)["contrastive"]
    naive = Naive(tiny_lm, method)
    expected = naive.loss(method.views(rows(tiny_lm), np.random.default_rng(4)))
    assert term.count == N and term.value.item() == pytest.approx(expected.item(), abs=1e-8)
    term.value.backward()
    expected.backward()
    weights = {name: weight for name, weight in method.named_parameters() if weight.requires_grad}
    assert weights.keys() == naive.weights().keys()
    for name, weight in naive.weights().items():
        assert (weights[name].grad - weight.grad).abs().max() < 1e-8, name


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


def test_a_batch_with_too_few_rows_or_equal_ones_is_one_line(tiny_lm):
    method = whitenedcse(tiny_lm, groups=4, split="per_view")
    one_line(lambda: method(batch_of(method, rows(tiny_lm, 8))), "groups of 8 features over 8 rows", "training.drop_last")
    texts = {"sentence": TEXTS[:3] * 4}
    one_line(lambda: method(batch_of(method, MemoryRows(tiny_lm, texts))), "span too few dimensions")
    method = whitenedcse(tiny_lm, groups=4, eps=1e-5, split="per_view")
    for few in (rows(tiny_lm, 8), MemoryRows(tiny_lm, texts)):
        assert method(batch_of(method, few))["contrastive"].value.isfinite()
