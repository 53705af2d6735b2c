"""Several views of each text as a group: its own views against the other texts, and two networks that agree on that.

Source: Wu et al. (2022), PCL, and models.py of the authors' code (qiyuw/PeerCL).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from stsbench.training.losses.ranking import cosines, without_own
from stsbench.training.losses.rows import check_positive, check_rows

GroupPositive = Literal["bce_of_softmax", "bce"]
Reduce = Literal["element", "row"]


def group_scores(
    anchors: Tensor, views: Sequence[Tensor], others: Tensor, *, temperature: float = 0.05, start: int = 0
) -> Tensor:
    """(n, V + N - 1) cosines over `temperature`: of each anchor with its own V views, then with the other texts.

    anchors and each of `views`: (n, d), row by row; others: (N, d), one vector a text of the whole batch, of which row
    start + i is that of anchor i and is left out. In float32 at least, also under autocast.
    """
    check_positive(temperature=temperature)
    check_rows(anchors=anchors, **{f"view {number}": view for number, view in enumerate(views, 1)})
    with torch.autocast(anchors.device.type, enabled=False):
        wide = torch.promote_types(anchors.dtype, torch.float32)
        first = functional.normalize(anchors.to(wide), dim=1, eps=1e-8)
        near = [(first * functional.normalize(view.to(wide), dim=1, eps=1e-8)).sum(1, keepdim=True) for view in views]
        return torch.cat([*near, without_own(cosines(anchors, others), start)], dim=1) / temperature


def group_cross_entropy(scores: Tensor, views: int, kind: GroupPositive = "bce_of_softmax") -> Tensor:
    """The mean over all elements of the binary cross-entropy of p = softmax(scores), 1 for own views, 0 for other texts.

    scores: (n, C) of `group_scores`, whose first `views` columns are own views. kind "bce": of p as a probability.
    "bce_of_softmax": of sigmoid(p), as in the authors' code, which takes p for a logit: p in [0, 1] gives .5 to .73, so an
    own view costs at least .31 and another text at least .69. No row gives 0. Computed in float32 at least.
    """
    if kind not in ("bce_of_softmax", "bce"):
        raise ValueError(f"kind {kind!r} is unknown (there are bce_of_softmax, bce)")
    with torch.autocast(scores.device.type, enabled=False):
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        if kind == "bce":
            total = -scores.log_softmax(1)[:, :views].sum() - _log_of_the_rest(scores)[:, views:].sum()
        else:
            labels = torch.zeros_like(scores)
            labels[:, :views] = 1
            total = functional.binary_cross_entropy_with_logits(scores.softmax(1), labels, reduction="sum")
    return total / max(scores.numel(), 1)


def agreement(scores: Tensor, peer: Tensor, reduce: Reduce = "element") -> Tensor:
    """KL(Q || P) of P = softmax(scores) and Q = softmax(peer), in nats; both have the gradient.

    scores, peer: (n, C). reduce "row": the mean over rows of their sums over columns, which is the divergence; "element":
    the mean over all n * C elements, as in the authors' code, which a larger batch makes smaller. No row gives 0. Computed
    in float32 at least.
    """
    if reduce not in ("element", "row"):
        raise ValueError(f"reduce {reduce!r} is unknown (there are element, row)")
    check_rows(scores=scores, peer=peer)
    with torch.autocast(scores.device.type, enabled=False):
        wide = torch.promote_types(scores.dtype, torch.float32)
        log_p, log_q = scores.to(wide).log_softmax(1), peer.to(wide).log_softmax(1)
        total = (log_q.exp() * (log_q - log_p)).sum()
    return total / max(scores.numel() if reduce == "element" else len(scores), 1)


def _log_of_the_rest(scores: Tensor) -> Tensor:
    """(n, C) log(1 - softmax(scores)): of a row's greatest, which may be near 1, the others' share, or 1 - p rounds to 0."""
    if not scores.numel():
        return scores
    greatest = torch.zeros_like(scores, dtype=torch.bool).scatter_(1, scores.argmax(1, keepdim=True), True)
    share = scores.log_softmax(1)
    rest = scores.masked_fill(greatest, -torch.inf).logsumexp(1, keepdim=True) - scores.logsumexp(1, keepdim=True)
    return torch.where(greatest, rest, torch.log1p(-share.exp().masked_fill(greatest, 0)))
