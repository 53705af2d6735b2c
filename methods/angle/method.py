"""AnglE (Li and Li 2024): labelled pairs ranked by an angle in complex space and by cosine, with in-batch negatives."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from stsbench.errors import StsbenchError
from stsbench.losses.labelled import pair_angles, pair_cosines
from stsbench.training.api.batch import Batch, Examples, Term, Views
from stsbench.training.api.contrasting import contrast, contrast_labelled, rank_pairs
from stsbench.training.api.labelled import TRIPLET, unordered
from stsbench.training.api.method import Needs, PoolerMethod, ScoredMethod, TemplateMethod
from stsbench.training.api.views import require_roles, scored_pairs

from .options import AnglEOptions


class AnglE(TemplateMethod, PoolerMethod, ScoredMethod):
    """The loss ibn_weight L_ibn + cosine_weight CoSENT(cosine) + angle_weight CoSENT(angle), for each format of the data."""

    Options = AnglEOptions
    options: AnglEOptions

    @classmethod
    def needs(cls, options: AnglEOptions) -> Needs:
        """Return the needs: scored pairs, labelled pairs alone, anchors with positives, or triplets."""
        if options.format == "scored":
            return Needs(scored_pairs, wrong_score=partial(check_scores, options))
        if options.format == "labelled":
            return cls.labelled_needs(options)
        roles = TRIPLET if options.format == "triplets" else TRIPLET[:2]
        return Needs(partial(require_roles, roles, f"options.format {options.format}"))

    def views(self, rows: Examples, rng: np.random.Generator) -> Views:
        """Return the two texts of each pair with their scores, or one view for each role."""
        if self.options.format != "scored":
            return Views([self.read(rows, role) for role in rows.roles])
        scores = rows.scores()
        if self.options.ibn_weight and (wrong := check_scores(self.options, np.array([*scores, 0.0, 1.0]))):
            raise StsbenchError(wrong[1])  # batches of another trainer were not checked before
        return Views([self.read(rows, role) for role in ("sentence1", "sentence2")], scores=scores)

    def forward(self, batch: Batch) -> dict[str, Term]:
        """Return the terms in_batch, hard_negatives, cosent and angle whose weights are not 0."""
        n, vectors = len(batch), self.vectors(batch.ids, batch.mask)
        parts = vectors.split(n) if n else (vectors,) * batch.views
        if batch.scores is not None:
            return self._pair_terms(parts[0], parts[1], batch.scores, batch)
        return self._contrasted_terms(parts[0], parts[1], parts[2:], batch)

    def _pair_terms(self, first: Tensor, second: Tensor, scores: Tensor, batch: Batch) -> dict[str, Term]:
        """Return the terms of format A. first, second: (n, d); scores: (n,)."""
        o, terms = self.options, {}
        if o.ibn_weight:
            term = contrast_labelled(first, second, scores, batch.shares, self.gather_mode, scale=o.ibn_scale)
            terms["in_batch"] = replace(term, weight=o.ibn_weight)
        return {**terms, **self._ranked_terms([(first, second)], scores, batch)}

    def _contrasted_terms(
        self, queries: Tensor, keys: Tensor, negatives: tuple[Tensor, ...], batch: Batch
    ) -> dict[str, Term]:
        """Return the terms of formats B and C. All tensors are (n, d)."""
        o, mode = self.options, self.gather_mode
        temperature = 1 / o.ibn_scale
        if not negatives:
            return {"in_batch": contrast(queries, keys, [], batch.shares, mode, temperature=temperature)}
        terms = {}
        if o.ibn_weight:
            term = contrast(queries, keys, [], batch.shares, mode, temperature=temperature)
            terms["in_batch"] = replace(term, weight=o.ibn_weight / 2)
        if o.cln_weight:
            term = contrast(queries, keys, negatives, batch.shares, mode, temperature=temperature)
            terms["hard_negatives"] = replace(term, weight=o.cln_weight / 2)
        scores = queries.new_tensor([1.0, 0.0]).expand(len(queries), 2)  # scores of a query's positive and of its negative
        return {**terms, **self._ranked_terms([(queries, keys), (queries, negatives[0])], scores, batch)}

    def _ranked_terms(self, pairs: list[tuple[Tensor, Tensor]], scores: Tensor, batch: Batch) -> dict[str, Term]:
        """Return CoSENT on cosines and on angles. pairs: k of (n, d); scores: (n,) or (n, k)."""
        o, terms = self.options, {}
        for name, similarity, weight, scale in (
            ("cosent", pair_cosines, o.cosine_weight, o.cosine_scale),
            ("angle", pair_angles, o.angle_weight, o.angle_scale),
        ):
            if weight:
                term = rank_pairs(pairs, similarity, scores, batch.shares, self.gather_mode, scale=scale)
                terms[name] = replace(term, weight=weight)
        return terms

    def notes(self) -> list[str]:
        """Return a note for vectors of odd width, which get a zero before their angle is computed."""
        width = self.backbone.vector_width
        if width % 2 == 0 or self.options.format == "positives" or not self.options.angle_weight:
            return []
        return [f"vectors of {width} numbers have no halves: the angle is that of vectors with a zero behind them"]


def check_scores(options: AnglEOptions, scores: NDArray[np.float64]) -> tuple[int, str] | None:
    """Return the index of a score that ranking or in-batch negatives cannot use, and why, as `Needs.wrong_score` does."""
    if options.ibn_weight:
        graded = np.flatnonzero((scores != 0) & (scores != 1))
        if len(graded):
            return int(graded[0]), (
                f"the score {scores[graded[0]]:g}, and in-batch negatives (options.ibn_weight) take 0 and 1 alone: set "
                "options.ibn_weight 0, or make the scores 0 and 1"
            )
        if options.cosine_weight == options.angle_weight == 0:
            return None  # nothing is ranked
    return unordered(scores)
