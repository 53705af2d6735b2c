"""NT-Xent: of 2N views each has its counterpart as positive and all other views as negatives."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from stsbench.training.losses.rows import check_positive


def nt_xent(
    first: Tensor,
    second: Tensor,
    *,
    temperature: float = 0.1,
    all_first: Tensor | None = None,
    all_second: Tensor | None = None,
    start: int = 0,
) -> Tensor:
    """The mean over this process's 2n views of -log(exp(s(r, r+)) / sum of exp(s(r, r')) over the other 2N - 1).

    first, second: (n, d), row by row the two views of this process's texts; all_first, all_second: (N, d), those of the
    whole batch, of which this process's begin at row `start`; by default first and second. s is the cosine over
    `temperature`; r+ is the text's other view. No text (n = 0) gives 0, with a gradient. Products are taken in float32 at
    least.
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
        one, two, all_one, all_two = (_unit(vectors) for vectors in (first, second, all_first, all_second))
        losses = [
            functional.cross_entropy(
                torch.cat([view @ others.T, _without_self(view @ same.T, rows, start)], dim=1) / temperature,
                rows + start, reduction="sum",
            )
            for view, others, same in ((one, all_two, all_one), (two, all_one, all_two))
        ]
    return (losses[0] + losses[1]) / max(2 * len(first), 1)


def _without_self(logits: Tensor, rows: Tensor, start: int) -> Tensor:
    """The logits (n, N) of views among views of the same number, a view itself left out."""
    itself = torch.zeros_like(logits, dtype=torch.bool)
    itself[rows, rows + start] = True
    return logits.masked_fill(itself, -torch.inf)


def _unit(vectors: Tensor) -> Tensor:
    """The vectors in float32 or better, of norm 1."""
    return functional.normalize(vectors.to(torch.promote_types(vectors.dtype, torch.float32)), dim=1)
