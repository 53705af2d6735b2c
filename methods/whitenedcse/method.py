"""WhitenedCSE (Zhuo et al. 2023): contrast of several views of a sentence, whitened in shuffled groups of features."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from stsbench.encoders.prompt.modules import MLPHead
from stsbench.errors import StsbenchError
from stsbench.losses.contrastive import sum_or_mean
from stsbench.training.api.batch import Batch, Examples, Term, Views, gather
from stsbench.training.api.contrasting import contrast
from stsbench.training.api.method import Method, Needs
from stsbench.training.api.views import Repeater
from stsbench.training.modules.backbone import Backbone

from .options import WhitenedCSEOptions

Split = Literal["per_third", "per_view", "whole"]
_SEEDS = "permutation"  # key in Views.by_row: each row has the seed of its part's permutation, equal in all processes


class WhitenedCSE(Method):
    """Unsupervised, on plain sentences. Whitening and head belong to the loss, and the encoder is tested without them."""

    Options = WhitenedCSEOptions
    options: WhitenedCSEOptions
    sample_settings: ClassVar[Mapping[str, Any]] = {"options.eps": 1e-5}  # one of MiniLM's features is constant

    def __init__(self, backbone: Backbone, options: WhitenedCSEOptions) -> None:
        """Raise StsbenchError, one line, for options that do not fit the backbone."""
        super().__init__(backbone, options)
        width = backbone.vector_width
        check_width(options, width, backbone.name)
        self.whitening: GroupWhitening | None = None
        if options.split != "none":
            self.whitening = GroupWhitening(
                options.groups, eps=options.eps, detach_matrix=options.detach_matrix, split=options.split
            )
        # with 1 or `width` groups a permutation makes no difference
        self.shuffled = self.whitening is not None and options.shuffle and 1 < options.groups < width
        self.head = MLPHead(width, getattr(backbone.model.config, "initializer_range", 0.02))
        self.repeater = Repeater(backbone, options.repeat) if options.repeat is not None else None

    @classmethod
    def needs(cls, options: WhitenedCSEOptions) -> Needs:
        """Return the needs: sentences; dropout unless a permutation for each view or repetition makes the views differ."""
        distorted = options.split == "per_view" and options.shuffle and options.groups > 1
        return Needs(dropout=options.repeat is None and not distorted)

    def views(self, rows: Examples, rng: np.random.Generator) -> Views:
        """Return the sentence and its positives, the same sentence or one with repetitions, and the permutations' seeds."""
        plain, positives = rows.ids("sentence"), self.options.views - 1
        repeat = self.repeater
        views = Views([plain, *(plain if repeat is None else repeat(rows, "sentence", rng) for _ in range(positives))])
        if self.shuffled:
            assert self.whitening is not None
            seeds = rng.integers(2**31, size=self.whitening.parts(self.options.views)).tolist()
            seeds *= self.options.views // len(seeds)  # split whole has one seed, used for every view
            views.by_row[_SEEDS] = [np.full(len(plain), seed) for seed in seeds]
        return views

    def forward(self, batch: Batch) -> dict[str, Term]:
        """Return contrastive: the sum (or mean) over positives k of means of -log(e^(sim(z0, zk) / t) / sum over batch)."""
        first, *others = self._compared(batch)
        terms = [
            contrast(first, other, [], batch.shares, self.gather_mode, temperature=self.options.temperature)
            for other in others
        ]
        return {"contrastive": Term(sum_or_mean([term.value for term in terms], self.options.reduce), terms[0].count)}

    def view_vectors(self, batch: Batch) -> tuple[Tensor, Tensor] | None:
        """Return (n, d) vectors of two views: as in the loss if each view has its own permutation, else the encoder's, as
        whitening in parts would make views differ even without dropout."""
        if not self.shuffled or self.options.split != "per_view":
            return super().view_vectors(batch)
        first, second, *_ = self._compared(batch)
        return first, second

    def _compared(self, batch: Batch) -> tuple[Tensor, ...]:
        """Return (n, d) vectors, whitened and with the head applied, view by view."""
        vectors = self.vectors(batch.ids, batch.mask)
        if self.whitening is not None:
            vectors = self._whitened(vectors, batch, self.whitening)
        return self.head(vectors).split(len(batch))  # type: ignore[no-any-return]

    def _whitened(self, vectors: Tensor, batch: Batch, whitening: GroupWhitening) -> Tensor:
        """Return (v * n, d) whitened vectors. With training.gather exact, statistics are over the rows of all processes;
        otherwise over this process's rows, as in the released code."""
        n, v, shares = len(batch), batch.views, batch.shares
        # statistics, and so the vectors that are gathered for them, need more digits than autocast leaves
        rows = vectors.to(torch.promote_types(vectors.dtype, torch.float32)).reshape(v, n, -1).transpose(0, 1)
        everywhere = self.gather_mode == "exact"
        if everywhere:
            rows = gather(rows.reshape(n, -1), shares, "exact").reshape(-1, v, vectors.shape[1])
        whitened: Tensor = whitening(rows.transpose(0, 1), self._permutations(batch, whitening))
        if everywhere:
            whitened = whitened[:, shares.start : shares.start + n]
        return whitened.reshape(v * n, -1)

    def _permutations(self, batch: Batch, whitening: GroupWhitening) -> Tensor | None:
        """Return (parts, d) permutations from the seeds that `views` drew; None without shuffling."""
        if not self.shuffled:
            return None
        seeds = batch.by_row[_SEEDS].reshape(batch.views, -1)[: whitening.parts(batch.views), 0].tolist()
        drawn = [np.random.default_rng(seed).permutation(self.backbone.vector_width) for seed in seeds]
        return torch.from_numpy(np.stack(drawn)).to(batch.ids.device)


def check_width(options: WhitenedCSEOptions, width: int, name: str) -> None:
    """Raise StsbenchError, one line, where the groups do not divide the `width` features of the backbone `name`."""
    if options.split == "none":
        return
    if width % options.groups:
        raise StsbenchError(
            f"options.groups {options.groups} does not divide the {width} features of {name}: set it to a divisor of {width}"
        )
    if options.groups == width and not options.shuffle:
        raise StsbenchError(
            f"options.shuffle false has no effect: {width} groups of one feature are the same in any order; leave it at true"
        )


class GroupWhitening(nn.Module):
    """Whitens the views of a batch by the batch's own statistics, in training and in evaluation. It has no weights.

    groups: G, which divides d; s = d / G features are whitened together. eps: added to the variances. detach_matrix: W is
    constant for the gradient, which still passes through the mean. split: the rows that share mean, covariance and
    permutation: per_view, the n rows of a view; whole, all v * n rows; per_third (released code), each of v consecutive
    parts of the rows, ordered by sentence, so that with three views a part has all views of a third of the sentences.
    Source: Zhuo et al. (2023), WhitenedCSE; where its code differs, split has a value for either.
    """

    def __init__(
        self, groups: int, *, eps: float = 0.0, detach_matrix: bool = True, split: Split = "per_third"
    ) -> None:
        super().__init__()
        self.groups, self.eps, self.detach_matrix, self.split = groups, eps, detach_matrix, split

    def parts(self, views: int) -> int:
        """Return the number of parts of a batch of `views` views that are whitened separately, each with its own
        permutation."""
        return 1 if self.split == "whole" else views

    def forward(self, views: Tensor, permutations: Tensor | None = None) -> Tensor:
        """Return the whitened views (v, n, d), in float32 or wider, also under autocast. views: (v, n, d).

        permutations: (parts, d), an order of the features for each part (see `parts`); None: their own order. Raises
        StsbenchError, one line, where eps is 0 and a part's covariance has not full rank (few or equal rows).

        >>> import torch
        >>> whitened = GroupWhitening(2, split="per_view")(torch.randn(1, 50, 4, dtype=torch.float64))[0]
        >>> (whitened[:, :2].T @ whitened[:, :2] / 50).abs().round(decimals=6).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
        """
        v, n, d = views.shape
        side_by_side = self.split == "per_third"  # ex0 view0, ex0 view1, ..., ex1 view0, ...
        parts = (views.transpose(0, 1) if side_by_side else views).reshape(self.parts(v), -1, d)
        whitened = whiten_groups(parts, self.groups, permutations, eps=self.eps, detach_matrix=self.detach_matrix)
        return whitened.reshape(n, v, d).transpose(0, 1) if side_by_side else whitened.reshape(v, n, d)


def whiten_groups(
    parts: Tensor, groups: int, permutations: Tensor | None = None, *, eps: float = 0.0, detach_matrix: bool = True
) -> Tensor:
    """Return (p, m, d): y = (x - mean) W for each part and group of permuted features, in the features' original order.

        C = (x - mean)^T (x - mean) / m,    W = U diag((l + eps)^-1/2) U^T  with  C = U diag(l) U^T

    parts: (p, m, d), p parts of m rows; permutations: (p, d) or None. W is symmetric (ZCA). Computed in float32 or wider.
    Raises StsbenchError, one line, where eps is 0 and C has not full rank in a group, such as for m <= d / groups.
    """
    p, m, d = parts.shape
    size = d // groups
    if eps == 0 and 0 < m <= size:
        raise StsbenchError(
            f"options.split whitens groups of {size} features over {m} rows, which have no covariance of full rank: set "
            "options.eps, e.g. 1e-5, raise training.batch_size or options.groups, or set training.drop_last where it is the "
            "last batch"
        )
    with torch.autocast(parts.device.type, enabled=False):
        wide = parts.to(torch.promote_types(parts.dtype, torch.float32))
        if permutations is not None:
            wide = wide.gather(2, permutations[:, None].expand(p, m, d))
        grouped = wide.reshape(p, m, groups, size).transpose(1, 2)  # (p, G, m, s)
        centred = grouped - grouped.mean(2, keepdim=True)
        covariance = centred.transpose(2, 3) @ centred / max(m, 1)
        covariance = covariance.detach() if detach_matrix else covariance
        matrix = _InverseRoot.apply(covariance, eps)  # type: ignore[no-untyped-call]
        whitened: Tensor = (centred @ matrix).transpose(1, 2).reshape(p, m, d)
        if permutations is not None:
            whitened = whitened.gather(2, permutations.argsort(1)[:, None].expand(p, m, d))
    return whitened


class _InverseRoot(torch.autograd.Function):
    """(C + eps)^-1/2, (..., s, s), by the eigenvectors. StsbenchError where eps is 0 and C is singular. The derivative is
    implemented here, since that of the eigenvectors is infinite for equal eigenvalues, unlike the root's."""

    @staticmethod
    def forward(ctx: Any, covariance: Tensor, eps: float) -> Tensor:
        on_cpu = covariance.device.type == "mps"  # MPS has no eigh
        values, vectors = torch.linalg.eigh(covariance.cpu() if on_cpu else covariance)
        values, vectors = values.to(covariance.device), vectors.to(covariance.device)
        if eps == 0:
            # smaller eigenvalues are rounding errors; the comparison waits for the GPU, as eigh does anyway
            singular = values[..., 0] <= torch.finfo(values.dtype).eps * values[..., -1]
            if bool(singular.any()):
                raise StsbenchError(
                    "options.split whitens rows that span too few dimensions in a group of features (sentences that are "
                    "equal, views without dropout, or a feature that is constant): set options.eps, e.g. 1e-5"
                )
        roots = (values.clamp(min=0) + eps).sqrt()
        ctx.save_for_backward(roots, vectors)
        inverse: Tensor = (vectors / roots.unsqueeze(-2)) @ vectors.mT
        return inverse

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        roots, vectors = ctx.saved_tensors
        one, other = roots.unsqueeze(-1), roots.unsqueeze(-2)
        slopes = -1 / (one * other * (one + other))  # (f(a) - f(b)) / (a - b) of f(l) = l^-1/2
        inner = vectors.mT @ ((gradient + gradient.mT) / 2) @ vectors
        return vectors @ (slopes * inner) @ vectors.mT, None
