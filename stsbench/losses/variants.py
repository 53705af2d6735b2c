"""Variants of InfoNCE and NT-Xent, for a recipe's sections `guide` and `contrast`: without false negatives, which a frozen
guide model finds too similar (GIST; MultiCSR's mask); in several directions, with weights of hard negatives.

Sources: Solatorio (2024), GISTEmbed; Wang et al. (2024), MultiCSR; `multiple_negatives` names its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from stsbench.losses.arguments import check_positive, check_rows, nan_unless_finite
from stsbench.losses.choices import (
    Direction,
    GuidedLoss,
    Hardness,
    Masked,
    Partition,
    Similarity,
    Threshold,
    check_directions,
)
from stsbench.losses.contrastive import as_anchors, contrast_logits, scaled


@dataclass(frozen=True)
class GuideRule:
    """Rule by which a guide's cosines g mask negatives, and the loss that is computed with the others.

    threshold: a text is masked for anchor i where its g is greater than t_i: g(a_i, p_i) - margin (absolute),
    g(a_i, p_i) - margin |g(a_i, p_i)| (relative), phi (fixed). contrast_anchors, contrast_positives: whether other anchors
    are negatives of a_i, and other positives of p_i, in the same softmax. diagonals: whether a text is always masked in its
    own row, or by the rule, which keeps it where g(a_i, p_i) is 1. masked: whether masked texts are left out of the softmax
    or get the exponent 0. loss: cross-entropy, or the mean over all columns of -[y ln p + (1 - y) ln(1 - p)], p the softmax.
    """

    threshold: Threshold = "absolute"
    margin: float = 0.0
    phi: float = 1.0
    contrast_anchors: bool = True
    contrast_positives: bool = True
    diagonals: Literal["masked", "by_guide"] = "masked"
    masked: Masked = "remove"
    loss: GuidedLoss = "ce"

    def thresholds(self, positive: Tensor) -> Tensor:
        """Return the thresholds t_i, (n, 1). positive: g(a_i, p_i), (n,)."""
        if self.threshold == "fixed":
            return torch.full_like(positive, self.phi).unsqueeze(1)
        return (positive - self.margin * (positive.abs() if self.threshold == "relative" else 1.0)).unsqueeze(1)


@dataclass(frozen=True)
class GuideCosines:
    """The guide's cosines of n rows with the N rows of the whole batch, each (n, N): g(a_i, p_j); g(a_i, m_j) for each block
    of hard negatives; g(a_i, a_j); g(p_i, p_j)."""

    positives: Tensor
    negatives: tuple[Tensor, ...]
    anchors: Tensor
    between_positives: Tensor


def guided_info_nce(
    queries: Tensor, keys: Tensor, guide: GuideCosines, rule: GuideRule, *, anchors: Tensor | None = None,
    temperature: float = 0.05, similarity: Similarity = "cosine", negatives: Sequence[Tensor] = (),
    stored: Tensor | None = None, alpha: float = 1.0, start: int = 0,
) -> Tensor:
    """Return `info_nce` without the negatives that the guide masks, with those that the rule adds: a mean over queries.

    queries: (n, d), rows `start` to start + n of `anchors`, (N, d), the queries of the whole batch, which contrast_anchors
    needs; all else as for `info_nce`. Never masked are a query's own positive and `stored` vectors, whose texts the guide
    has not read. No query gives 0, with a gradient. In float32 at least.
    Sources: Solatorio (2024), GISTEmbed (its sentence-transformers form at temperature 0.01); Wang et al. (2024), MultiCSR
    (threshold fixed, masked zero, loss bce_of_softmax, no further blocks).
    """
    n = len(queries)
    with torch.autocast(queries.device.type, enabled=False):
        logits = contrast_logits(
            queries, keys, temperature=temperature, similarity=similarity, negatives=negatives, stored=stored, alpha=alpha,
            start=start,
        )
        limit = rule.thresholds(own_column(guide.positives, start))
        itself = torch.zeros_like(guide.positives, dtype=torch.bool)
        rows = torch.arange(n, device=queries.device)
        itself[rows, rows + start] = True
        removed = [(guide.positives > limit) & ~itself, *(block > limit for block in guide.negatives)]
        if stored is not None:
            removed.append(torch.zeros_like(logits[-1], dtype=torch.bool))
        if rule.contrast_anchors:
            if anchors is None:
                raise ValueError("contrast_anchors needs the anchors of the whole batch")
            logits.append(_among(queries, anchors, temperature, similarity, itself, rule))
            removed.append(guide.anchors > limit)
        if rule.contrast_positives:
            logits.append(_among(keys[start : start + n], keys, temperature, similarity, itself, rule))
            removed.append(guide.between_positives > limit)
        scores = _masked(torch.cat(logits, dim=1), torch.cat(removed, dim=1), rule)
        blocks = {f"guide of negatives {number}": block for number, block in enumerate(guide.negatives, 1)}
        known = nan_unless_finite(
            **blocks, guide=guide.positives, guide_of_anchors=guide.anchors, guide_of_positives=guide.between_positives
        )
        return _mean_loss(scores, rows + start, rule.loss) + known


def guided_nt_xent(
    first: Tensor, second: Tensor, guide: Tensor, rule: GuideRule, *, temperature: float = 0.1,
    all_first: Tensor | None = None, all_second: Tensor | None = None, start: int = 0,
) -> Tensor:
    """Return `nt_xent` without the views of texts that the guide masks; the mean over 2n views.

    guide: (n, N), g of this process's texts with all texts of the batch, used for both views of a text. NT-Xent has both
    views of all other texts as negatives, so that the rule's contrast_anchors and contrast_positives have no effect.
    All else as for `nt_xent`.
    """
    all_first, all_second = (first, second) if all_first is None or all_second is None else (all_first, all_second)
    rows = torch.arange(len(first), device=first.device)
    with torch.autocast(first.device.type, enabled=False):
        itself = torch.zeros_like(guide, dtype=torch.bool)
        itself[rows, rows + start] = True
        removed = (guide > rule.thresholds(own_column(guide, start))) & ~itself
        losses = []
        for view, others, same in ((first, all_second, all_first), (second, all_first, all_second)):
            unit = as_anchors(view, temperature, "cosine")
            across, along = (unit @ scaled(block, "cosine").T for block in (others, same))
            scores = _masked(torch.cat([across, along], dim=1), torch.cat([removed, removed], dim=1), rule)
            hidden = torch.cat([torch.zeros_like(itself), itself], dim=1)
            losses.append(_mean_loss(scores.masked_fill(hidden, -torch.inf), rows + start, rule.loss))
    return (losses[0] + losses[1]) / 2 + nan_unless_finite(guide=guide)


def masked_share(guide: GuideCosines, rule: GuideRule, start: int = 0) -> Tensor:
    """Return the share of negatives that the guide masks, a scalar, 0 without negatives: for `guided_info_nce`, or with the
    guide's cosines of anchors only for `guided_nt_xent`. A row's own text is not a negative."""
    limit = rule.thresholds(own_column(guide.positives, start))
    rows = torch.arange(len(guide.positives), device=guide.positives.device)
    other = torch.ones_like(guide.positives, dtype=torch.bool)
    other[rows, rows + start] = False
    blocks = [(guide.positives, other), *((block, torch.ones_like(other)) for block in guide.negatives)]
    blocks += [(guide.anchors, other)] if rule.contrast_anchors else []
    blocks += [(guide.between_positives, other)] if rule.contrast_positives else []
    masked = torch.stack([((block > limit) & negative).sum() for block, negative in blocks]).sum()
    return masked / torch.stack([negative.sum() for _, negative in blocks]).sum().clamp(min=1)


def own_column(cosines: Tensor, start: int) -> Tensor:
    """Return (n,), the cosine in column start + i of each row i of (n, N) cosines."""
    rows = torch.arange(len(cosines), device=cosines.device)
    return cosines[rows, rows + start]


def _among(
    rows: Tensor, every: Tensor, temperature: float, similarity: Similarity, itself: Tensor, rule: GuideRule
) -> Tensor:
    """Return the (n, N) logits of anchors with all anchors, or of positives with all positives."""
    logits = as_anchors(rows, temperature, similarity) @ scaled(every, similarity).T
    return logits.masked_fill(itself, -torch.inf) if rule.diagonals == "masked" else logits


def _masked(scores: Tensor, removed: Tensor, rule: GuideRule) -> Tensor:
    if rule.masked == "remove":
        return scores.masked_fill(removed, -torch.inf)
    return scores.masked_fill(removed & (scores > -torch.inf), 0.0)


def _mean_loss(scores: Tensor, targets: Tensor, loss: GuidedLoss) -> Tensor:
    """Return the mean loss of scores (n, C) with the targets (n,); no row gives 0."""
    if loss == "ce":
        return functional.cross_entropy(scores, targets, reduction="sum") / max(len(scores), 1)
    logs = scores.log_softmax(dim=1)
    right = functional.nll_loss(logs, targets, reduction="sum")
    # ln(1 - p) of the greatest p is computed from the other columns, as 1 - p is 0 in float32 where p is near 1
    top = scores.argmax(dim=1, keepdim=True)
    target = targets.unsqueeze(1)
    rest = scores.scatter(1, top, -torch.inf).masked_fill(top == target, 0.0).logsumexp(dim=1) - scores.logsumexp(dim=1)
    left_out = torch.zeros_like(scores, dtype=torch.bool).scatter(1, target, True).scatter(1, top, True)
    others = torch.log1p(-logs.exp().masked_fill(left_out, 0.0)).sum(dim=1)
    others = others + rest.masked_fill(top.squeeze(1) == targets, 0.0)
    return (right - others.sum()) / max(scores.numel(), 1)


def multiple_negatives(
    queries: Tensor, keys: Tensor, negatives: Sequence[Tensor] = (), *, directions: Sequence[Direction] = ("query_to_doc",),
    partition: Partition = "joint", hardness: Hardness = "none", strength: float = 0.0, temperature: float = 0.05,
    similarity: Similarity = "cosine", anchors: Tensor | None = None, start: int = 0,
) -> Tensor:
    """Return InfoNCE over the similarities of several directions, the mean over anchors q_i with positive d_i.

        joint: mean over i of -s(q_i, d_i) + log sum over all directions of exp(s);
        per_direction: mean over i of -s(q_i, d_i) + the mean over directions of log sum exp(s)

    directions: query_to_doc, q_i to all positives and hard negatives; query_to_query, q_i to the other anchors;
    doc_to_query, d_i to all anchors; doc_to_doc, d_i to all positives and hard negatives of other rows. query_to_doc is
    required; per_direction excludes query_to_query and doc_to_doc, which hold no positive. hardness: which logits of
    query_to_doc are raised by `strength` times their cosine, without a gradient: in_batch_negatives, those of other rows;
    hard_negatives, the row's own; all_negatives, both.

    queries: (n, d), this process's anchors; keys: (N, d), the positives of the whole batch; negatives: blocks of (N, d);
    anchors: (N, d), the anchors of the whole batch, this process's from row `start` on; None: queries. Gives a scalar with a
    gradient, in float32 at least. Raises ValueError for choices that do not go together.
    Sources: sentence-transformers, MultipleNegativesRankingLoss; Li et al. (2023), GTE, for all four; Lan et al. (2025),
    LLaVE, Eq. 5, and Schechter Vera et al. (2025), EmbeddingGemma, for hardness.

    >>> import torch
    >>> from stsbench import losses
    >>> z = torch.eye(4)  # 1 + 3 cosines of 0 in one direction, in both of them twice
    >>> round(float(losses.multiple_negatives(z, z, temperature=1.0, directions=["query_to_doc", "doc_to_query"])), 4)
    1.4369
    """
    check_directions(directions, partition, hardness, strength)
    check_positive(temperature=temperature)
    anchors = queries if anchors is None else anchors
    check_rows(anchors=anchors, keys=keys, **{f"negatives_{k}": block for k, block in enumerate(negatives)})
    n, total = len(queries), len(keys)
    if not 0 <= start <= total - n:
        raise ValueError(f"{n} queries from column {start} on do not fit into {total} keys")
    if hardness == "hard_negatives" and not negatives:
        raise ValueError("hardness hard_negatives needs hard negatives, and the rows have none")
    with torch.autocast(queries.device.type, enabled=False):
        rows, every, docs = (scaled(part, similarity) for part in (queries, anchors, torch.cat([keys, *negatives])))
        positives = docs[start : start + n]
        same = torch.eye(total, dtype=torch.bool, device=docs.device)[start : start + n]
        same_row = same.repeat(1, 1 + len(negatives))
        t = temperature if similarity == "cosine" else 1.0
        cosines = rows @ docs.T
        blocks = {"query_to_doc": cosines / t + strength * cosines.detach() * _penalty_mask(same_row, total, hardness)}
        if "query_to_query" in directions:
            blocks["query_to_query"] = (rows @ every.T / t).masked_fill(same, -torch.inf)
        if "doc_to_query" in directions:
            blocks["doc_to_query"] = positives @ every.T / t
        if "doc_to_doc" in directions:
            blocks["doc_to_doc"] = (positives @ docs.T / t).masked_fill(same_row, -torch.inf)
        matched = blocks["query_to_doc"][:, start : start + n].diagonal()
        if partition == "joint":
            normaliser = torch.cat([*blocks.values()], dim=1).logsumexp(1)
        else:
            normaliser = torch.stack([block.logsumexp(1) for block in blocks.values()]).mean(0)
        return (normaliser - matched).sum() / max(n, 1)


def _penalty_mask(same_row: Tensor, total: int, hardness: Hardness) -> Tensor:
    """Return (n, (1 + k) N), true for the logits that `hardness` raises. same_row: true for texts of the query's row."""
    positive = same_row.clone()
    positive[:, total:] = False
    chosen = {"none": torch.zeros_like(same_row), "in_batch_negatives": ~same_row, "all_negatives": ~positive,
              "hard_negatives": same_row & ~positive}
    return chosen[hardness]
