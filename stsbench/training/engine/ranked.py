"""A method whose sentences are also ranked by teachers: RankCSE's terms beside the method's own, by recipe.ranking."""

from __future__ import annotations

import numpy as np

from stsbench.errors import StsbenchError
from stsbench.training.api.batch import Batch, Examples, Term, Views
from stsbench.training.api.contrasting import watched
from stsbench.training.api.method import Method
from stsbench.training.api.ranking_options import RankingOptions
from stsbench.training.api.teachers import Ranking
from stsbench.training.engine.semi import SemiSupervised
from stsbench.training.engine.wrapped import Around, Wrapped
from stsbench.training.recipes.method_plan import MethodPlan

SECTION = "ranking"


class Ranked(Around):
    """An objective, and "ranking" and "consistency" over the vectors that its first contrastive term compares.

    These are the vectors of the same forward pass, under the same dropout masks, heads included: simcse with the section
    `ranking` is rankcse to the last bit. Nothing here has a weight.
    """

    def __init__(self, method: Method, objective: Method | SemiSupervised | Wrapped, options: RankingOptions) -> None:
        super().__init__(method, objective)
        self.ranking = Ranking(options, method.backbone, SECTION)

    def views(self, rows: Examples, rng: np.random.Generator) -> Views:
        """The objective's, and the teachers' similarities."""
        return self.ranking.add_to(super().views(rows, rng), rows)

    def inputs(self) -> dict[str, str]:
        """The objective's, and the teachers."""
        return {**super().inputs(), **self.ranking.inputs()}

    def notes(self) -> list[str]:
        """The objective's, and which the teachers are."""
        return [*super().notes(), *self.ranking.notes()]

    def forward(self, batch: Batch) -> dict[str, Term]:
        """The terms of the loss; of batches of labelled rows only, the objective's."""
        with watched() as calls:
            terms: dict[str, Term] = self.objective(batch)
        if batch.labelled_only:
            return terms
        if not calls:
            why = "compares no two views by the shared contrastive term"
            raise StsbenchError(f"{SECTION}: {self.method.name} {why}: set it to null")
        queries, keys, negatives = calls[0]
        if len(queries) != len(batch):
            raise StsbenchError(f"{SECTION}: {self.method.name} contrasts other texts than the rows: set it to null")
        added = self.ranking.terms(queries, keys, negatives, batch, self.method.gather_mode)
        if shared := sorted(added.keys() & terms):
            raise StsbenchError(f"{SECTION}: {self.method.name} has a term called {shared[0]} itself: set it to null")
        return {**terms, **added}


Objective = Method | SemiSupervised | Wrapped | Ranked  # what gives the loop its terms


def make_objective(plan: MethodPlan, method: Method) -> Objective:
    """The method itself; with recipe.semi and its classifier, with recipe.matryoshka and recipe.guide around its contrastive
    terms, with recipe.ranking and its teachers. In this order: a ranking is of whole vectors and of all texts."""
    inner = method if plan.semi is None else SemiSupervised(method, plan.semi)
    wraps = plan.matryoshka is not None or plan.guide is not None
    objective = Wrapped(method, inner, plan.matryoshka, plan.guide) if wraps else inner
    return objective if plan.ranking is None else Ranked(method, objective, plan.ranking)
