"""InfoNCE: each anchor's own positive against every positive and every hard negative of the batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from stsbench.training.losses.rows import check_positive, check_rows

Similarity = Literal["cosine", "dot"]
_EPS = 1e-8  # the smallest norm that is divided by, as in torch.nn.CosineSimilarity


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
    """The mean over i of -log(exp(s(q_i, k_t)) / Z_i), where t = start + i is the column of q_i's own positive.

        Z_i = sum_j [ exp(s(q_i, k_j)) + sum_b w_ij exp(s(q_i, m_bj)) ] + sum_l exp(s(q_i, v_l)),
        w_ij = alpha where j = t, else 1

    queries: (n, d), this process's anchors; keys: (N, d), the positives of the whole batch; negatives: blocks m_b of
    (N, d), the hard negatives of the whole batch; stored: v (M, d), negatives of every anchor from elsewhere, such as
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
    """The exponents of `info_nce`, block by block: (n, N) of the keys and of each block of negatives, then (n, M) of the
    stored vectors.

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


def row_contrast(
    anchors: Tensor, positives: Tensor, negatives: Tensor | None, *, temperature: float, similarity: Similarity,
    alpha: float = 1.0,
) -> Tensor:
    """`info_nce` of whole batches, row by row: anchors and positives (n, d); negatives: (n, d), or (k n, d), k blocks of
    such. Raises ValueError for other shapes: more positives than anchors would count as negatives without a word."""
    check_rows(anchors=anchors, positives=positives)
    blocks = () if negatives is None else negatives.split(len(anchors))
    return info_nce(anchors, positives, temperature=temperature, similarity=similarity, negatives=blocks, alpha=alpha)


def as_anchors(queries: Tensor, temperature: float, similarity: Similarity) -> Tensor:
    """Whose products with `scaled` vectors are the exponents: cosines over the temperature, or plain products."""
    if similarity != "cosine":
        return scaled(queries, similarity)
    check_positive(temperature=temperature)
    return scaled(queries, similarity) / temperature


def scaled(vectors: Tensor, similarity: Similarity) -> Tensor:
    """The vectors in float32 or better, of norm 1 where the similarity is the cosine."""
    wide = vectors.to(torch.promote_types(vectors.dtype, torch.float32))
    return functional.normalize(wide, dim=1, eps=_EPS) if similarity == "cosine" else wide
