"""DiffAug's contrastive objective as a function of vectors, for a training loop of one's own."""

from __future__ import annotations

from torch import Tensor

from stsbench.training.losses.contrastive import Similarity, row_contrast


def loss(
    anchors: Tensor, positives: Tensor, negatives: Tensor | None = None, *, temperature: float = 0.05,
    similarity: Similarity = "cosine",
) -> Tensor:
    """Stage joint's, the mean over i of

        -log( exp(s(a_i, p_i)) / sum_j [ exp(s(a_i, p_j)) + exp(s(a_i, m_j)) ] )

    anchors, positives: (n, d), row by row the two views of a sentence; negatives: (n, d), a hard
    negative of each row, or (k n, d), k blocks of such. s is the cosine over `temperature`, or, with "dot", the plain
    product. Gives a scalar with a gradient, in float32 at least.
    Source: Wang and Lu (2022), DiffAug, of vectors under the two prefixes. Stage prefix is methods.sbert.loss.

    >>> import torch
    >>> from stsbench import methods
    >>> z = torch.eye(4)  # each view its sentence's own, at right angles to all others: ln(1 + 3 / e)
    >>> round(float(methods.diffaug.loss(z, z, temperature=1.0)), 4)
    0.7437
    """
    return row_contrast(anchors, positives, negatives, temperature=temperature, similarity=similarity)
