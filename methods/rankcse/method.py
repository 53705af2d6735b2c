"""RankCSE (Liu et al. 2023): SimCSE with rankings of the batch that agree between both views and with teachers."""

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
    """The loss L_infoNCE + beta L_consistency + gamma L_rank. Teachers may be any encoders, which are not trained."""

    Options = RankCSEOptions
    options: RankCSEOptions
    sample_settings = {"options.teachers": [{"model": "minilm"}]}  # noqa: RUF012 - as of the base

    def __init__(self, backbone: Backbone, options: RankCSEOptions) -> None:
        """Raise StsbenchError, one line, for an MLP on another pooler than cls."""
        super().__init__(backbone, options)
        self.ranking = Ranking(options, backbone)

    @classmethod
    def needs(cls, options: RankCSEOptions) -> Needs:
        """Return the needs: sentences, or pairs and hard negatives; dropout where both views are the same sentence."""
        roles = partial(pairs_or_sentence, view=options.view, unsupervised="listmle-bert-base")
        return Needs(roles, dropout=options.view == "dropout")

    def views(self, rows: Examples, rng: np.random.Generator) -> Views:
        """Return the sentence twice, or a view for each role, with the teachers' similarities of the texts."""
        return self.ranking.add_to(role_views(self, rows), rows)

    def forward(self, batch: Batch) -> dict[str, Term]:
        """Return contrastive, SimCSE's Eq. 4 (plain sentences) or 5, and ranking and consistency of `Ranking.terms`."""
        queries, keys, *negatives = self.vectors(batch.ids, batch.mask).split(len(batch))
        term = contrast(
            queries, keys, negatives, batch.shares, self.gather_mode, temperature=self.options.temperature
        )
        return {"contrastive": term, **self.ranking.terms(queries, keys, negatives, batch, self.gather_mode)}

    def inputs(self) -> dict[str, str]:
        """Return the teachers' fingerprints."""
        return self.ranking.inputs()

    def notes(self) -> list[str]:
        """Return lines that name the teachers."""
        return self.ranking.notes()
