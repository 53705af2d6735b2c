"""CoSENT (Su 2022): the cosines of labelled pairs are to stand in the order of their labels."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from torch import Tensor

from stsbench.losses.labelled import pair_cosines
from stsbench.training.api.batch import Batch, Examples, Term, Views
from stsbench.training.api.contrasting import rank_pairs
from stsbench.training.api.labelled import LabelScores, nli_roles, unordered
from stsbench.training.api.method import Method, Needs
from stsbench.training.api.views import scored_pairs
from stsbench.training.modules.backbone import Backbone

from .options import CoSENTOptions


class CoSENT(Method):
    """Whoever has a larger label is to have a larger cosine; no classifier, and no number that a cosine should be."""

    name = "cosent"
    Options = CoSENTOptions
    options: CoSENTOptions

    def __init__(self, backbone: Backbone, options: CoSENTOptions) -> None:
        super().__init__(backbone, options)
        self.label_scores = LabelScores(options.label_scores)

    @classmethod
    def needs(cls, options: CoSENTOptions) -> Needs:
        """Return pairs with scores, or labelled pairs alone."""
        if options.format == "scored":
            return Needs(scored_pairs, wrong_score=unordered)
        return Needs(
            labelled="only", labelled_roles=partial(nli_roles, triplets=False),
            labelled_usable=LabelScores(options.label_scores).usable,
            labelled_unusable="options.label_scores does not name their labels", labelled_negatives=True,
        )

    def prepare_labelled(self, rows: Any) -> None:
        """Learn the scores of the classes."""
        self.label_scores.prepare(rows)

    def views(self, rows: Examples, rng: np.random.Generator) -> Views:
        """Return the two texts of a pair with their score."""
        return Views([self.read(rows, role) for role in ("sentence1", "sentence2")], scores=rows.scores())

    def labelled_views(self, rows: Examples, rng: np.random.Generator) -> Views:
        """Return the two texts of a pair with the score of its class."""
        return self.label_scores.views(self, rows)

    def forward(self, batch: Batch) -> dict[str, Term]:
        """cosent: log(1 + the sum of exp(scale (s_i - s_j)) over pairs i, j of which j has the larger label)."""
        assert batch.scores is not None
        vectors = self.vectors(batch.ids, batch.mask)
        first, second = vectors.split(len(batch)) if len(batch) else (vectors, vectors)
        scale = self.options.scale
        term = rank_pairs([(first, second)], pair_cosines, batch.scores, batch.shares, self.gather_mode, scale=scale)
        return {"cosent": term}

    def view_vectors(self, batch: Batch) -> tuple[Tensor, Tensor] | None:
        """None: two texts of a pair may be one and the same."""
        return None
