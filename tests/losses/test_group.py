"""PCL's loss against loops over single elements, and probabilities next to one."""

from __future__ import annotations

import math

import pytest
import torch

from stsbench import losses
from stsbench.losses.group import group_cross_entropy


def naive_pcl(views, peer, temperature, group_positive, reduce):
    """The sum of the released code's six terms, without a peer of the two that are left."""

    def scores(x, keys, i):
        """Of the anchor i of x with the further views of row i in `keys`, then with the other rows' anchors there."""
        others = [view[i] for view in keys[1:]] + [other for j, other in enumerate(keys[0]) if j != i]
        return torch.stack([x[0][i] @ key / (x[0][i].norm() * key.norm()) / temperature for key in others])

    def info_nce(x):
        rows = [torch.stack([a @ b / (a.norm() * b.norm()) for b in x[1]]) / temperature for a in x[0]]
        return -sum(torch.log(row.exp()[i] / row.exp().sum()) for i, row in enumerate(rows)) / len(rows)

    def group(x):
        elements = []
        for i in range(len(x[0])):
            chances = scores(x, x, i).exp()
            for k, p in enumerate(chances / chances.sum()):
                p = 1 / (1 + torch.exp(-p)) if group_positive == "bce_of_softmax" else p
                elements.append(-torch.log(p) if k < len(x) - 1 else -torch.log(1 - p))
        return sum(elements) / len(elements)

    def divergence(x, keys, y, others):
        rows = [[row.exp() / row.exp().sum() for row in (scores(x, keys, i), scores(y, others, i))]
                for i in range(len(x[0]))]
        elements = torch.cat([q * (torch.log(q) - torch.log(p)) for p, q in rows])
        return elements.sum() / (len(elements) if reduce == "element" else len(rows))

    networks = [views] if peer is None else [views, peer]
    total = sum(info_nce(x) + group(x) for x in networks)
    return total if peer is None else total + divergence(views, peer, peer, views) + divergence(views, views, peer, peer)


@pytest.mark.parametrize(("count", "with_peer", "group_positive", "reduce"), [
    (2, True, "bce", "element"), (4, True, "bce_of_softmax", "row"), (3, False, "bce", "element")])
def test_value_and_gradients_are_the_loops(group_positive, reduce, count, with_peer):
    inputs = list(torch.randn(8, 5, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64))
    inputs = [view.requires_grad_() for view in inputs[: count * (1 + with_peer)]]
    views, peer = inputs[:count], inputs[count:] or None
    options = {"temperature": 0.3, "group_positive": group_positive, "reduce": reduce}
    value, expected = losses.pcl(views, peer, **options), naive_pcl(views, peer, **options)
    assert value.item() == pytest.approx(expected.item(), abs=1e-12)
    for ours, theirs in zip(*(torch.autograd.grad(loss, inputs) for loss in (value, expected)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)


def test_probabilities_next_to_one_are_kept():
    scores = torch.tensor([[0.0, -1.0, 90.0]], dtype=torch.float32, requires_grad=True)
    value = group_cross_entropy(scores, 2, "bce")  # -log(1 - p) of the other text: 90 - log(1 + 1 / e)
    assert value.item() == pytest.approx((90 + 91 + 90 - math.log(1 + math.exp(-1))) / 3, rel=1e-6)
    value.backward()
    assert torch.isfinite(scores.grad).all()
    alone = torch.zeros(1, 1, requires_grad=True)  # one text of two views: certain
    group_cross_entropy(alone, 1, "bce").backward()
    assert alone.grad.item() == 0
    assert group_cross_entropy(torch.empty(0, 4, requires_grad=True), 2, "bce").item() == 0  # a process without a text
