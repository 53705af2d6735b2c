"""InfoNCE in several directions: what else anchor and positive are compared with, and how much hard negatives weigh."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from stsbench.losses.arguments import check_positive, check_rows
from stsbench.losses.choices import Direction, Hardness, Partition, Similarity, check_directions
from stsbench.losses.contrastive import scaled


def multiple_negatives(
    queries: Tensor, keys: Tensor, negatives: Sequence[Tensor] = (), *, directions: Sequence[Direction] = ("query_to_doc",),
    partition: Partition = "joint", hardness: Hardness = "none", strength: float = 0.0, temperature: float = 0.05,
    similarity: Similarity = "cosine", anchors: Tensor | None = None, start: int = 0,
) -> Tensor:
    """Return InfoNCE over the similarities of several directions, the mean over anchors q_i with positive d_i.

        joint: mean over i of -s(q_i, d_i) + log sum over all directions of exp(s);
        per_direction: mean over i of -s(q_i, d_i) + the mean over directions of log sum exp(s)

    directions: query_to_doc, q_i to all positives and hard negatives; query_to_query, q_i to the other anchors;
    doc_to_query, d_i to all anchors; doc_to_doc, d_i to all positives and hard negatives of other rows. The first has to be
    there, and per_direction takes none between texts of one kind, which holds no positive. hardness: which exponents of
    query_to_doc get `strength` times their cosine more, without a gradient: in_batch_negatives, those of other rows;
    hard_negatives, the row's own; all_negatives, both.

    queries: (n, d), this process's anchors; keys: (N, d), the positives of the whole batch; negatives: blocks of (N, d);
    anchors: (N, d), those of the whole batch, of which this process's begin at row `start`; None: queries. Gives a scalar
    with a gradient, in float32 at least. Raises ValueError for choices that do not go together.
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
    """Return (n, (1 + k) N), whether an exponent is of a negative that `hardness` means. same_row: those of its texts."""
    positive = same_row.clone()
    positive[:, total:] = False
    chosen = {"none": torch.zeros_like(same_row), "in_batch_negatives": ~same_row, "all_negatives": ~positive,
              "hard_negatives": same_row & ~positive}
    return chosen[hardness]
