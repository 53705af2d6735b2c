"""Losses of labelled pairs, and those of margins: against loops, torch, sentence-transformers, and values known before.
Ranking losses against their definitions in plain loops, values and gradients, and the community code's own terms."""

import math

import pytest
import torch
from info_nce_oracle import naive_nt_xent
from sentence_transformers import util
from sentence_transformers.sentence_transformer.losses import AnglELoss, CoSENTLoss
from torch import nn
from torch.nn import functional

from stsbench import losses
from stsbench.losses.labelled import cosent_of_similarities as cosent
from stsbench.losses.labelled import labelled_in_batch, pair_angles, pair_cosines, sbert_nli, sbert_regression
from stsbench.losses.ranking import bidirectional_margin, consistency, cosines, listmle, listnet, without_own
from stsbench.losses.ranking import triplet as triplet_hinge

SCORES = torch.tensor([3.0, 0.5, 0.5, 5.0, 1.0, 3.0, 0.0], dtype=torch.float64)
LABELS = (SCORES > 1).double()
N, D = len(SCORES), 6


def random(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype).requires_grad_()


def pairs(d=D, dtype=torch.float64, n=N):
    return [random(n, d, seed=seed, dtype=dtype) for seed in (1, 2)]


def same(value, expected, inputs, tolerance):
    """Value and gradients."""
    ours, theirs = (torch.autograd.grad(each, inputs, retain_graph=True, allow_unused=True, materialize_grads=True)
                    for each in (value, expected))
    gaps = [abs(value.item() - expected.item()), *(float((a - b).abs().max()) for a, b in zip(ours, theirs, strict=True))]
    assert max(gaps) < tolerance and math.isfinite(max(gaps)), gaps


# block of features -> that of two vectors
BLOCKS = {"u": lambda u, v: u, "v": lambda u, v: v, "difference": lambda u, v: (u - v).abs(),
          "product": lambda u, v: u * v, "max_square": lambda u, v: torch.maximum(u, v) ** 2}


@pytest.mark.parametrize(("with_bias", "names"), [(False, ("product", "u")), (True, tuple(BLOCKS))])
def test_nli_is_torch_s_cross_entropy_of_the_features(with_bias, names):
    u, v, labels = random(5, 4), random(5, 4, seed=1), torch.tensor([0, 1, 2, 1, 0])
    weight, bias = random(3, 4 * len(names), seed=2), random(3, seed=3) if with_bias else None
    features = torch.cat([BLOCKS[name](u, v) for name in names], 1)
    expected = functional.cross_entropy(functional.linear(features, weight, bias), labels)
    value = sbert_nli(u, v, labels, weight, bias, features=names)
    same(value, expected, (u, v, weight) if bias is None else (u, v, weight, bias), 1e-12)


def test_nli_takes_no_other_label_and_equal_vectors_without_a_gradient():
    u, v, weight = random(4, 6), random(4, 6, seed=1), random(3, 18, seed=2)
    with pytest.raises(IndexError):  # torch would leave out a label of -100 without a word
        sbert_nli(u, v, torch.tensor([0, 1, -100, 2]), weight)
    once = random(3, 4)
    sbert_nli(once, once.detach().clone(), torch.tensor([2, 0, 1]), random(3, 4), features=("difference",)).backward()
    assert not once.grad.any()  # the derivative of |x| at 0 is taken as 0


@pytest.mark.parametrize(("similarity", "scale"), [("cosine", (0.0, 5.0)), ("rescaled_cosine", (-1.0, 6.0))])
def test_regression_is_torch_s_squared_error_of_cosines(similarity, scale):
    u, v = pairs()
    cosines, targets = functional.cosine_similarity(u, v), (SCORES - scale[0]) / (scale[1] - scale[0])
    expected = functional.mse_loss(cosines if similarity == "cosine" else (cosines + 1) / 2, targets)
    same(sbert_regression(u, v, SCORES, scale=scale, similarity=similarity), expected, (u, v), 1e-12)


def test_triplets_are_torch_s():
    rows = [random(6, 5, seed=seed) for seed in range(3)]
    same(triplet_hinge(*rows, margin=1.0), functional.triplet_margin_loss(*rows, margin=1.0), rows, 1e-5)
    triplet_hinge(rows[0], rows[0].detach().clone(), rows[2], margin=9.0).backward()  # a distance of 0
    assert rows[0].grad.isfinite().all()


def test_contrastive_tension_is_the_loop():
    x, y, labels = random(6, 8), random(6, 8, seed=1), [1, 0, 0, 1, 0, 0]
    chances = [1 / (1 + math.exp(-float(a @ b))) for a, b in zip(x, y, strict=True)]
    values = [-math.log(p if label else 1 - p) for p, label in zip(chances, labels, strict=True)]
    assert losses.ct(x, y, torch.tensor(labels)).item() == pytest.approx(sum(values) / 6, abs=1e-12)
    assert losses.ct(x, y, torch.tensor(labels), reduction="sum").item() == pytest.approx(sum(values), abs=1e-12)


@pytest.mark.parametrize(("d", "alpha", "expected"), [
    (0.05, 0.1, (0.15, -1, 1)), (-0.5, 0.1, (0.2, 1, -1)), (-0.2, 0.1, (0, 0, 0)), (-0.2, 0.25, (0.05, -1, 1))])
def test_the_bidirectional_margin_by_hand(d, alpha, expected):
    """One sentence, whose cosines differ by d: the value, and the gradient of each cosine."""
    cosines = [torch.tensor(each, dtype=torch.float64, requires_grad=True) for each in (0.2, 0.2 + d)]
    rows = [torch.stack([each, (1 - each**2).sqrt()]).unsqueeze(0) for each in cosines]
    value = bidirectional_margin(torch.tensor([[1.0, 0.0]], dtype=torch.float64), *rows, alpha=alpha, beta=0.3)
    value.backward()
    assert (value.item(), *(each.grad.item() for each in cosines)) == pytest.approx(expected, abs=1e-12)


def test_the_margin_knows_no_lengths_and_is_a_mean():
    a, p, m = (random(6, 4, seed=seed) for seed in range(3))
    value = bidirectional_margin(a, p, m, alpha=0.1, beta=0.3).item()
    scaled = bidirectional_margin(7 * a, p / 3, m * torch.arange(1, 7).unsqueeze(1), alpha=0.1, beta=0.3)
    each = [bidirectional_margin(a[i : i + 1], p[i : i + 1], m[i : i + 1], alpha=0.1, beta=0.3).item() for i in range(6)]
    assert value > 0.05 and (scaled.item(), sum(each) / 6) == pytest.approx((value, value), abs=1e-12)


def test_labelled_in_batch_negatives_equal_a_loop_in_shares_too():
    (u, v), scale = pairs(), 20.0
    expected = (naive_nt_xent(u, v, 1 / scale) * torch.cat([LABELS, LABELS])).mean()
    same(labelled_in_batch(u, v, LABELS, scale=scale), expected, (u, v), 1e-8)
    parts = [(n, labelled_in_batch(u[at : at + n], v[at : at + n], LABELS[at : at + n], scale=scale, all_first=u,
                                   all_second=v, start=at)) for at, n in ((0, 3), (3, 4))]
    same(sum(n * value for n, value in parts) / N, expected, (u, v), 1e-8)


@pytest.mark.parametrize(("kind", "similarity", "d", "scores", "scale"), [
    (CoSENTLoss, pair_cosines, 6, SCORES, 20.0), (CoSENTLoss, pair_cosines, 7, LABELS, 1.0),
    (AnglELoss, pair_angles, 7, SCORES, 20.0), (AnglELoss, pair_angles, 6, LABELS, 1.0)])
def test_values_and_gradients_are_sentence_transformers(kind, similarity, d, scores, scale):
    # float32: a cosine's last digit times 20
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float64, 1e-12)):
        u, v = pairs(d, dtype)
        theirs = kind(nn.Identity(), scale=scale)([{"sentence_embedding": u}, {"sentence_embedding": v}], scores.to(dtype))
        same(cosent(similarity(u, v), scores, scale=scale), theirs, (u, v), tolerance)
    assert (pair_angles(u, v) - util.pairwise_angle_sim(u, v)).abs().max() < 1e-12


def test_angle_adds_its_terms_up_by_their_weights_and_scales():
    (u, v), n = pairs(), random(N, D, seed=3)
    weights = {"cosine_weight": 2.0, "angle_weight": 3.0, "ibn_scale": 10.0, "cosine_scale": 5.0, "angle_scale": 7.0}

    def ranked(first, second, scores):
        return (2 * cosent(pair_cosines(first, second), scores, scale=5.0)
                + 3 * cosent(pair_angles(first, second), scores, scale=7.0))

    value = losses.angle(u, v, LABELS, ibn_weight=0.5, **weights)
    same(value, 0.5 * labelled_in_batch(u, v, LABELS, scale=10.0) + ranked(u, v, LABELS), (u, v), 1e-12)
    value = losses.angle_triplets(u, v, n, ibn_weight=0.5, cln_weight=0.25, **weights)
    both = ranked(torch.cat([u, u]), torch.cat([v, n]), torch.tensor([1.0] * N + [0.0] * N))
    in_batch = losses.simcse(u, v, temperature=0.1) / 4 + losses.simcse(u, v, n, temperature=0.1) / 8
    same(value, in_batch + both, (u, v, n), 1e-12)


def test_cosent_does_not_overflow():
    assert cosent(torch.tensor([1.0, 0.0]), torch.tensor([1.0, 3.0]), scale=500.0).item() == 500.0


# ---- a student ranks the sentences of a batch as a teacher does

ROWS = 5


def scores(seed, rows=ROWS, columns=ROWS, scale=4.0):
    return (scale * random(rows, columns, seed=seed)).detach().requires_grad_()


def naive_listnet(student, teacher):
    return functional.cross_entropy(student, teacher.softmax(1).detach())


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
        p, q = (row.exp() / sum(each.exp() for each in row) for row in (s, t))
        m = (p + q) / 2
        total = total + sum(p * (p / m).log() + q * (q / m).log()) / 2
    return total / len(first)


def community_divergence(first, second):
    """What the community code computes of the two softmaxes, by torch's own KLDivLoss."""
    divergence = nn.KLDivLoss(reduction="batchmean", log_target=True)
    p, q = (rows.softmax(dim=-1).clamp(min=1e-7) for rows in (first, second))
    middle = (0.5 * (p + q)).log().clamp(min=1e-7)
    return 0.5 * (divergence(middle, p.log()) + divergence(middle, q.log()))


@pytest.mark.parametrize(("value", "naive"), [
    (listnet, naive_listnet), (listmle, naive_listmle), (consistency, naive_js),
    (lambda s, t: listmle(s, t, eps=1e-7), lambda s, t: naive_listmle(s, t, 1e-7)),
    (lambda s, t: listmle(s, t, ranks="mean"), lambda s, t: naive_listmle(s, t, mean=True)),
    (lambda s, t: consistency(s, t, "entropy"), community_divergence)])
def test_values_and_gradients_are_those_of_the_definition(value, naive):
    s, t = scores(0), scores(1)
    loss, of = value(s, t), (s, t) if naive in (naive_js, community_divergence) else (s,)
    same(loss, naive(s, t), of, 1e-10)
    assert all(gradient.abs().max() > 1e-3 for gradient in torch.autograd.grad(loss, of))


def test_cosines_and_lists_without_a_row_s_own():
    a, b = scores(7, 3, 6).detach(), scores(8, ROWS, 6).detach()
    naive = [[float(x @ y) / math.sqrt(float(x @ x) * float(y @ y)) for y in b] for x in a]
    assert cosines(a, b).numpy() == pytest.approx(torch.tensor(naive, dtype=a.dtype).numpy(), abs=1e-12)
    assert without_own(torch.arange(10.0).reshape(2, 5), 2).tolist() == [[0, 1, 3, 4], [5, 6, 7, 9]]


def test_a_student_ranks_by_its_cosines_over_its_temperature():
    first, second, teacher = scores(9, ROWS, 6), scores(10, ROWS, 6), scores(11, scale=0.5).detach()
    student = cosines(first, second) / 0.3
    for value, expected in (
        (losses.rankcse(first, second, teacher, student_temperature=0.3), naive_listmle(student, teacher)),
        (losses.rankcse(first, second, teacher, student_temperature=0.3, ranks="mean", eps=1e-7),
         naive_listmle(student, teacher, 1e-7, mean=True)),
        (losses.rankcse(first, second, teacher, loss="listnet", student_temperature=0.3, teacher_temperature=0.7),
         naive_listnet(without_own(student, 0), without_own(teacher, 0) / 0.7))):
        assert value.item() == pytest.approx(expected.item(), abs=1e-10)


def test_a_student_is_distilled_by_each_loss_of_each_objective():
    student, vectors, teacher = scores(12, ROWS, 6), scores(13, ROWS, 6).detach(), scores(14, scale=0.5).detach()
    rows, theirs = without_own(cosines(student, student), 0), without_own(teacher, 0)
    t = {"student_temperature": 0.3, "teacher_temperature": 0.7}
    entropy = sum((p * p.log()).sum() for p in (theirs / 0.7).softmax(1)) / ROWS
    ranks, similarities = {"objective": "ranks", **t}, {"objective": "similarities", **t}
    for value, expected in (
        (losses.distil(student, vectors), ((student - vectors) ** 2).mean()),
        (losses.distil(student, vectors, loss="cosine"), 1 - torch.cosine_similarity(student, vectors).mean()),
        (losses.distil(student, vectors, loss="contrastive", **t), sum(
            (row / 0.3).exp().sum().log() - row[i] / 0.3 for i, row in enumerate(cosines(student, vectors))) / ROWS),
        (losses.distil(student, teacher, loss="mse", **similarities), ((rows - theirs) ** 2).mean()),
        (losses.distil(student, teacher, loss="kl", **similarities), entropy + naive_listnet(rows / 0.3, theirs / 0.7)),
        (losses.distil(student, teacher, loss="listmle", **ranks), naive_listmle(rows / 0.3, theirs)),
        (losses.distil(student, teacher, loss="listnet", **ranks), naive_listnet(rows / 0.3, theirs / 0.7))):
        assert value.item() == pytest.approx(expected.item(), abs=1e-10)
