"""WhitenedCSE (Zhuo et al. 2023): several views of a sentence, whitened in shuffled groups of features, then contrasted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from stsbench.encoders.prompt.modules import MLPHead
from stsbench.errors import StsbenchError
from stsbench.losses.contrastive import sum_or_mean
from stsbench.training.api.batch import Batch, Examples, Term, Views, gather
from stsbench.training.api.contrasting import contrast
from stsbench.training.api.method import Method, Needs
from stsbench.training.api.views import Repeater
from stsbench.training.modules.backbone import Backbone
from stsbench.training.modules.projector import GroupWhitening

from .options import WhitenedCSEOptions

_SEEDS = "permutation"  # Views.by_row: in each row the seed of its part's permutation, the same in every process


class WhitenedCSE(Method):
    """Unsupervised, on plain sentences. Whitening and head are of the loss: what is tested is the encoder alone."""

    name = "whitenedcse"
    Options = WhitenedCSEOptions
    options: WhitenedCSEOptions
    sample_settings: ClassVar[Mapping[str, Any]] = {"options.eps": 1e-5}  # a feature of MiniLM's is constant

    def __init__(self, backbone: Backbone, options: WhitenedCSEOptions) -> None:
        """Raise StsbenchError, one line, for options that do not go with the backbone."""
        super().__init__(backbone, options)
        width = backbone.vector_width
        check_width(options, width, backbone.name)
        self.whitening: GroupWhitening | None = None
        if options.split != "none":
            self.whitening = GroupWhitening(
                options.groups, eps=options.eps, detach_matrix=options.detach_matrix, split=options.split
            )
        # in another order the features make other groups
        self.shuffled = self.whitening is not None and options.shuffle and 1 < options.groups < width
        self.head = MLPHead(width, getattr(backbone.model.config, "initializer_range", 0.02))
        self.repeater = Repeater(backbone, options.repeat) if options.repeat is not None else None

    @classmethod
    def needs(cls, options: WhitenedCSEOptions) -> Needs:
        """Return what sentences need; dropout where neither a permutation for each view nor repetition makes the views
        differ."""
        distorted = options.split == "per_view" and options.shuffle and options.groups > 1
        return Needs(dropout=options.repeat is None and not distorted)

    def views(self, rows: Examples, rng: np.random.Generator) -> Views:
        """Return the sentence, and the sentence again as often as there are positives, or with repetitions; seeds of the
        permutations."""
        plain, positives = rows.ids("sentence"), self.options.views - 1
        repeat = self.repeater
        views = Views([plain, *(plain if repeat is None else repeat(rows, "sentence", rng) for _ in range(positives))])
        if self.shuffled:
            assert self.whitening is not None
            seeds = rng.integers(2**31, size=self.whitening.parts(self.options.views)).tolist()
            seeds *= self.options.views // len(seeds)  # one seed for the whole batch serves in each view
            views.by_row[_SEEDS] = [np.full(len(plain), seed) for seed in seeds]
        return views

    def forward(self, batch: Batch) -> dict[str, Term]:
        """contrastive: over the positives the sum of means of -log(e^(sim(z0, zk) / t) / sum over the batch)."""
        first, *others = self._compared(batch)
        terms = [
            contrast(first, other, [], batch.shares, self.gather_mode, temperature=self.options.temperature)
            for other in others
        ]
        return {"contrastive": Term(sum_or_mean([term.value for term in terms], self.options.reduce), terms[0].count)}

    def view_vectors(self, batch: Batch) -> tuple[Tensor, Tensor] | None:
        """As the loss compares them, where each view has a permutation of its own; else the encoder's: of whitened views
        without dropout those of a sentence that a cut divides would differ."""
        if not self.shuffled or self.options.split != "per_view":
            return super().view_vectors(batch)
        first, second, *_ = self._compared(batch)
        return first, second

    def _compared(self, batch: Batch) -> tuple[Tensor, ...]:
        """Return (n, d) whitened vectors behind the head, view by view."""
        vectors = self.vectors(batch.ids, batch.mask)
        if self.whitening is not None:
            vectors = self._whitened(vectors, batch, self.whitening)
        return self.head(vectors).split(len(batch))  # type: ignore[no-any-return]

    def _whitened(self, vectors: Tensor, batch: Batch, whitening: GroupWhitening) -> Tensor:
        """Return (v * n, d). With training.gather exact by the statistics of all processes' rows, as one process has
        them; else by those of this one's, as in the released code."""
        n, v, shares = len(batch), batch.views, batch.shares
        # statistics need more digits than autocast leaves, also where vectors are gathered
        rows = vectors.to(torch.promote_types(vectors.dtype, torch.float32)).reshape(v, n, -1).transpose(0, 1)
        everywhere = self.gather_mode == "exact"
        if everywhere:
            rows = gather(rows.reshape(n, -1), shares, "exact").reshape(-1, v, vectors.shape[1])
        whitened: Tensor = whitening(rows.transpose(0, 1), self._permutations(batch, whitening))
        if everywhere:
            whitened = whitened[:, shares.start : shares.start + n]
        return whitened.reshape(v * n, -1)

    def _permutations(self, batch: Batch, whitening: GroupWhitening) -> Tensor | None:
        """Return (parts, d), from the seeds that `views` drew."""
        if not self.shuffled:
            return None
        seeds = batch.by_row[_SEEDS].reshape(batch.views, -1)[: whitening.parts(batch.views), 0].tolist()
        drawn = [np.random.default_rng(seed).permutation(self.backbone.vector_width) for seed in seeds]
        return torch.from_numpy(np.stack(drawn)).to(batch.ids.device)


def check_width(options: WhitenedCSEOptions, width: int, name: str) -> None:
    """Raise StsbenchError, one line, where the groups do not divide the backbone's vectors. width: of these; name: its."""
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
