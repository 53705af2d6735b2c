"""ESimCSE (Wu et al. 2022): SimCSE with repeated sub-words in the second view and a queue of momentum-encoded negatives."""

from __future__ import annotations

import numpy as np

from stsbench.training.api.batch import Batch, Examples, Term, Views
from stsbench.training.api.contrasting import NegativeQueue, contrast
from stsbench.training.api.method import HeadMethod, Needs
from stsbench.training.api.views import Repeater
from stsbench.training.modules.backbone import Backbone

from .options import ESimCSEOptions


class ESimCSE(HeadMethod):
    """Unsupervised, on plain sentences. For pairs, hard negatives and other views, `simcse` has the same options."""

    Options = ESimCSEOptions
    options: ESimCSEOptions

    def __init__(self, backbone: Backbone, options: ESimCSEOptions) -> None:
        """Raise StsbenchError, one line, for options that do not fit the backbone."""
        super().__init__(backbone, options)
        self.queue: NegativeQueue | None = None
        if options.queue is not None:
            self.queue = NegativeQueue(backbone, backbone.vector_width, options.queue)
        self.repeater = Repeater(backbone, options.repeat) if options.repeat is not None else None

    @classmethod
    def needs(cls, options: ESimCSEOptions) -> Needs:
        """Return the needs: sentences; dropout where both views are the same sentence."""
        return Needs(dropout=options.repeat is None)

    def views(self, rows: Examples, rng: np.random.Generator) -> Views:
        """Return two views: the sentence, and the sentence with repeated sub-words or words."""
        plain = rows.ids("sentence")
        return Views([plain, plain if self.repeater is None else self.repeater(rows, "sentence", rng)])

    def forward(self, batch: Batch) -> dict[str, Term]:
        """Return contrastive, the mean over sentences of -log(e^(sim(z1, z2) / t) / sum over the batch and the queue)."""
        n = len(batch)
        first, second = self.vectors(batch.ids, batch.mask).split(n)
        stored = self.queue.stored() if self.queue is not None else None
        term = contrast(
            first, second, [], batch.shares, self.gather_mode, temperature=self.options.temperature, stored=stored
        )
        if self.queue is not None:
            self.queue.enqueue(self.backbone, batch.ids[:n], batch.mask[:n], self.head, batch.shares)
        return {"contrastive": term}
