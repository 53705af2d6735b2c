"""CoSENT (Su 2022): the cosines of labelled pairs learn the order of the labels."""

from __future__ import annotations

import numpy as np

from stsbench.losses.labelled import pair_cosines
from stsbench.training.api.batch import Batch, Examples, Term, Views
from stsbench.training.api.contrasting import rank_pairs
from stsbench.training.api.labelled import unordered
from stsbench.training.api.method import Needs, ScoredMethod
from stsbench.training.api.views import scored_pairs

from .options import CoSENTOptions


class CoSENT(ScoredMethod):
    """Pairs with a larger label should have a larger cosine. There is no classifier, and cosines have no target values."""

    Options = CoSENTOptions
    options: CoSENTOptions

    @classmethod
    def needs(cls, options: CoSENTOptions) -> Needs:
        """Return the needs: scored pairs, or labelled pairs alone."""
        return Needs(scored_pairs, wrong_score=unordered) if options.format == "scored" else cls.labelled_needs(options)

    def views(self, rows: Examples, rng: np.random.Generator) -> Views:
        """Return the two texts of a pair with their score."""
        return Views([self.read(rows, role) for role in ("sentence1", "sentence2")], scores=rows.scores())

    def forward(self, batch: Batch) -> dict[str, Term]:
        """Return cosent: log(1 + sum of exp(scale (s_i - s_j)) over all pairs i, j where j has the larger label)."""
        assert batch.scores is not None
        vectors = self.vectors(batch.ids, batch.mask)
        first, second = vectors.split(len(batch)) if len(batch) else (vectors, vectors)
        scale = self.options.scale
        term = rank_pairs([(first, second)], pair_cosines, batch.scores, batch.shares, self.gather_mode, scale=scale)
        return {"cosent": term}
