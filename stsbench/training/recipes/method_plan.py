"""The plan of a training: the method with its options, its stages, and which rows each stage trains on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from stsbench.errors import StsbenchError
from stsbench.registry import calling
from stsbench.training.api.checks import check_needs, check_stages, check_stages_for
from stsbench.training.api.labelled import nli_roles
from stsbench.training.api.method import LabelledUse, Method, Needs
from stsbench.training.api.options import Options, RankingOptions
from stsbench.training.recipes.methods import load_method
from stsbench.training.recipes.recipe import AROUND, Recipe
from stsbench.training.recipes.sections import SemiSettings

SUP = "sup"  # the stage of labelled rows that recipe.semi puts before the method's own


@dataclass(frozen=True)
class MethodPlan:
    """A method's class and options, and the cross-entropy on labelled rows that recipe.semi adds. around: the recipe's
    sections named in AROUND, without those that are null.

    With joint and sup-joint, a batch of labelled rows accompanies each batch of the method's own stages. With sup-joint and
    sup-unsup, a stage "sup" on labelled rows alone comes before these stages.
    """

    kind: type[Method]
    options: Options
    semi: SemiSettings | None = None
    around: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Return the method's name."""
        return self.kind.name

    @cached_property
    def needs(self) -> Needs:
        """Return what the method needs of its rows and of the backbone. Raises StsbenchError, one line."""
        return check_needs(self.kind, calling(self.kind, "needs", lambda: self.kind.needs(self.options)))

    @property
    def stages(self) -> tuple[str, ...]:
        """Return all stages, in the order of training."""
        added = self.semi is not None and self.semi.procedure != "joint"
        return (SUP, *self.method_stages) if added else self.method_stages

    @property
    def method_stages(self) -> tuple[str, ...]:
        """Return the method's own stages, without the one that recipe.semi puts before them."""
        stages = calling(self.kind, "stages_for", lambda: self.kind.stages_for(self.options))
        return check_stages_for(self.kind, stages)

    def stream_number(self, stage: str) -> int:
        """Return the stage's number in the seed of its batches; with recipe.semi, the method's own stages keep the numbers
        that they have without it."""
        known = self.kind.Options.stages
        return known.index(stage) if stage in known else len(known)

    def labelled(self, stage: str) -> LabelledUse:
        """Return how a stage uses the recipe's labelled rows, by `Needs.labelled`, or by recipe.semi where it is set."""
        if self.semi is None:
            use = self.needs.labelled
            return use if isinstance(use, str) else use.get(stage, "none")
        if stage == SUP:
            return "only"
        return "none" if self.semi.procedure == "sup-unsup" else "with"

    def roles(self, roles: tuple[str, ...]) -> tuple[str, ...]:
        """Return those of `roles` that the method uses. Raises StsbenchError, one line, where one is lacking."""
        return calling(self.kind, "needs().roles", lambda: self.needs.roles(roles, self.name))

    def labelled_roles(self, roles: tuple[str, ...]) -> tuple[str, ...]:
        """Return the roles used of labelled rows; with recipe.semi those of triplets, or of pairs with a label."""
        if self.semi is None:
            choose = self.needs.labelled_roles
            return calling(self.kind, "needs().labelled_roles", lambda: choose(roles, self.name))
        return nli_roles(roles, f"semi.procedure {self.semi.procedure}")


def load_plan(recipe: Recipe) -> MethodPlan:
    """Return the plan of a recipe, with its method's class loaded.

    Raises StsbenchError, one line, for an unknown or unfinished method, for a section that the method cannot use, and for
    semi where the method uses labelled rows itself.
    """
    kind = load_method(recipe.method)
    around = {name: section for name in AROUND if (section := getattr(recipe, name)) is not None}
    plan = MethodPlan(kind, kind.Options(**recipe.options), around=around)
    if recipe.ranking is not None and isinstance(plan.options, RankingOptions):
        raise StsbenchError(f"ranking: the method {kind.name} ranks by its own options: set ranking to null")
    for name in (name for name in around if name not in ("matryoshka", "adaptive_layers")):
        if all(plan.labelled(stage) == "only" for stage in plan.method_stages):
            raise StsbenchError(
                f"{name}: {kind.name} compares no two views by the shared contrastive term, for it trains on labelled rows "
                f"alone by these options: set {name} to null"
            )
    check_stages(kind, {stage: plan.labelled(stage) for stage in plan.method_stages})
    if recipe.semi is None:
        return plan
    if SUP in plan.method_stages or any(plan.labelled(stage) != "none" for stage in plan.method_stages):
        raise StsbenchError(f"semi: the method {kind.name} uses labelled rows itself: set semi to null")
    return replace(plan, semi=recipe.semi)
