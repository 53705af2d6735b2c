"""Contrastive losses: InfoNCE, with the positives of the other rows and all hard negatives of a batch as negatives; NT-Xent,
with all other views of a batch as negatives; and the methods' losses that are forms of one of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from stsbench.losses.arguments import check_positive, check_rows, check_weights, unit, wide
from stsbench.losses.choices import Reduction, Similarity


def info_nce(
    queries: Tensor,
    keys: Tensor,
    *,
    temperature: float = 0.05,
    similarity: Similarity = "cosine",
    negatives: Sequence[Tensor] = (),
    stored: Tensor | None = None,
    alpha: float = 1.0,
    start: int = 0,
) -> Tensor:
    """Return InfoNCE, the mean over anchors q_i, the positive of each in row t = start + i of `keys`.

        mean over i of -log( exp(s(q_i, k_t)) / Z_i ),
        Z_i = sum_j [ exp(s(q_i, k_j)) + sum_b w_ij exp(s(q_i, m_bj)) ] + sum_l exp(s(q_i, v_l)),
        w_ij = alpha where j = t, else 1

    queries: (n, d), this process's anchors; keys: (N, d), the positives of the whole batch; negatives: blocks m_b of
    (N, d), the hard negatives of the whole batch; stored: v (M, d), further negatives of every anchor, such as those of
    earlier batches. s is the cosine over `temperature`, or, with "dot", the plain product q . k without a temperature.
    One direction only: keys are never anchors. No anchor (n = 0) gives 0, with a gradient.
    Products are taken in float32 at least, also under autocast: a bfloat16 cosine over 0.05 is off by up to 0.08.
    Source: Gao, Yao and Chen (2021), SimCSE, Eq. 1 and 4 (no negatives), 5 (negatives) and 8 (alpha); dot: Table D.1;
    stored: Wu et al. (2022), ESimCSE.
    """
    if similarity not in ("cosine", "dot"):
        raise ValueError(f"similarity {similarity!r} is unknown (there are cosine, dot)")
    with torch.autocast(queries.device.type, enabled=False):
        logits = contrast_logits(
            queries, keys, temperature=temperature, similarity=similarity, negatives=negatives, stored=stored, alpha=alpha,
            start=start,
        )
        targets = torch.arange(len(queries), device=queries.device) + start
        losses = functional.cross_entropy(torch.cat(logits, dim=1), targets, reduction="sum")
    return losses / max(len(queries), 1)


def contrast_logits(
    queries: Tensor, keys: Tensor, *, temperature: float, similarity: Similarity, negatives: Sequence[Tensor] = (),
    stored: Tensor | None = None, alpha: float = 1.0, start: int = 0,
) -> list[Tensor]:
    """Return the logits s of `info_nce`, block by block: (n, N) for the keys and for each block of negatives, then (n, M)
    for the stored vectors.

    Raises ValueError for shapes that do not go together. Call it without autocast.
    """
    if not 0 <= start <= len(keys) - len(queries):
        raise ValueError(f"{len(queries)} queries from column {start} on do not fit into {len(keys)} keys")
    for block in negatives:
        if len(block) != len(keys):
            raise ValueError(f"a block of {len(block)} hard negatives beside {len(keys)} keys: each needs its own")
    check_positive(alpha=alpha)
    anchors = as_anchors(queries, temperature, similarity)
    logits = [anchors @ scaled(block, similarity).T for block in (keys, *negatives)]
    if alpha != 1:
        rows = torch.arange(len(queries), device=queries.device)
        shift = torch.zeros_like(logits[0])
        shift[rows, rows + start] = math.log(alpha)
        logits[1:] = [block + shift for block in logits[1:]]
    if stored is not None:
        logits.append(anchors @ scaled(stored, similarity).T)
    return logits


def as_anchors(queries: Tensor, temperature: float, similarity: Similarity) -> Tensor:
    """Return (n, d) anchors whose dot products with `scaled` vectors are cosines over the temperature, or plain products."""
    if similarity != "cosine":
        return scaled(queries, similarity)
    check_positive(temperature=temperature)
    return scaled(queries, similarity) / temperature


def scaled(vectors: Tensor, similarity: Similarity, eps: float = 1e-8) -> Tensor:
    """Return the vectors in float32 at least, with norm 1 if the similarity is the cosine. eps: as for `unit`."""
    return unit(vectors, eps) if similarity == "cosine" else wide(vectors)


def nt_xent(
    first: Tensor,
    second: Tensor,
    *,
    temperature: float = 0.1,
    all_first: Tensor | None = None,
    all_second: Tensor | None = None,
    start: int = 0,
) -> Tensor:
    """Return NT-Xent, the mean over this process's 2n views r; r+ is the other view of the same text.

        mean over r of -log( exp(s(r, r+)) / sum over the other 2N - 1 views r' of exp(s(r, r')) )

    first, second: (n, d), row by row the two views of this process's texts; all_first, all_second: (N, d), the views of the
    whole batch, this process's from row `start` on; by default first and second. s is the cosine over `temperature`. No text
    (n = 0) gives 0, with a gradient. Products are taken in float32 at least.
    Sources: Chen et al. (2020), SimCLR, Eq. 1; Yan et al. (2021), ConSERT, Eq. 2, whose code adds up the means over the
    first and over the second views: twice this.
    """
    all_first, all_second = (first, second) if all_first is None or all_second is None else (all_first, all_second)
    if len(all_first) != len(all_second) or not 0 <= start <= len(all_first) - len(first):
        views = f"{len(all_first)} and {len(all_second)} views"
        raise ValueError(f"{len(first)} texts from row {start} on do not fit into {views}")
    check_positive(temperature=temperature)
    rows = torch.arange(len(first), device=first.device)
    with torch.autocast(first.device.type, enabled=False):
        one, two, all_one, all_two = (unit(vectors, 1e-12) for vectors in (first, second, all_first, all_second))
        losses = [
            functional.cross_entropy(
                torch.cat([view @ others.T, _without_self(view @ same.T, rows, start)], dim=1) / temperature,
                rows + start, reduction="sum",
            )
            for view, others, same in ((one, all_two, all_one), (two, all_one, all_two))
        ]
    return (losses[0] + losses[1]) / max(2 * len(first), 1)


def _without_self(logits: Tensor, rows: Tensor, start: int) -> Tensor:
    """Return the logits (n, N) of first (or second) views with all first (second) views, -inf for a view with itself."""
    itself = torch.zeros_like(logits, dtype=torch.bool)
    itself[rows, rows + start] = True
    return logits.masked_fill(itself, -torch.inf)


def simcse(
    anchors: Tensor, positives: Tensor, negatives: Tensor | None = None, *, temperature: float = 0.05,
    similarity: Similarity = "cosine", alpha: float = 1.0,
) -> Tensor:
    """Return SimCSE's loss: `info_nce` of whole batches, row by row.

        mean over i of -log( exp(s(a_i, p_i)) / sum_j [ exp(s(a_i, p_j)) + w_ij exp(s(a_i, m_j)) ] ),
        w_ij = alpha where j = i, else 1

    anchors, positives: (n, d), row by row the two views of a sentence; negatives: (n, d), a hard negative of each row, or
    (k n, d), k blocks of hard negatives. s is the cosine over `temperature`, or, with "dot", the plain product. Gives a
    scalar with a gradient, in float32 at least. Raises ValueError for other shapes, as surplus positives would silently
    become negatives.
    Source: Gao, Yao and Chen (2021), SimCSE, Eq. 1 and 4 (no negatives), 5 (negatives) and 8 (alpha).

    >>> import torch
    >>> from stsbench import losses
    >>> z = torch.eye(4)  # each view its sentence's own, at right angles to all others: ln(1 + 3 / e)
    >>> round(float(losses.simcse(z, z, temperature=1.0)), 4)
    0.7437
    """
    check_rows(anchors=anchors, positives=positives)
    blocks = () if negatives is None else negatives.split(len(anchors))
    return info_nce(anchors, positives, temperature=temperature, similarity=similarity, negatives=blocks, alpha=alpha)


def promptbert(
    anchors: Tensor, positives: Tensor, negatives: Tensor | None = None, *, temperature: float = 0.05,
    similarity: Similarity = "cosine",
) -> Tensor:
    """Return PromptBERT's loss: SimCSE's loss of vectors at [MASK] minus that of the template alone.

        mean over i of -log( exp(s(a_i, p_i)) / sum_j [ exp(s(a_i, p_j)) + exp(s(a_i, m_j)) ] )

    The arguments are those of `simcse`. Source: Jiang et al. (2022), PromptBERT.

    >>> import torch
    >>> from stsbench import losses
    >>> z = torch.eye(4)
    >>> round(float(losses.promptbert(z, z, temperature=1.0)), 4)
    0.7437
    """
    return simcse(anchors, positives, negatives, temperature=temperature, similarity=similarity)


def diffaug(
    anchors: Tensor, positives: Tensor, negatives: Tensor | None = None, *, temperature: float = 0.05,
    similarity: Similarity = "cosine",
) -> Tensor:
    """Return DiffAug's loss of its stage joint: SimCSE's loss of vectors encoded with the two prefixes.

        mean over i of -log( exp(s(a_i, p_i)) / sum_j [ exp(s(a_i, p_j)) + exp(s(a_i, m_j)) ] )

    The arguments are those of `simcse`. Source: Wang and Lu (2022), DiffAug. The loss of its stage prefix is `sbert_nli`.

    >>> import torch
    >>> from stsbench import losses
    >>> z = torch.eye(4)
    >>> round(float(losses.diffaug(z, z, temperature=1.0)), 4)
    0.7437
    """
    return simcse(anchors, positives, negatives, temperature=temperature, similarity=similarity)


def diffcse(
    anchors: Tensor, positives: Tensor, negatives: Tensor | None = None, *, temperature: float = 0.05,
    similarity: Similarity = "cosine",
) -> Tensor:
    """Return DiffCSE's contrastive term: SimCSE's loss of the projector's vectors.

        mean over i of -log( exp(s(a_i, p_i)) / sum_j [ exp(s(a_i, p_j)) + exp(s(a_i, m_j)) ] )

    The arguments are those of `simcse`. Its other term is `replaced_tokens`.
    Source: Chuang et al. (2022), DiffCSE, L_contrast.

    >>> import torch
    >>> from stsbench import losses
    >>> z = torch.eye(4)
    >>> round(float(losses.diffcse(z, z, temperature=1.0)), 4)
    0.7437
    """
    return simcse(anchors, positives, negatives, temperature=temperature, similarity=similarity)


def sarcse(
    anchors: Tensor, positives: Tensor, negatives: Tensor | None = None, *, temperature: float = 0.05,
    similarity: Similarity = "cosine",
) -> Tensor:
    """Return SARCSE's contrastive term: SimCSE's loss of the TextCNN's vectors.

        mean over i of -log( exp(s(a_i, p_i)) / sum_j [ exp(s(a_i, p_j)) + exp(s(a_i, m_j)) ] )

    The arguments are those of `simcse`. Its other terms are `reconstruction`.
    Source: Liu et al. (2024), SARCSE, Eq. 11, L_I.

    >>> import torch
    >>> from stsbench import losses
    >>> z = torch.eye(4)
    >>> round(float(losses.sarcse(z, z, temperature=1.0)), 4)
    0.7437
    """
    return simcse(anchors, positives, negatives, temperature=temperature, similarity=similarity)


def infocse(anchors: Tensor, positives: Tensor, *, temperature: float = 0.05) -> Tensor:
    """Return InfoCSE's contrastive term: SimCSE's loss of the projector's vectors.

        mean over i of -log( exp(s(a_i, p_i)) / sum_j exp(s(a_i, p_j)) )

    The arguments are those of `simcse`. Its other term is `masked_lm`, for tokens predicted with the sentence's vector.
    Source: Wu et al. (2022), InfoCSE, L_cl.

    >>> import torch
    >>> from stsbench import losses
    >>> z = torch.eye(4)
    >>> round(float(losses.infocse(z, z, temperature=1.0)), 4)
    0.7437
    """
    return simcse(anchors, positives, temperature=temperature)


def esimcse(anchors: Tensor, positives: Tensor, stored: Tensor | None = None, *, temperature: float = 0.05) -> Tensor:
    """Return ESimCSE's loss: InfoNCE with a momentum encoder's queue as further negatives.

        mean over i of -log( exp(s(a_i, p_i)) / ( sum_j exp(s(a_i, p_j)) + sum_l exp(s(a_i, v_l)) ) )

    anchors, positives: (n, d), row by row the two views of a sentence; stored: v (M, d), the momentum encoder's vectors of
    earlier batches, without gradient. s is the cosine over `temperature`. Gives a scalar, in float32 at least.
    Source: Wu et al. (2022), ESimCSE.

    >>> import torch
    >>> from stsbench import losses
    >>> z = torch.eye(6)  # four sentences and two stored vectors, all at right angles: ln(1 + 5 / e)
    >>> round(float(losses.esimcse(z[:4], z[:4], z[4:], temperature=1.0)), 4)
    1.0436
    """
    check_rows(anchors=anchors, positives=positives)
    return info_nce(anchors, positives, temperature=temperature, stored=stored)


def whitenedcse(anchors: Tensor, positives: Tensor, *, temperature: float = 0.05, reduce: Reduction = "sum") -> Tensor:
    """Return WhitenedCSE's loss: the sum of SimCSE's losses with each block k of positives, their mean with reduce "mean".

        sum over k of the mean over i of -log( exp(s(a_i, p_ki)) / sum_j exp(s(a_i, p_kj)) )

    anchors: (n, d); positives: (k n, d), k blocks p_k of further views, row by row of the same sentences; all of them after
    whitening and the head. s is the cosine over `temperature`. One direction, and positives are not compared with one
    another. Gives a scalar, in float32 at least.
    Source: Zhuo et al. (2023), WhitenedCSE, in its code. The whitening is part of the method, not of this function.

    >>> import torch
    >>> from stsbench import losses
    >>> z = torch.eye(4)  # all sentences at right angles, two positives each: 2 ln(1 + 3 / e)
    >>> round(float(losses.whitenedcse(z, torch.cat([z, z]), temperature=1.0)), 4)
    1.4873
    """
    blocks = positives.split(len(anchors)) if len(anchors) else (positives,)
    check_rows(anchors=anchors, first_positives=blocks[0], last_positives=blocks[-1])
    return sum_or_mean([info_nce(anchors, block, temperature=temperature) for block in blocks], reduce)


def sum_or_mean(values: list[Tensor], reduce: Reduction) -> Tensor:
    """Return the sum of the values, added in their order, or their mean."""
    total = sum(values[1:], values[0])
    return total / len(values) if reduce == "mean" else total


def consert(first: Tensor, second: Tensor, *, temperature: float = 0.1, nt_xent: Reduction = "mean") -> Tensor:
    """Return ConSERT's loss: NT-Xent of two augmented views.

        mean over the 2n views r of -log( exp(s(r, r+)) / sum over the other 2n - 1 views r' of exp(s(r, r')) )

    first, second: (n, d), row by row the two augmented views of a text; r+ is the text's other view, s the cosine over
    `temperature`. nt_xent "sum" is the sum of the means over the first and over the second views, twice this, as in the
    released code. Gives a scalar with a gradient, in float32 at least. With labels (settings sup and joint) the
    cross-entropy that goes with it is `sbert_nli`.
    Source: Yan et al. (2021), ConSERT, Eq. 2.

    >>> import torch
    >>> from stsbench import losses
    >>> z = torch.eye(4)  # two equal views of each text, at right angles to the 6 others: ln(1 + 6 / e)
    >>> round(float(losses.consert(z, z, temperature=1.0)), 4)
    1.1654
    """
    return _two_views(first, second, temperature=temperature) * (2 if nt_xent == "sum" else 1)


_two_views = nt_xent  # in `consert` the argument nt_xent hides the function


def mirrorbert(first: Tensor, second: Tensor, *, temperature: float = 0.04) -> Tensor:
    """Return Mirror-BERT's loss: NT-Xent of a text and a slightly changed copy of it.

        mean over the 2n views r of -log( exp(s(r, r+)) / sum over the other 2n - 1 views r' of exp(s(r, r')) )

    first, second: (n, d), row by row the two views of a text; r+ is the text's other view, s the cosine over `temperature`
    (0.2 for words and short phrases). Gives a scalar with a gradient, in float32 at least.
    Source: Liu et al. (2021), Mirror-BERT.

    >>> import torch
    >>> from stsbench import losses
    >>> z = torch.eye(4)
    >>> round(float(losses.mirrorbert(z, z, temperature=1.0)), 4)
    1.1654
    """
    return nt_xent(first, second, temperature=temperature)


def declutr(anchors: Tensor, positives: Tensor, *, temperature: float = 0.05) -> Tensor:
    """Return DeCLUTR's contrastive term: NT-Xent of anchors and the means of their positives.

        mean over the 2n vectors r of -log( exp(s(r, r+)) / sum over the other 2n - 1 vectors r' of exp(s(r, r')) )

    anchors: (n, d), spans of documents; positives: (n, P, d), P spans near each, or (n, d), their means. r+ is the
    counterpart, s the cosine over `temperature`. Gives a scalar with a gradient, in float32 at least. Its other term is
    `masked_lm`.
    Source: Giorgi et al. (2021), DeCLUTR.

    >>> import torch
    >>> from stsbench import losses
    >>> z = torch.eye(4)
    >>> round(float(losses.declutr(z, torch.stack([z, z], dim=1), temperature=1.0)), 4)
    1.1654
    """
    return nt_xent(anchors, positives.mean(1) if positives.ndim == 3 else positives, temperature=temperature)


def ct_in_batch(
    first: Tensor, second: Tensor, *, similarity: Similarity = "dot", scale: Tensor | float = 1.0
) -> Tensor:
    """Return Contrastive Tension's loss with in-batch negatives, in both directions; `ct` is its loss of single pairs.

        (CE(S) + CE(S^T)) / 2,   S_ij = scale * sim(first_i, second_j); the right column of row i is i

    first, second: (n, d), of the same n sentences by the two encoders; scale: a positive number, or a tensor of one, which
    may be learned. In float32 at least.
    Source: sentence-transformers, ContrastiveTensionLossInBatchNegatives.

    >>> import torch
    >>> from stsbench import losses
    >>> round(float(losses.ct_in_batch(torch.eye(4), torch.eye(4))), 4)  # ln(1 + 3 / e)
    0.7437
    """
    check_positive(scale=scale)
    x, y = (scaled(vectors, similarity, 1e-12) for vectors in (first, second))
    return (info_nce(x * scale, y, similarity="dot") + info_nce(y * scale, x, similarity="dot")) / 2


def gor(
    blocks: Sequence[Tensor], *, mean: float = 1.0, second_moment: float = 1.0, kinds: Reduction = "mean"
) -> Tensor:
    """Return the global orthogonal regulariser: cosines of different texts should be distributed as those of random vectors.

        mean * (mean over i != j of c_ij)^2 + second_moment * max(0, mean over i != j of c_ij^2 - 1 / d)

    blocks: kinds of texts, each (n, d): anchors, positives, hard negatives; c: the cosines within a block. kinds: whether
    the blocks' values are averaged or added (EmbeddingGemma adds them, with mean 0). One text gives 0. Gives a scalar with a
    gradient, in float32 at least.
    Source: Zhang et al. (2017), Learning Spread-out Local Feature Descriptors, Eq. 8; sentence-transformers,
    GlobalOrthogonalRegularizationLoss.

    >>> import torch
    >>> from stsbench import losses
    >>> round(float(losses.gor([torch.ones(3, 4)])), 4)  # all cosines are 1: 1 + (1 - 1 / 4)
    1.75
    """
    check_weights(mean=mean, second_moment=second_moment)
    if not blocks or kinds not in ("mean", "sum"):
        raise ValueError(f"kinds {kinds!r} of {len(blocks)} blocks: there are mean and sum, of one block at least")
    values = []
    for vectors in blocks:
        n, width = vectors.shape
        with torch.autocast(vectors.device.type, enabled=False):
            rows = unit(vectors)
            others = (rows @ rows.T).masked_fill(torch.eye(n, dtype=torch.bool, device=rows.device), 0)
            pairs = max(n * (n - 1), 1)
            above = (others.square().sum() / pairs - 1 / width).clamp(min=0)
            values.append(mean * (others.sum() / pairs).square() + second_moment * above)
    return sum_or_mean(values, kinds)
