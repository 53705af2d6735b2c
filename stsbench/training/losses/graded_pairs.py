"""Pairs with graded labels: the similarities of a batch are to stand in the order of the labels (CoSENT, AnglE)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from stsbench.training.losses.rows import check_positive, nan_unless_finite

_EPS = 1e-8  # the smallest norm that is divided by


def cosent(similarities: Tensor, scores: Tensor, *, scale: float = 20.0) -> Tensor:
    """log(1 + the sum over all pairs i, j with y_i < y_j of exp(scale (s_i - s_j))).

    similarities: s, (n,), one number a pair of texts, larger for more similar ones; scores: y, (n,), of which the order
    alone counts: equal ones make no term, and without two different ones the loss is 0. It is no mean: the sum stands inside
    the logarithm, so that values of other numbers of pairs are not comparable. (n, n) numbers are held. In float32 at
    least.
    Source: J. Su, CoSENT, bojone/CoSENT@124c368:cosent.py.
    """
    check_positive(scale=scale)
    s = scale * _wide(similarities)
    ordered = scores.unsqueeze(1) < scores.unsqueeze(0)
    gaps = (s.unsqueeze(1) - s.unsqueeze(0)).masked_fill(~ordered, -torch.inf)
    return torch.cat([s.new_zeros(1), gaps.flatten()]).logsumexp(0) + nan_unless_finite(scores=scores)


def pair_cosines(u: Tensor, v: Tensor) -> Tensor:
    """(n,) cosines of u_i and v_i, (n, d) each, in float32 at least. A norm below 1e-8 counts as 1e-8."""
    return (_unit(u) * _unit(v)).sum(1)


def pair_angles(u: Tensor, v: Tensor) -> Tensor:
    """(n,) AnglE's similarity of u_i and v_i, (n, d) each: |cos(u, v) + cos(u, Jv)|, J(c; d) = (-d; c).

    The halves of a vector are the real and the imaginary parts of d / 2 complex numbers: this is the absolute value of the
    sum of all parts of u times v's conjugate, over |u| |v|. From 0 to sqrt(2); 1 for equal vectors and for opposite ones;
    not symmetric. An odd d has a zero behind it, as in sentence-transformers. In float32 at least; a norm below 1e-8 counts
    as 1e-8.
    Source: Li and Li (2024), AnglE; SeanLee97/AnglE@1af7261:angle_emb/loss.py.
    """
    one, other = (functional.pad(_unit(rows), (0, rows.shape[1] % 2)) for rows in (u, v))
    (a, b), (c, d) = one.chunk(2, dim=1), other.chunk(2, dim=1)
    return ((a * c + b * d) + (b * c - a * d)).sum(1).abs()


def labelled_in_batch(
    first: Tensor,
    second: Tensor,
    labels: Tensor,
    *,
    scale: float = 20.0,
    all_first: Tensor | None = None,
    all_second: Tensor | None = None,
    start: int = 0,
) -> Tensor:
    """The mean over this process's 2n texts of -log softmax(scale cos) at a text's partner, 0 where its pair has label 0.

    first, second: (n, d), the two texts of this process's pairs; labels: (n,), 1 or 0; all_first, all_second: (N, d), those
    of the whole batch, of which this process's begin at row `start`; by default first and second. The softmax is over the
    other 2N - 1 texts, the partners of pairs with label 0 among them. Texts of such pairs count in the mean. No pair gives
    0, with a gradient. Products are taken in float32 at least.
    Source: SeanLee97/AnglE@1af7261:angle_emb/loss.py, in-batch negatives.
    """
    check_positive(scale=scale)
    all_first, all_second = (first, second) if all_first is None or all_second is None else (all_first, all_second)
    rows = torch.arange(len(first), device=first.device) + start
    with torch.autocast(first.device.type, enabled=False):
        one, two, all_one, all_two = (_unit(vectors) for vectors in (first, second, all_first, all_second))
        losses = []
        for texts, same, others in ((one, all_one, all_two), (two, all_two, all_one)):
            itself = torch.zeros(len(texts), len(same), dtype=torch.bool, device=texts.device)
            itself[rows - start, rows] = True
            logits = torch.cat([texts @ others.T, (texts @ same.T).masked_fill(itself, -torch.inf)], dim=1) * scale
            losses.append(functional.cross_entropy(logits, rows, reduction="none"))
    return (torch.cat(losses) * labels.repeat(2)).sum() / max(2 * len(first), 1)


def _wide(numbers: Tensor) -> Tensor:
    return numbers.to(torch.promote_types(numbers.dtype, torch.float32))


def _unit(vectors: Tensor) -> Tensor:
    """The vectors in float32 or better, of norm 1."""
    return functional.normalize(_wide(vectors), dim=1, eps=_EPS)
