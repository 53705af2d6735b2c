"""Several views of each text as a group: its own views against the other texts, and two networks that agree on that.

Source: Wu et al. (2022), PCL, and models.py of the authors' code (qiyuw/PeerCL).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from stsbench.losses.arguments import check_positive, check_rows, unit, wide
from stsbench.losses.choices import GroupPositive, Reduce
from stsbench.losses.contrastive import info_nce
from stsbench.losses.ranking import cosines, without_own


def group_scores(
    anchors: Tensor, views: Sequence[Tensor], others: Tensor, *, temperature: float = 0.05, start: int = 0
) -> Tensor:
    """Return (n, V + N - 1) cosines over `temperature`: of each anchor with its own V views, then with the other texts.

    anchors and each of `views`: (n, d), row by row; others: (N, d), one vector a text of the whole batch, of which row
    start + i is that of anchor i and is left out. In float32 at least, also under autocast.
    """
    check_positive(temperature=temperature)
    check_rows(anchors=anchors, **{f"view {number}": view for number, view in enumerate(views, 1)})
    with torch.autocast(anchors.device.type, enabled=False):
        first = unit(anchors)  # once, so that its gradient is one sum
        near = [(first * unit(view)).sum(1, keepdim=True) for view in views]
        return torch.cat([*near, without_own(cosines(anchors, others), start)], dim=1) / temperature


def group_cross_entropy(scores: Tensor, views: int, kind: GroupPositive = "bce_of_softmax") -> Tensor:
    """Return PCL's group positives: the binary cross-entropy of p = softmax(scores), 1 for own views, 0 for other texts.

        mean over all elements of -log p of own views, of -log(1 - p) of other texts

    scores: (n, C) of `group_scores`, whose first `views` columns are own views. kind "bce": of p as a probability.
    "bce_of_softmax": of sigmoid(p), as in the authors' code, which takes p for a logit: p in [0, 1] gives .5 to .73, so an
    own view costs at least .31 and another text at least .69. No row gives 0. Computed in float32 at least.
    """
    if kind not in ("bce_of_softmax", "bce"):
        raise ValueError(f"kind {kind!r} is unknown (there are bce_of_softmax, bce)")
    with torch.autocast(scores.device.type, enabled=False):
        scores = wide(scores)
        if kind == "bce":
            total = -scores.log_softmax(1)[:, :views].sum() - _log_of_the_rest(scores)[:, views:].sum()
        else:
            labels = torch.zeros_like(scores)
            labels[:, :views] = 1
            total = functional.binary_cross_entropy_with_logits(scores.softmax(1), labels, reduction="sum")
    return total / max(scores.numel(), 1)


def agreement(scores: Tensor, peer: Tensor, reduce: Reduce = "element") -> Tensor:
    """Return the divergence of two networks' scores, in nats; both have the gradient.

        KL(Q || P),   P = softmax(scores), Q = softmax(peer)

    scores, peer: (n, C). reduce "row": the mean over rows of their sums over columns, which is the divergence; "element":
    the mean over all n * C elements, as in the authors' code, which a larger batch makes smaller. No row gives 0. Computed
    in float32 at least.
    """
    if reduce not in ("element", "row"):
        raise ValueError(f"reduce {reduce!r} is unknown (there are element, row)")
    check_rows(scores=scores, peer=peer)
    with torch.autocast(scores.device.type, enabled=False):
        log_p, log_q = wide(scores).log_softmax(1), wide(peer).log_softmax(1)
        total = (log_q.exp() * (log_q - log_p)).sum()
    return total / max(scores.numel() if reduce == "element" else len(scores), 1)


def pcl(
    views: Sequence[Tensor], peer: Sequence[Tensor] | None = None, *, temperature: float = 0.05,
    group_positive: GroupPositive = "bce_of_softmax", reduce: Reduce = "element",
) -> Tensor:
    """Return PCL's sum of all terms, a scalar, in float32 at least.

        sum over networks of [ InfoNCE of the first two views + group_cross_entropy ] + two terms of agreement of networks

    views: the encoder's vectors, (n, d) a view, row by row views of a sentence, the first two of them the sentence itself;
    peer: as many of the second network, or None; of a frozen one detached, whose own two terms are then constants.
    group_positive, reduce: of `group_cross_entropy` and `agreement`. All weights are 1.
    Raises ValueError for fewer than two views, or shapes that differ.
    Source: Wu et al. (2022), PCL, and the authors' code.

    >>> import torch
    >>> from stsbench import losses
    >>> z = torch.eye(4)  # InfoNCE ln(1 + 3 / e) = .7437; a view of p = .475 and three texts of .175: .7092
    >>> round(float(losses.pcl([z, z], temperature=1.0)), 4)
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


def _log_of_the_rest(scores: Tensor) -> Tensor:
    """Return log(1 - softmax(scores)), (n, C): of a row's greatest, which may be near 1, the others' share."""
    if not scores.numel():
        return scores
    greatest = torch.zeros_like(scores, dtype=torch.bool).scatter_(1, scores.argmax(1, keepdim=True), True)
    share = scores.log_softmax(1)
    rest = scores.masked_fill(greatest, -torch.inf).logsumexp(1, keepdim=True) - scores.logsumexp(1, keepdim=True)
    return torch.where(greatest, rest, torch.log1p(-share.exp().masked_fill(greatest, 0)))
