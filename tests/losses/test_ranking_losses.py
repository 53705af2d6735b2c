"""Ranking losses against their definitions in plain loops, values and gradients, and the community code's own terms."""

import math

import pytest
import torch
from torch import nn

from stsbench import losses
from stsbench.losses.ranking import consistency, cosines, listmle, listnet, without_own

N = 5


def scores(seed, rows=N, columns=N, scale=4.0):
    drawn = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (scale * drawn).requires_grad_()


def softmax(row):
    return [each.exp() / sum(other.exp() for other in row) for each in row]


def naive_listnet(student, teacher):
    return -sum(sum(b.detach() * a.log() for a, b in zip(softmax(s), softmax(t), strict=True))
                for s, t in zip(student, teacher, strict=True)) / len(student)


def naive_listmle(student, teacher, eps=0.0, mean=False):
    total = 0.0
    for s, t in zip(student, teacher, strict=True):
        order = sorted(range(len(t)), key=lambda column: -t[column].item())
        top = s.max() if eps else 0.0
        parts = [(sum((s[m] - top).exp() for m in order[k:]) + eps).log() - (s[order[k]] - top) for k in range(len(order))]
        total = total + sum(parts) / (len(parts) if mean else 1)
    return total / len(student)


def naive_js(first, second):
    total = 0.0
    for s, t in zip(first, second, strict=True):
        p, q = softmax(s), softmax(t)
        m = [(a + b) / 2 for a, b in zip(p, q, strict=True)]
        total = total + sum(a * (a / c).log() + b * (b / c).log() for a, b, c in zip(p, q, m, strict=True)) / 2
    return total / len(first)


def community_divergence(first, second):
    """What the community code computes of the two softmaxes, by torch's own KLDivLoss."""
    divergence = nn.KLDivLoss(reduction="batchmean", log_target=True)
    p, q = (rows.softmax(dim=-1).clamp(min=1e-7) for rows in (first, second))
    middle = (0.5 * (p + q)).log().clamp(min=1e-7)
    return 0.5 * (divergence(middle, p.log()) + divergence(middle, q.log()))


@pytest.mark.parametrize(("value", "naive"), [
    (listnet, naive_listnet),
    (listmle, naive_listmle),
    (lambda s, t: listmle(s, t, eps=1e-7), lambda s, t: naive_listmle(s, t, 1e-7)),
    (lambda s, t: listmle(s, t, ranks="mean"), lambda s, t: naive_listmle(s, t, mean=True)),
    (consistency, naive_js),
    (lambda s, t: consistency(s, t, "entropy"), community_divergence),
])
def test_values_and_gradients_are_those_of_the_definition(value, naive):
    s, t = scores(0), scores(1)
    loss, expected = value(s, t), naive(s, t)
    assert loss.item() == pytest.approx(expected.item(), abs=1e-10)
    of = (s, t) if naive in (naive_js, community_divergence) else (s,)
    for ours, theirs in zip(torch.autograd.grad(loss, of), torch.autograd.grad(expected, of), strict=True):
        assert torch.allclose(ours, theirs, rtol=0, atol=1e-10) and ours.abs().max() > 1e-3


def test_cosines_and_lists_without_a_row_s_own():
    a, b = scores(7, 3, 6).detach(), scores(8, N, 6).detach()
    naive = [[float(x @ y) / math.sqrt(float(x @ x) * float(y @ y)) for y in b] for x in a]
    assert cosines(a, b).numpy() == pytest.approx(torch.tensor(naive, dtype=a.dtype).numpy(), abs=1e-12)
    assert without_own(torch.arange(10.0).reshape(2, 5), 2).tolist() == [[0, 1, 3, 4], [5, 6, 7, 9]]


def test_a_student_ranks_by_its_cosines_over_its_temperature():
    first, second, teacher = scores(9, N, 6), scores(10, N, 6), scores(11, scale=0.5).detach()
    student = cosines(first, second) / 0.3
    for value, expected in (
        (losses.rankcse(first, second, teacher, student_temperature=0.3), naive_listmle(student, teacher)),
        (losses.rankcse(first, second, teacher, student_temperature=0.3, ranks="mean", eps=1e-7),
         naive_listmle(student, teacher, 1e-7, mean=True)),
        (losses.rankcse(first, second, teacher, loss="listnet", student_temperature=0.3, teacher_temperature=0.7),
         naive_listnet(without_own(student, 0), without_own(teacher, 0) / 0.7)),
    ):
        assert value.item() == pytest.approx(expected.item(), abs=1e-10)


def test_a_student_is_distilled_by_each_loss_of_each_objective():
    student, vectors, teacher = scores(12, N, 6), scores(13, N, 6).detach(), scores(14, scale=0.5).detach()
    rows, theirs = without_own(cosines(student, student), 0), without_own(teacher, 0)
    t = {"student_temperature": 0.3, "teacher_temperature": 0.7}
    entropy = sum((p * p.log()).sum() for p in (theirs / 0.7).softmax(1)) / N
    ranks, similarities = {"objective": "ranks", **t}, {"objective": "similarities", **t}
    for value, expected in (
        (losses.distil(student, vectors), ((student - vectors) ** 2).mean()),
        (losses.distil(student, vectors, loss="cosine"), 1 - torch.cosine_similarity(student, vectors).mean()),
        (losses.distil(student, vectors, loss="contrastive", **t), sum(
            (row / 0.3).exp().sum().log() - row[i] / 0.3 for i, row in enumerate(cosines(student, vectors))) / N),
        (losses.distil(student, teacher, loss="mse", **similarities), ((rows - theirs) ** 2).mean()),
        (losses.distil(student, teacher, loss="kl", **similarities), entropy + naive_listnet(rows / 0.3, theirs / 0.7)),
        (losses.distil(student, teacher, loss="listmle", **ranks), naive_listmle(rows / 0.3, theirs)),
        (losses.distil(student, teacher, loss="listnet", **ranks), naive_listnet(rows / 0.3, theirs / 0.7)),
    ):
        assert value.item() == pytest.approx(expected.item(), abs=1e-10)
