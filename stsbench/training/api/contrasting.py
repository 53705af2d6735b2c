"""InfoNCE, NT-Xent and the losses of labelled pairs over a batch that is split over processes: what methods call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

from stsbench.training.api.batch import Shares, Term
from stsbench.training.api.gathering import Gathering, gather
from stsbench.training.losses.contrastive import Similarity, info_nce
from stsbench.training.losses.graded_pairs import cosent, labelled_in_batch
from stsbench.training.losses.nt_xent import nt_xent

Contrasted = tuple[Tensor, Tensor, tuple[Tensor, ...]]  # queries, keys and the blocks of hard negatives, each (n, d)
_WATCHED: ContextVar[list[Contrasted] | None] = ContextVar("watched", default=None)


@contextmanager
def watched() -> Iterator[list[Contrasted]]:
    """The vectors of this process that the calls of `contrast` and `contrast_views` in the block compare, in their order:
    what a further term on the same vectors needs (engine/ranked.py), whatever the method."""
    calls: list[Contrasted] = []
    token = _WATCHED.set(calls)
    try:
        yield calls
    finally:
        _WATCHED.reset(token)


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
    """The InfoNCE term of this process's rows against the vectors of all processes (local: against its own only).

    queries, keys and each of `negatives`: (n, d), row by row this process's share. stored: (M, d), the same in every
    process (`NegativeQueue.stored`). The options are those of `info_nce`.
    In mode "simcse" every process has the loss of all rows, hence the count of all rows, and its scale is 1.
    """
    _note(queries, keys, *negatives)
    parts = [keys, *negatives] if mode != "simcse" else [queries, keys, *negatives]
    # One collective for all of them, forward and backward: side by side, then split again.
    rows = gather(torch.cat(parts, dim=1), shares, mode).split(queries.shape[1], dim=1)
    start, count = (shares.start if mode == "exact" else 0), len(queries)
    if mode == "simcse":
        queries, *rows = rows
        count = shares.total
    value = info_nce(
        queries, rows[0], temperature=temperature, similarity=similarity, negatives=rows[1:], stored=stored, alpha=alpha,
        start=start,
    )
    return Term(value, count)


def contrast_views(
    first: Tensor, second: Tensor, shares: Shares, mode: Gathering = "exact", *, temperature: float = 0.1
) -> Term:
    """The NT-Xent term of this process's texts among all views of all processes (local: among its own only).

    first, second: (n, d), row by row the two views of this process's share; the term counts texts. In mode "simcse" every
    process has the loss of all texts, hence the count of all.
    """
    _note(first, second)
    every = gather(torch.cat([first, second], dim=1), shares, mode).split(first.shape[1], dim=1)
    if mode == "simcse":
        return Term(nt_xent(*every, temperature=temperature), shares.total)
    start = shares.start if mode == "exact" else 0
    value = nt_xent(first, second, temperature=temperature, all_first=every[0], all_second=every[1], start=start)
    return Term(value, len(first))


def rank_pairs(
    similarities: Tensor, scores: Tensor, shares: Shares, mode: Gathering = "exact", *, scale: float = 20.0
) -> Term:
    """CoSENT's term of the pairs of all processes (local: of this one's only): similarities in the order of the scores.

    similarities, scores: (n,), of this process's rows, or (n, k), k pairs a row. The loss is no sum over rows: in the modes
    "exact" and "simcse" every process has that of all pairs. The term counts rows.
    """
    count = len(similarities)
    both = (similarities, scores.to(similarities.dtype))
    pairs = [numbers.unsqueeze(1) if numbers.ndim == 1 else numbers for numbers in both]
    ranked, order = gather(torch.cat(pairs, dim=1), shares, mode).chunk(2, dim=1)
    value = cosent(ranked.flatten(), order.flatten(), scale=scale)
    if mode == "simcse":
        return Term(value, shares.total)
    return Term(value if count else 0 * value, count)  # a process without rows takes part in the gradient's collective


def contrast_labelled(
    first: Tensor, second: Tensor, labels: Tensor, shares: Shares, mode: Gathering = "exact", *, scale: float = 20.0
) -> Term:
    """AnglE's in-batch term of this process's pairs against the texts of all processes (local: its own only).

    first, second: (n, d); labels: (n,), 1 or 0. The term counts pairs. In mode "simcse" every process has the loss of all.
    """
    rows = gather(torch.cat([first, second, labels.to(first.dtype).unsqueeze(1)], dim=1), shares, mode)
    all_first, all_second, every = rows.split([first.shape[1], first.shape[1], 1], dim=1)
    if mode == "simcse":
        return Term(labelled_in_batch(all_first, all_second, every.squeeze(1), scale=scale), shares.total)
    start = shares.start if mode == "exact" else 0
    value = labelled_in_batch(
        first, second, labels, scale=scale, all_first=all_first, all_second=all_second, start=start
    )
    return Term(value, len(first))


def _note(queries: Tensor, keys: Tensor, *negatives: Tensor) -> None:
    if (calls := _WATCHED.get()) is not None:
        calls.append((queries, keys, negatives))
