"""Losses with several positives of each text: its views as a group, and agreement of two networks on them (Wu et al. 2022,
PCL, and models.py of the authors' code, qiyuw/PeerCL); its tokens, by mutual information (IS-BERT); its layers (SG-OPT)."""

from __future__ import annotations

import math
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

    anchors and each of `views`: (n, d), row by row; others: (N, d), a vector for each text of the whole batch; row start + i
    belongs to anchor i and is left out. In float32 at least, also under autocast.
    """
    check_positive(temperature=temperature)
    check_rows(anchors=anchors, **{f"view {number}": view for number, view in enumerate(views, 1)})
    with torch.autocast(anchors.device.type, enabled=False):
        first = unit(anchors)  # normalised once for all views, so that the gradients are summed before this step
        near = [(first * unit(view)).sum(1, keepdim=True) for view in views]
        return torch.cat([*near, without_own(cosines(anchors, others), start)], dim=1) / temperature


def group_cross_entropy(scores: Tensor, views: int, kind: GroupPositive = "bce_of_softmax") -> Tensor:
    """Return PCL's loss of group positives: binary cross-entropy of p = softmax(scores), 1 for own views, 0 for other texts.

        mean over all elements of -log p of own views, of -log(1 - p) of other texts

    scores: (n, C) of `group_scores`, whose first `views` columns are own views. kind "bce": p is the probability.
    "bce_of_softmax": sigmoid(p) is, as in the authors' code, which takes p for a logit: p in [0, 1] gives .5 to .73, so an
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
    """Return PCL's divergence of two networks' scores, in nats. The gradient reaches both.

        KL(Q || P),   P = softmax(scores), Q = softmax(peer)

    scores, peer: (n, C). reduce "row": the mean over rows of the sums over columns, which is the divergence; "element": the
    mean over all n * C elements, as in the authors' code, which shrinks as the batch grows. No row gives 0. Computed in
    float32 at least.
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
    """Return PCL's loss, the sum of all of its terms: a scalar, in float32 at least.

        sum over networks of [ InfoNCE of the first two views + group_cross_entropy ] + two terms of agreement of networks

    views: the encoder's vectors, (n, d) a view, row by row views of a sentence, the first two of them the sentence itself;
    peer: as many views by the second network, or None; detached if it is frozen, so that its own two terms are constants.
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
    """Return log(1 - softmax(scores)), (n, C). At a row's maximum it is the log of the sum of the other columns' softmax, as
    1 - p is 0 in float32 where p is near 1."""
    if not scores.numel():
        return scores
    greatest = torch.zeros_like(scores, dtype=torch.bool).scatter_(1, scores.argmax(1, keepdim=True), True)
    share = scores.log_softmax(1)
    rest = scores.masked_fill(greatest, -torch.inf).logsumexp(1, keepdim=True) - scores.logsumexp(1, keepdim=True)
    return torch.where(greatest, rest, torch.log1p(-share.exp().masked_fill(greatest, 0)))


def jensen_shannon(tokens: Tensor, owners: Tensor, sentences: Tensor) -> tuple[Tensor, Tensor]:
    """Return E_negative and -E_positive, whose sum is to be minimised: a lower bound of the mutual information.

        E_positive = mean of ln 2 - softplus(-z),   E_negative = mean of softplus(z) - ln 2;   z = <token, sentence>

    tokens: (T, d), local vectors; sentences: (B, d), global vectors; owners: int64 (T,), the sentence of each token. The T
    scores of tokens with their own sentences are positive, the T (B - 1) others negative. A mean of no score is 0, with a
    gradient. In float32 at least, also under autocast, and without overflow: products of hundreds of coordinates are large.
    Sources: Zhang et al. (2020), IS-BERT; Hjelm et al. (2019), Deep InfoMax.
    """
    with torch.autocast(tokens.device.type, enabled=False):
        dtype = torch.promote_types(torch.promote_types(tokens.dtype, sentences.dtype), torch.float32)
        scores = tokens.to(dtype) @ sentences.to(dtype).T
        is_own = owners.unsqueeze(1) == torch.arange(len(sentences), device=owners.device)
        # softplus(z) = -logsigmoid(-z), as torch's softplus returns z itself above 20, and its logsigmoid is exact
        positive = (-functional.logsigmoid(scores) - math.log(2)).masked_fill(~is_own, 0).sum()
        negative = (-functional.logsigmoid(-scores) - math.log(2)).masked_fill(is_own, 0).sum()
        return negative / max(scores.numel() - len(tokens), 1), positive / max(len(tokens), 1)


def isbert(tokens: Tensor, real: Tensor, sentences: Tensor) -> Tensor:
    """Return IS-BERT's loss: a token's vector should score high with its own sentence's vector, low with all others.

        E_negative - E_positive,
        E_positive = mean over tokens and their own sentences of ln 2 - softplus(-z),
        E_negative = mean over tokens and the other sentences of softplus(z) - ln 2;   z = <token, sentence>

    tokens: (n, L, d), local vectors; real: (n, L), true or 1 at tokens, false or 0 at padding; sentences: (n, d), global
    vectors, usually the means of the local ones. Gives a scalar with a gradient, in float32 at least.
    Source: Zhang et al. (2020), IS-BERT, the Jensen-Shannon estimator.

    >>> import torch
    >>> from stsbench import losses
    >>> tokens, real = torch.zeros(2, 3, 4), torch.ones(2, 3)  # all scores are 0
    >>> round(float(losses.isbert(tokens, real, tokens.mean(1))), 4)
    0.0
    """
    if tokens.ndim != 3 or real.shape != tokens.shape[:2] or sentences.shape != (len(tokens), tokens.shape[2]):
        shapes = ", ".join(map(str, (tuple(tokens.shape), tuple(real.shape), tuple(sentences.shape))))
        raise ValueError(f"tokens must be (n, L, d), real (n, L), sentences (n, d): they are {shapes}")
    owners, indices = real.nonzero(as_tuple=True)
    negative, positive = jensen_shannon(tokens[owners, indices], owners, sentences)
    return negative + positive


def sgopt(
    vectors: Tensor, layers: Tensor, *, temperature: float = 0.01, all_layers: Tensor | None = None, start: int = 0
) -> Tensor:
    """Return SG-OPT's loss: a sentence's vector should be near to its own layers' vectors, far from other sentences'.

        mean over i and k of -log( e(c_i, h_ik) / ( e(c_i, h_ik) + sum over m other than i and all n of e(c_i, h_mn) ) ),
        e(a, b) = exp(cos(a, b) / temperature)

    vectors: c, (n, D), of the encoder that is trained; layers: h, (n, K, D), of K layers of its frozen copy, both projected.
    Neither other sentences' c nor a sentence's own other layers are negatives.
    all_layers: (N, K, D), those of the whole batch, of which this process's begin at row `start`; by default `layers`.
    Gives a scalar with a gradient, in float32 at least. The paper adds 0.1 times the squared distance of the weights to
    those of the copy.
    Source: Kim et al. (2021), SG-OPT.

    >>> import torch
    >>> from stsbench import losses
    >>> c = torch.eye(4)
    >>> round(float(losses.sgopt(c, c.unsqueeze(1), temperature=1.0)), 4)  # one layer: ln(1 + 3 / e)
    0.7437
    """
    check_positive(temperature=temperature)
    with torch.autocast(vectors.device.type, enabled=False):
        x, y = unit(vectors, 1e-12), unit(layers if all_layers is None else all_layers, 1e-12)
        logits = (x @ y.flatten(0, 1).T / temperature).view(len(x), *y.shape[:2])  # (n, N, K)
        rows = torch.arange(len(x), device=x.device)
        itself = (rows + start).unsqueeze(1) == torch.arange(len(y), device=x.device)
        positives = logits[rows, rows + start]  # (n, K)
        lowest = torch.finfo(logits.dtype).min  # with -infinity the gradient of a batch without negatives would be NaN
        negatives = logits.masked_fill(itself.unsqueeze(2), lowest).flatten(1).logsumexp(1, keepdim=True)
        losses = torch.logaddexp(positives, negatives) - positives
    return losses.sum() / max(losses.numel(), 1)
