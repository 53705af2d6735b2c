"""ESimCSE (Wu et al. 2022): SimCSE whose second view repeats some sub-words, and a momentum encoder's queue of negatives."""

from __future__ import annotations

import numpy as np

from stsbench.training.api.batch import Batch, Examples, Term, Views
from stsbench.training.api.contrasting import NegativeQueue, contrast
from stsbench.training.api.method import HeadMethod, Needs
from stsbench.training.api.views import Repeater
from stsbench.training.modules.backbone import Backbone

from .options import ESimCSEOptions


class ESimCSE(HeadMethod):
    """Unsupervised, on plain sentences. Pairs, hard negatives and SimCSE's other views: the same options of `simcse`."""

    Options = ESimCSEOptions
    options: ESimCSEOptions

    def __init__(self, backbone: Backbone, options: ESimCSEOptions) -> None:
        """Raise StsbenchError, one line, for options that do not go with the backbone."""
        super().__init__(backbone, options)
        self.queue: NegativeQueue | None = None
        if options.queue is not None:
            self.queue = NegativeQueue(backbone, backbone.vector_width, options.queue)
        self.repeater = Repeater(backbone, options.repeat) if options.repeat is not None else None

    @classmethod
    def needs(cls, options: ESimCSEOptions) -> Needs:
        """Return sentences; dropout where the views are the sentence twice."""
        return Needs(dropout=options.repeat is None)

    def views(self, rows: Examples, rng: np.random.Generator) -> Views:
        """Return the sentence, and the sentence with repetitions."""
        plain = rows.ids("sentence")
        return Views([plain, plain if self.repeater is None else self.repeater(rows, "sentence", rng)])

    def forward(self, batch: Batch) -> dict[str, Term]:
        """contrastive: the mean over sentences of -log(e^(sim(z1, z2) / t) / sum over the batch and the queue)."""
        n = len(batch)
        first, second = self.vectors(batch.ids, batch.mask).split(n)
        stored = self.queue.stored() if self.queue is not None else None
        term = contrast(
            first, second, [], batch.shares, self.gather_mode, temperature=self.options.temperature, stored=stored
        )
        if self.queue is not None:
            self.queue.enqueue(self.backbone, batch.ids[:n], batch.mask[:n], self.head, batch.shares)
        return {"contrastive": term}
