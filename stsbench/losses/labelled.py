"""Losses of pairs with labels: cross-entropy of natural language inference and regression of a cosine (Sentence-BERT), the
order of similarities (CoSENT, AnglE), and whether both texts are the same sentence (Contrastive Tension)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from stsbench.losses.arguments import (
    check_numbers,
    check_positive,
    check_rows,
    check_weights,
    nan_unless_finite,
    unit,
    wide,
)
from stsbench.losses.choices import SBERT_FEATURES, Feature, Reduction, RegressedSimilarity
from stsbench.losses.contrastive import info_nce

_BLOCKS: dict[Feature, Callable[[Tensor, Tensor], Tensor]] = {
    "u": lambda u, v: u,
    "v": lambda u, v: v,
    "difference": lambda u, v: (u - v).abs(),
    "product": lambda u, v: u * v,
    "max_square": lambda u, v: u.maximum(v) ** 2,
}


def sbert_nli(
    first: Tensor, second: Tensor, labels: Tensor, weight: Tensor, bias: Tensor | None = None, *,
    features: tuple[Feature, ...] = SBERT_FEATURES,
) -> Tensor:
    """Return Sentence-BERT's cross-entropy of natural language inference.

        mean over pairs of -log softmax(W [u; v; |u - v|] + b)[label]

    first, second: u and v, (n, d), premises and hypotheses; labels: (n,) class numbers; weight: W, (c, k d) for c classes
    and the k blocks of `features`, and bias: b, (c,), which the paper does not have: those of a torch.nn.Linear that is
    trained with the encoder. In float32 at least, also under autocast. Gives a scalar with a gradient; no pair gives 0.
    Sources: Reimers and Gurevych (2019), Sentence-BERT, section 3, classification objective, and section 6, Table 6;
    max_square: the code of Yan et al. (2021), ConSERT.

    >>> import torch
    >>> from stsbench import losses
    >>> head = torch.nn.Linear(3 * 8, 3)
    >>> u, v, labels = torch.randn(4, 8), torch.randn(4, 8), torch.tensor([0, 1, 2, 0])
    >>> losses.sbert_nli(u, v, labels, head.weight, head.bias).shape
    torch.Size([])
    """
    check_rows(first=first, second=second)
    check_numbers(labels, len(first), "labels")
    # torch silently ignores the label -100: with a number that no label has, every pair counts
    ignored = torch.iinfo(torch.int64).min
    with torch.autocast(first.device.type, enabled=False):
        blocks = [_BLOCKS[name](wide(first), wide(second)) for name in features]
        logits = functional.linear(torch.cat(blocks, dim=1), wide(weight), None if bias is None else wide(bias))
        return functional.cross_entropy(logits, labels, reduction="sum", ignore_index=ignored) / max(len(labels), 1)


def sbert_regression(
    first: Tensor, second: Tensor, scores: Tensor, *, scale: tuple[float, float] = (0.0, 5.0),
    similarity: RegressedSimilarity = "cosine",
) -> Tensor:
    """Return Sentence-BERT's regression loss, the mean squared error between cosines and rescaled scores.

        mean over pairs of (s(u, v) - score)^2,   s = cos, or (cos + 1) / 2 for "rescaled_cosine"

    first, second: u and v, (n, d); scores: (n,), in the data's units; scale: the least and the greatest possible score,
    which become 0 and 1. A norm below 1e-8 counts as 1e-8. In float32 at least, also under autocast. Gives a scalar with a
    gradient; no pair (n = 0) gives 0.
    Source: Reimers and Gurevych (2019), Sentence-BERT, section 3, regression objective.

    >>> import torch
    >>> from stsbench import losses
    >>> float(losses.sbert_regression(torch.eye(2), torch.eye(2), torch.tensor([5.0, 2.5])))  # (0 + 0.25) / 2
    0.125
    """
    check_rows(first=first, second=second)
    check_numbers(scores, len(first), "scores")
    low, high = scale
    check_positive(**{"the width of scale": high - low})
    similarities = functional.cosine_similarity(wide(first), wide(second), dim=1, eps=1e-8)
    if similarity == "rescaled_cosine":
        similarities = (similarities + 1) / 2
    targets = ((scores - low) / (high - low)).to(similarities.dtype)
    return functional.mse_loss(similarities, targets, reduction="sum") / max(len(targets), 1)


def ct(first: Tensor, second: Tensor, labels: Tensor, *, reduction: Reduction = "mean") -> Tensor:
    """Return Contrastive Tension's loss of single pairs; `ct_in_batch` is its loss with in-batch negatives.

        mean over pairs of -log s(z) where the label is 1, of -log(1 - s(z)) where it is 0;   z = first . second

    first, second: (n, d), by the two encoders; labels: (n,), 1 where both encoded the same sentence, else 0; s: the logistic
    function. In float32 at least, also under autocast, and from the logit: a dot product is unbounded, and its exponential
    overflows float16 at 11. No pair (n = 0) gives 0. reduction "sum": sentence-transformers' ContrastiveTensionLoss.
    Source: ContrastiveTensionModel.py of Carlsson et al. (2021), `predictAndUpdate`.

    >>> import torch
    >>> from stsbench import losses
    >>> z, labels = torch.eye(2), torch.tensor([1, 0])
    >>> round(float(losses.ct(z, z, labels)), 4)  # (ln(1 + 1 / e) + ln(1 + e)) / 2
    0.8133
    """
    check_rows(first=first, second=second)
    check_numbers(labels, len(first), "labels")
    with torch.autocast(first.device.type, enabled=False):
        logits = (wide(first) * wide(second)).sum(1)
        values = functional.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype), reduction="sum")
    return values if reduction == "sum" else values / max(len(first), 1)


def cosent_of_similarities(similarities: Tensor, scores: Tensor, *, scale: float = 20.0) -> Tensor:
    """Return CoSENT's loss, which is small where the order of similarities is the order of scores.

        log( 1 + sum over i, j with y_i < y_j of exp(scale (s_i - s_j)) )

    similarities: s, (n,), one number a pair of texts, larger for more similar texts; scores: y, (n,), of which only the
    order counts: equal scores add no term, and if all are equal, the loss is 0. It is not a mean: the sum is inside the
    logarithm, so that losses of different numbers of pairs are not comparable. It holds (n, n) numbers. In float32 at least.
    Source: J. Su, CoSENT, bojone/CoSENT@124c368:cosent.py.
    """
    check_positive(scale=scale)
    s = scale * wide(similarities)
    ordered = scores.unsqueeze(1) < scores.unsqueeze(0)
    gaps = (s.unsqueeze(1) - s.unsqueeze(0)).masked_fill(~ordered, -torch.inf)
    return torch.cat([s.new_zeros(1), gaps.flatten()]).logsumexp(0) + nan_unless_finite(scores=scores)


def cosent(first: Tensor, second: Tensor, scores: Tensor, *, scale: float = 20.0) -> Tensor:
    """Return CoSENT's loss: `cosent_of_similarities` of the cosines of pairs.

        log( 1 + sum over i, j with score_i < score_j of exp(scale (cos_i - cos_j)) )

    first, second: u and v, (n, d), the two texts of a pair row by row; scores: (n,), of which only the order counts. The
    loss is of the batch, not a mean over pairs. Gives a scalar with a gradient, in float32 at least.
    Source: J. Su (2022), CoSENT, bojone/CoSENT@124c368.

    >>> import torch
    >>> from stsbench import losses
    >>> u, v = torch.eye(2), torch.tensor([[0.0, 1.0], [0.0, 1.0]])  # cosines 0 and 1, in the order of the scores
    >>> round(float(losses.cosent(u, v, torch.tensor([1.0, 3.0]), scale=1.0)), 4)  # ln(1 + 1 / e)
    0.3133
    """
    check_rows(first=first, second=second)
    check_numbers(scores, len(first), "scores")
    return cosent_of_similarities(pair_cosines(first, second), scores, scale=scale)


def pair_cosines(u: Tensor, v: Tensor) -> Tensor:
    """Return the (n,) cosines of u_i and v_i, (n, d) each, in float32 at least. A norm below 1e-8 counts as 1e-8."""
    return (unit(u) * unit(v)).sum(1)


def pair_angles(u: Tensor, v: Tensor) -> Tensor:
    """Return AnglE's similarity, (n,), of u_i and v_i, (n, d) each.

        |cos(u, v) + cos(u, Jv)|,   J(c; d) = (-d; c)

    The halves of a vector are the real and the imaginary parts of d / 2 complex numbers: this is the absolute value of the
    sum of all parts of u times v's conjugate, over |u| |v|. From 0 to sqrt(2); 1 for equal vectors and for opposite ones;
    not symmetric. For an odd d a zero is appended, as in sentence-transformers. In float32 at least; a norm below 1e-8
    counts as 1e-8.
    Source: Li and Li (2024), AnglE; SeanLee97/AnglE@1af7261:angle_emb/loss.py.
    """
    one, other = (functional.pad(unit(rows), (0, rows.shape[1] % 2)) for rows in (u, v))
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
    """Return AnglE's in-batch loss of labelled pairs.

        mean over this process's 2n texts of -log softmax(scale cos) at a text's partner, 0 where its pair has label 0

    first, second: (n, d), the two texts of this process's pairs; labels: (n,), 1 or 0; all_first, all_second: (N, d), the
    texts of the whole batch, this process's from row `start` on; by default first and second. The softmax is over the other
    2N - 1 texts, those of pairs with label 0 included, which also count in the mean. No pair (n = 0) gives 0, with a
    gradient. Products are taken in float32 at least.
    Source: SeanLee97/AnglE@1af7261:angle_emb/loss.py, in-batch negatives.
    """
    check_positive(scale=scale)
    all_first, all_second = (first, second) if all_first is None or all_second is None else (all_first, all_second)
    rows = torch.arange(len(first), device=first.device) + start
    with torch.autocast(first.device.type, enabled=False):
        one, two, all_one, all_two = (unit(vectors) for vectors in (first, second, all_first, all_second))
        losses = []
        for texts, same, others in ((one, all_one, all_two), (two, all_two, all_one)):
            itself = torch.zeros(len(texts), len(same), dtype=torch.bool, device=texts.device)
            itself[rows - start, rows] = True
            logits = torch.cat([texts @ others.T, (texts @ same.T).masked_fill(itself, -torch.inf)], dim=1) * scale
            losses.append(functional.cross_entropy(logits, rows, reduction="none"))
    return (torch.cat(losses) * labels.repeat(2)).sum() / max(2 * len(first), 1)


def angle(
    first: Tensor, second: Tensor, scores: Tensor, *, ibn_weight: float = 1.0, cosine_weight: float = 0.0,
    angle_weight: float = 0.02, ibn_scale: float = 20.0, cosine_scale: float = 20.0, angle_scale: float = 20.0,
) -> Tensor:
    """Return AnglE's loss of labelled pairs (its data format A); `angle_triplets` is its loss of triplets (format C).

        ibn_weight L_ibn + cosine_weight CoSENT(cosines) + angle_weight CoSENT(angles)

    first, second: u and v, (n, d), the two texts of a pair row by row; scores: (n,), of which CoSENT uses the order; with
    ibn_weight they have to be 0 and 1. The angle of u and v is |cos(u, v) + cos(u, Jv)|, J(c; d) = (-d; c) for the
    halves c and d of a vector: it does not tell v from -v, and is not symmetric. With weights 0, 0 and 1 this is
    sentence-transformers' AnglELoss. L_ibn is `labelled_in_batch`. Gives a scalar with a gradient, in float32 at least.
    Source: Li and Li (2024), AnglE; SeanLee97/AnglE@1af7261:angle_emb/loss.py.

    >>> import torch
    >>> from stsbench import losses
    >>> u, v = torch.eye(2), torch.tensor([[1.0, 0.0], [0.0, -1.0]])  # equal, and opposite: both angles are 1
    >>> round(float(losses.angle(u, v, torch.tensor([1.0, 0.0]), ibn_weight=0.0, angle_weight=1.0)), 4)  # ln 2
    0.6931
    """
    check_rows(first=first, second=second)
    check_numbers(scores, len(first), "scores")
    check_positive(ibn_scale=ibn_scale, cosine_scale=cosine_scale, angle_scale=angle_scale)
    check_weights(ibn_weight=ibn_weight, cosine_weight=cosine_weight, angle_weight=angle_weight)
    terms = []
    if ibn_weight:
        if bool(((scores != 0) & (scores != 1)).any()):
            raise ValueError("scores must be 0 and 1 with an ibn_weight: graded ones have no in-batch target")
        terms.append(ibn_weight * labelled_in_batch(first, second, scores, scale=ibn_scale))
    if cosine_weight:
        terms.append(cosine_weight * cosent_of_similarities(pair_cosines(first, second), scores, scale=cosine_scale))
    if angle_weight:
        terms.append(angle_weight * cosent_of_similarities(pair_angles(first, second), scores, scale=angle_scale))
    return _sum(terms)


def angle_triplets(
    queries: Tensor, positives: Tensor, negatives: Tensor, *, ibn_weight: float = 1.0, cln_weight: float = 1.0,
    cosine_weight: float = 0.0, angle_weight: float = 0.02, ibn_scale: float = 20.0, cosine_scale: float = 20.0,
    angle_scale: float = 20.0,
) -> Tensor:
    """Return AnglE's loss of triplets (its data format C).

        (ibn_weight CE(q; p) + cln_weight CE(q; p, n)) / 2 + cosine_weight CoSENT(cosines) + angle_weight CoSENT(angles),
        CoSENT over the pairs (q, p) with the score 1 and (q, n) with 0

    queries, positives, negatives: (n, d); CE is InfoNCE on cosines times ibn_scale, with the queries as the only anchors.
    Gives a scalar with a gradient. In float32 at least.
    Source: Li and Li (2024), AnglE; SeanLee97/AnglE@5155458:angle_emb/loss.py.

    >>> import torch
    >>> from stsbench import losses
    >>> q = torch.eye(2)  # each at its positive, and at a right angle to all else
    >>> value = losses.angle_triplets(q, q, q.flip(0), angle_weight=0.0, ibn_scale=1.0)
    >>> round(float(value), 4)  # half of ln(1 + 1/e) and of ln(2 + 2/e)
    0.6598
    """
    check_rows(queries=queries, positives=positives, negatives=negatives)
    check_positive(ibn_scale=ibn_scale, cosine_scale=cosine_scale, angle_scale=angle_scale)
    check_weights(ibn_weight=ibn_weight, cln_weight=cln_weight, cosine_weight=cosine_weight, angle_weight=angle_weight)
    terms, temperature = [], 1 / ibn_scale
    if ibn_weight:
        terms.append(ibn_weight / 2 * info_nce(queries, positives, temperature=temperature))
    if cln_weight:
        terms.append(cln_weight / 2 * info_nce(queries, positives, temperature=temperature, negatives=[negatives]))
    scores = torch.cat([queries.new_ones(len(queries)), queries.new_zeros(len(queries))])
    for weight, similarity, scale in (
        (cosine_weight, pair_cosines, cosine_scale), (angle_weight, pair_angles, angle_scale)
    ):
        if weight:
            both = torch.cat([similarity(queries, positives), similarity(queries, negatives)])
            terms.append(weight * cosent_of_similarities(both, scores, scale=scale))
    return _sum(terms)


def _sum(terms: list[Tensor]) -> Tensor:
    """Return the sum of the terms. Raises ValueError without any."""
    if not terms:
        raise ValueError("no weight is above 0: there is no loss")
    return torch.stack(terms).sum()
