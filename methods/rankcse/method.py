"""RankCSE (Liu et al. 2023): SimCSE, and a batch that is ranked alike by both views, and as teachers rank it."""

from __future__ import annotations

from functools import partial

import numpy as np

from stsbench.training.api.batch import Batch, Examples, Term, Views
from stsbench.training.api.contrasting import contrast
from stsbench.training.api.method import HeadMethod, Needs
from stsbench.training.api.teachers import Ranking
from stsbench.training.api.views import pairs_or_sentence, role_views
from stsbench.training.modules.backbone import Backbone

from .options import RankCSEOptions


class RankCSE(HeadMethod):
    """L = L_infoNCE + beta L_consistency + gamma L_rank. The teachers are any encoders, which are not trained."""

    Options = RankCSEOptions
    options: RankCSEOptions
    sample_settings = {"options.teachers": [{"model": "minilm"}]}  # noqa: RUF012 - as of the base

    def __init__(self, backbone: Backbone, options: RankCSEOptions) -> None:
        """Raise StsbenchError, one line, for an MLP on another pooler than cls."""
        super().__init__(backbone, options)
        self.ranking = Ranking(options, backbone)

    @classmethod
    def needs(cls, options: RankCSEOptions) -> Needs:
        """Return sentences, or pairs and hard negatives; dropout where the views are the sentence twice."""
        roles = partial(pairs_or_sentence, view=options.view, unsupervised="listmle-bert-base")
        return Needs(roles, dropout=options.view == "dropout")

    def views(self, rows: Examples, rng: np.random.Generator) -> Views:
        """Return the sentence twice, or a view a role; and how alike the teachers find the texts."""
        return self.ranking.add_to(role_views(self, rows), rows)

    def forward(self, batch: Batch) -> dict[str, Term]:
        """contrastive: SimCSE's Eq. 4 (plain sentences) or 5; ranking and consistency: `Ranking.terms`."""
        queries, keys, *negatives = self.vectors(batch.ids, batch.mask).split(len(batch))
        term = contrast(
            queries, keys, negatives, batch.shares, self.gather_mode, temperature=self.options.temperature
        )
        return {"contrastive": term, **self.ranking.terms(queries, keys, negatives, batch, self.gather_mode)}

    def inputs(self) -> dict[str, str]:
        """Return the teachers, by their fingerprints."""
        return self.ranking.inputs()

    def notes(self) -> list[str]:
        """Return which the teachers are."""
        return self.ranking.notes()
