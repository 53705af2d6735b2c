"""InfoNCE, NT-Xent and losses of labelled pairs for methods, over a batch that is split over processes; and a queue of
vectors of earlier batches as further negatives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from stsbench.errors import StsbenchError
from stsbench.losses.choices import Reduction, Similarity
from stsbench.losses.contrastive import gor, info_nce, nt_xent
from stsbench.losses.labelled import cosent_of_similarities, labelled_in_batch
from stsbench.losses.variants import (
    GuideCosines,
    GuideRule,
    guided_info_nce,
    guided_nt_xent,
    masked_share,
    multiple_negatives,
)
from stsbench.training.api.batch import Gathering, Shares, Term, gather, gather_columns
from stsbench.training.api.options import Queue
from stsbench.training.modules.backbone import Backbone
from stsbench.training.modules.copies import Reference

Contrasted = tuple[Tensor, Tensor, tuple[Tensor, ...]]  # queries, keys and the blocks of hard negatives, each (n, d)
PairSimilarity = Callable[[Tensor, Tensor], Tensor]  # (n, d) and (n, d) -> (n,)


@dataclass
class Wrapping:
    """A recipe's changes to contrastive terms: its sections `matryoshka`, `guide` and `contrast` change `contrast` and
    `contrast_views`; `matryoshka` alone changes `rank_pairs` and `contrast_labelled`, whose negatives follow from labels.

    dims: (d, weight) pairs; the term is the sum of weight * the term of vectors cut to their first d numbers; (): whole
    vectors. rule: which negatives a guide masks; cosines: the guide's, of this process's n rows: (n, N) for plain sentences,
    else (n, (3 + k) N), of anchors with positives, with each of k hard negatives and with anchors, and of positives with
    positives; all d have the same masks. directed: arguments of `losses.multiple_negatives`; None: InfoNCE.
    Counted while wrapping: calls; directions: calls that `directed` changed; masked: for each call that a guide changed, the
    share of the negatives that were masked.
    """

    dims: tuple[tuple[int, float], ...] = ()
    rule: GuideRule | None = None
    cosines: Tensor | None = None
    directed: dict[str, Any] | None = None
    calls: int = 0
    directions: int = 0
    masked: list[Term] = field(default_factory=list)


_WATCHED: ContextVar[list[Contrasted] | None] = ContextVar("watched", default=None)
_WRAPPING: ContextVar[Wrapping | None] = ContextVar("wrapping", default=None)


@contextmanager
def watched() -> Iterator[list[Contrasted]]:
    """Collect this process's vectors that `contrast` and `contrast_views` compare in the `with` block, call by call, for
    further terms on the same vectors (engine/objective.py). Works for every method that calls these functions."""
    calls: list[Contrasted] = []
    token = _WATCHED.set(calls)
    try:
        yield calls
    finally:
        _WATCHED.reset(token)


@contextmanager
def wrapped(wrapping: Wrapping) -> Iterator[None]:
    """Apply `wrapping` to the calls of this module's functions in the `with` block (engine/objective.py)."""
    token = _WRAPPING.set(wrapping)
    try:
        yield
    finally:
        _WRAPPING.reset(token)


def contrast(
    queries: Tensor,
    keys: Tensor,
    negatives: Sequence[Tensor],
    shares: Shares,
    mode: Gathering = "exact",
    *,
    temperature: float = 0.05,
    similarity: Similarity = "cosine",
    alpha: float = 1.0,
    stored: Tensor | None = None,
) -> Term:
    """Return the InfoNCE term of this process's rows against the vectors of all processes (local: against its own only).

    queries, keys and each of `negatives`: (n, d), row by row this process's share. stored: (M, d), the same in every
    process (`NegativeQueue.stored`). The options are those of `info_nce`.
    In mode "simcse" every process has the loss of all rows, hence the count of all rows, and its scale is 1.
    """
    wrapping = _called(queries, keys, *negatives)
    rule, directed = wrapping.rule, wrapping.directed
    # whether the queries of all processes are needed
    every = mode == "simcse" or directed is not None or (rule is not None and rule.contrast_anchors)
    parts = [queries, keys, *negatives] if every else [keys, *negatives]
    # Concatenated along the width, all blocks need only one collective, forward and backward.
    rows = gather(torch.cat(parts, dim=1), shares, mode).split(queries.shape[1], dim=1)
    start, count = (shares.start if mode == "exact" else 0), len(queries)
    anchors, rows = (rows[0], rows[1:]) if every else (None, rows)
    if mode == "simcse":
        assert anchors is not None
        queries, count = anchors, shares.total
    _check_similarity(wrapping, similarity)
    guide = None if rule is None else _guide_cosines(wrapping, len(rows) - 1, shares, mode)
    if rule is not None and guide is not None:
        wrapping.masked.append(Term(masked_share(guide, rule, start), count))

    if directed is not None:
        assert anchors is not None
        _check_directed(wrapping, directed, stored, alpha, len(rows) > 1)
        how = {**directed, "temperature": temperature, "similarity": similarity, "start": start}

        def in_directions(cut: Callable[[Tensor], Tensor]) -> Tensor:
            short = [cut(block) for block in rows]
            return multiple_negatives(cut(queries), short[0], short[1:], anchors=cut(anchors), **how)

        return Term(_summed(wrapping, queries.shape[1], in_directions), count)

    def shortened(cut: Callable[[Tensor], Tensor]) -> Tensor:
        short = [cut(block) for block in rows]
        kept = None if stored is None else cut(stored)
        if rule is None or guide is None:
            return info_nce(
                cut(queries), short[0], temperature=temperature, similarity=similarity, negatives=short[1:], stored=kept,
                alpha=alpha, start=start,
            )
        return guided_info_nce(
            cut(queries), short[0], guide, rule, anchors=None if anchors is None else cut(anchors), temperature=temperature,
            similarity=similarity, negatives=short[1:], stored=kept, alpha=alpha, start=start,
        )

    return Term(_summed(wrapping, queries.shape[1], shortened), count)


def contrast_views(
    first: Tensor, second: Tensor, shares: Shares, mode: Gathering = "exact", *, temperature: float = 0.1
) -> Term:
    """Return the NT-Xent term of this process's texts among all views of all processes (local: among its own only).

    first, second: (n, d), row by row the two views of this process's share; the term counts texts. In mode "simcse" every
    process has the loss of all texts, hence the count of all.
    """
    wrapping = _called(first, second)
    every = gather(torch.cat([first, second], dim=1), shares, mode).split(first.shape[1], dim=1)
    start, count = (shares.start if mode == "exact" else 0), len(first)
    if mode == "simcse":
        (first, second), count = every, shares.total
    if wrapping.directed is not None:
        raise StsbenchError("contrast: NT-Xent has both views of all other texts as negatives: set it to null")
    rule = wrapping.rule
    guide = None if rule is None else _guide_of_views(wrapping, rule, shares, mode)
    if rule is not None and guide is not None:
        once = replace(rule, contrast_anchors=False, contrast_positives=False)
        wrapping.masked.append(Term(masked_share(GuideCosines(guide, (), guide, guide), once, start), count))

    def shortened(cut: Callable[[Tensor], Tensor]) -> Tensor:
        one, two, all_one, all_two = (cut(vectors) for vectors in (first, second, *every))
        if rule is None or guide is None:
            return nt_xent(one, two, temperature=temperature, all_first=all_one, all_second=all_two, start=start)
        return guided_nt_xent(
            one, two, guide, rule, temperature=temperature, all_first=all_one, all_second=all_two, start=start
        )

    return Term(_summed(wrapping, first.shape[1], shortened), count)


def _check_directed(
    wrapping: Wrapping, directed: dict[str, Any], stored: Tensor | None, alpha: float, negatives: bool
) -> None:
    """Count a call that `directed` changes. Raises StsbenchError for arguments that it does not support."""
    wrapping.directions += 1
    if stored is not None:
        raise StsbenchError("contrast: a queue's vectors are compared in one direction alone: set one of both to null")
    if alpha != 1:
        raise StsbenchError(f"contrast: options.alpha {alpha:g} weighs hard negatives, too: set it to 1")
    if directed["hardness"] == "hard_negatives" and not negatives:
        raise StsbenchError("contrast.hardness hard_negatives: the rows have none: set it to in_batch_negatives")


def _called(*contrasted: Tensor, labels: bool = False) -> Wrapping:
    """Record the vectors of a call for `watched`, count it, and return the wrapping that applies to it. labels: whether the
    negatives follow from labels: such a call counts only for matryoshka, as a guide does not change it."""
    if contrasted and (calls := _WATCHED.get()) is not None:
        calls.append((contrasted[0], contrasted[1], contrasted[2:]))
    wrapping = _WRAPPING.get() or Wrapping()
    wrapping.calls += bool(wrapping.dims or not labels)
    return wrapping


def _summed(wrapping: Wrapping, width: int, loss: Callable[[Callable[[Tensor], Tensor]], Tensor]) -> Tensor:
    """Return the sum over dims d of weight * loss(cut), where `cut` shortens vectors to d numbers. They are not normalised
    again: a cosine does that."""
    if not wrapping.dims:
        return loss(lambda vectors: vectors)
    if (most := max(dim for dim, _ in wrapping.dims)) > width:
        raise StsbenchError(f"matryoshka.dims {most} is more than the {width} numbers of a vector: leave it out")
    return torch.stack([weight * loss(partial(_first, dim)) for dim, weight in wrapping.dims]).sum()


def _first(dim: int, vectors: Tensor) -> Tensor:
    return vectors[:, :dim]


def _check_similarity(wrapping: Wrapping, similarity: Similarity) -> None:
    """Raise StsbenchError for dot products where a section needs cosines: their scale is in the vectors' lengths."""
    if similarity == "cosine":
        return
    if wrapping.dims:
        raise StsbenchError(
            "matryoshka: shortened vectors are normalised, and the contrastive term takes dot products, whose scale is in "
            "the vectors' lengths: let it take cosines"
        )
    if wrapping.rule is not None and (wrapping.rule.contrast_anchors or wrapping.rule.contrast_positives):
        raise StsbenchError(
            "guide: the contrastive term takes dot products of anchors with positives only: set guide.contrast_anchors and "
            "guide.contrast_positives to false"
        )


def _guide_cosines(wrapping: Wrapping, blocks: int, shares: Shares, mode: Gathering) -> GuideCosines:
    """Return the guide's cosines of the loss's rows with the texts they are compared with. blocks: hard negatives a row."""
    cosines = _columns(wrapping, shares, mode)
    parts = cosines.split(shares.sizes[shares.rank] if mode == "local" else shares.total, dim=1)
    if len(parts) == 1 and not blocks:
        return GuideCosines(cosines, (), cosines, cosines)
    if len(parts) != 3 + blocks:
        raise StsbenchError("guide: the contrastive term compares other texts than those of the rows: set it to null")
    return GuideCosines(parts[0], tuple(parts[1:-2]), parts[-2], parts[-1])


def _guide_of_views(wrapping: Wrapping, rule: GuideRule, shares: Shares, mode: Gathering) -> Tensor:
    cosines = _columns(wrapping, shares, mode)
    if cosines.shape[1] > (shares.sizes[shares.rank] if mode == "local" else shares.total):
        raise StsbenchError("guide: NT-Xent takes plain sentences, and these are pairs: set it to null")
    changed = [name for name in ("contrast_anchors", "contrast_positives") if not getattr(rule, name)]
    changed += ["diagonals"] if rule.diagonals != "masked" else []
    if changed:
        raise StsbenchError(
            f"guide.{changed[0]} has no effect: NT-Xent has both views of all other texts as negatives; leave it out"
        )
    return cosines


def _columns(wrapping: Wrapping, shares: Shares, mode: Gathering) -> Tensor:
    if wrapping.cosines is None:
        raise StsbenchError("guide: labelled rows are contrasted here, which the guide does not read: set it to null")
    if len(wrapping.cosines) != shares.sizes[shares.rank]:
        raise StsbenchError("guide: the contrastive term compares other texts than the rows: set it to null")
    return gather_columns(wrapping.cosines, shares, mode)


def regularise(
    blocks: Sequence[Tensor], shares: Shares, mode: Gathering = "exact", *, mean: float = 1.0, second_moment: float = 1.0,
    kinds: Reduction = "mean",
) -> Term:
    """Return the term of `losses.gor` over the vectors of all processes (local: of this one's only).

    blocks: kinds of texts (anchors, positives, ...), each (n, d), row by row this process's share. As in `rank_pairs`, every
    process computes the value of all rows; the term's count is that of rows.
    """
    count = len(blocks[0])
    rows = gather(torch.cat(list(blocks), dim=1), shares, mode).split([block.shape[1] for block in blocks], dim=1)
    value = gor(rows, mean=mean, second_moment=second_moment, kinds=kinds)
    return Term(value if count or mode == "simcse" else 0 * value, shares.total if mode == "simcse" else count)


def rank_pairs(
    pairs: Sequence[tuple[Tensor, Tensor]], similarity: PairSimilarity, scores: Tensor, shares: Shares,
    mode: Gathering = "exact", *, scale: float = 20.0,
) -> Term:
    """Return CoSENT's term of the pairs of all processes (local: of this one's only): similarities in the order of the
    scores.

    pairs: k pairs a row, each the two texts' vectors, (n, d), of this process's rows; scores: (n,) of one pair, or (n, k).
    The loss is not a sum over rows: in the modes "exact" and "simcse" every process computes it over all pairs. The term
    counts rows.
    """
    count, width = pairs[0][0].shape
    wrapping = _called(labels=True)
    several = scores if scores.ndim > 1 else scores.unsqueeze(1)

    def shortened(cut: Callable[[Tensor], Tensor]) -> Tensor:
        similarities = torch.stack([similarity(cut(first), cut(second)) for first, second in pairs], dim=1)
        both = torch.cat([similarities, several.to(similarities.dtype)], dim=1)
        ranked, order = gather(both, shares, mode).chunk(2, dim=1)
        return cosent_of_similarities(ranked.flatten(), order.flatten(), scale=scale)

    value = _summed(wrapping, width, shortened)
    if mode == "simcse":
        return Term(value, shares.total)
    return Term(value if count else 0 * value, count)  # a process without rows takes part in the gradient's collective


def contrast_labelled(
    first: Tensor, second: Tensor, labels: Tensor, shares: Shares, mode: Gathering = "exact", *, scale: float = 20.0
) -> Term:
    """Return AnglE's in-batch term of this process's pairs against the texts of all processes (local: its own only).

    first, second: (n, d); labels: (n,), 1 or 0. The term counts pairs. In mode "simcse" every process has the loss of all.
    """
    wrapping, width, count = _called(labels=True), first.shape[1], len(first)
    rows = gather(torch.cat([first, second, labels.to(first.dtype).unsqueeze(1)], dim=1), shares, mode)
    all_first, all_second, every = rows.split([width, width, 1], dim=1)
    if mode == "simcse":
        (first, second, labels), count = (all_first, all_second, every.squeeze(1)), shares.total
    start = shares.start if mode == "exact" else 0

    def shortened(cut: Callable[[Tensor], Tensor]) -> Tensor:
        one, two, all_one, all_two = (cut(vectors) for vectors in (first, second, all_first, all_second))
        return labelled_in_batch(one, two, labels, scale=scale, all_first=all_one, all_second=all_two, start=start)

    return Term(_summed(wrapping, width, shortened), count)


class NegativeQueue(nn.Module):
    """A queue of negatives: the last `size` vectors of earlier batches, by a momentum encoder, newest last.

    In every forward pass (each of training.accumulate, too) a method passes `stored()` to `contrast`, then calls `enqueue`.
    In eval mode the queue is empty and stays so, to keep losses of held-out rows comparable from step to step. Every process
    holds the vectors of all, whatever training.gather is. Checkpoints hold the queue, exports do not.
    Sources: Wu et al. (2022), ESimCSE; He et al. (2020), MoCo.
    """

    vectors: Tensor  # (size, d)
    filled: Tensor  # (), how many rows, counted from the end, hold vectors

    def __init__(self, backbone: Backbone, width: int, options: Queue) -> None:
        """Create an empty queue. width: d, of contrasted vectors. options.start random draws the encoder's weights anew."""
        super().__init__()
        self.options = options
        self.encoder = Reference(backbone)
        if options.start == "random":
            self.encoder.randomise()
        self.register_buffer("vectors", torch.zeros(options.size, width))
        self.register_buffer("filled", torch.tensor(0))

    def restart(self, backbone: Backbone) -> None:
        """Empty the queue at the start of a stage and, with options.start copy, copy the encoder's current weights."""
        if self.options.start == "copy":
            self.encoder.restart(backbone)
        self.filled.zero_()

    def stored(self) -> Tensor:
        """Return the queue's (M, d) vectors, M <= size, negatives for every anchor of a batch."""
        count = int(self.filled) if self.training else 0
        return self.vectors[len(self.vectors) - count :].clone()  # `enqueue` overwrites the buffer before the backward pass

    @torch.no_grad()
    def enqueue(self, backbone: Backbone, ids: Tensor, mask: Tensor, head: nn.Module | None, shares: Shares) -> None:
        """Move the momentum encoder a step towards `backbone`, and store its vectors of this batch. Call it after the loss.

        ids, mask: (n, L), the first view of this process's rows, encoded without dropout, then by `head` in eval mode.
        """
        if not self.training:
            return
        self.encoder.follow(backbone, self.options.momentum)
        vectors = self.encoder.backbone.pooled(ids, mask)
        if head is not None:
            training = head.training
            vectors = head.eval()(vectors)
            head.train(training)
        new = gather(vectors.to(self.vectors.dtype), shares, "exact")
        self.vectors.copy_(torch.cat([self.vectors, new])[-len(self.vectors) :])
        self.filled.add_(len(new)).clamp_(max=len(self.vectors))
