"""PCL's objective as a function of vectors, for a training loop of one's own."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from stsbench.training.losses.contrastive import info_nce
from stsbench.training.losses.group import GroupPositive, Reduce, agreement, group_cross_entropy, group_scores
from stsbench.training.losses.rows import check_rows


def loss(
    views: Sequence[Tensor], peer: Sequence[Tensor] | None = None, *, temperature: float = 0.05,
    group_positive: GroupPositive = "bce_of_softmax", reduce: Reduce = "element",
) -> Tensor:
    """PCL's sum of all terms, a scalar, in float32 at least: InfoNCE and group positives of one or two networks, and their
    agreement.

    views: the encoder's vectors, (n, d) a view, row by row views of a sentence, the first two of them the sentence itself;
    peer: as many of the second network, or None; of a frozen one detached, whose own two terms are then constants.
    group_positive, reduce: as the options. All weights are 1.
    ValueError: fewer than two views, or shapes that differ.
    Source: Wu et al. (2022), PCL, and the authors' code.

    >>> import torch
    >>> from stsbench import methods
    >>> z = torch.eye(4)  # InfoNCE ln(1 + 3 / e) = .7437; a view of p = .475 and three texts of .175: .7092
    >>> round(float(methods.pcl.loss([z, z], temperature=1.0)), 4)
    1.4528
    """
    networks = [views] if peer is None else [views, peer]
    if len({len(vectors) for vectors in networks}) > 1 or len(views) < 2:
        raise ValueError(f"there must be two views or more, as many of each network: {[*map(len, networks)]}")
    check_rows(**{f"view {at}": view for at, view in enumerate(view for vectors in networks for view in vectors)})

    def scores(anchors: Sequence[Tensor], group: Sequence[Tensor]) -> Tensor:
        return group_scores(anchors[0], group[1:], group[0], temperature=temperature)

    terms = [info_nce(vectors[0], vectors[1], temperature=temperature) for vectors in networks]
    terms += [group_cross_entropy(scores(vectors, vectors), len(views) - 1, group_positive) for vectors in networks]
    if peer is not None:
        terms.append(agreement(scores(views, peer), scores(peer, views), reduce))
        terms.append(agreement(scores(views, views), scores(peer, peer), reduce))
    return torch.stack(terms).sum()
