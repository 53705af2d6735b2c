"""Any method without labels, trained on labelled rows before it or beside it (Wang and Lu 2022, DiffAug, Appendix C)."""

from __future__ import annotations

from functools import cache
from typing import Any, ClassVar, Literal, cast

import numpy as np
import torch

from stsbench.encoders.forward.borrowed import borrowed
from stsbench.errors import StsbenchError
from stsbench.registry import resolve
from stsbench.training.api.batch import Batch, Examples, Shares, Term, Views
from stsbench.training.api.labelled import NLIClassifier, classes_of, nli_roles, nli_views
from stsbench.training.api.method import GROUP, Method
from stsbench.training.modules.backbone import Backbone
from stsbench.training.recipes.recipe import Recipe, SemiSettings
from stsbench.training.rows.batches import to_batch

SUP = "sup"
_TERM = "nli"


def method_kind(recipe: Recipe) -> type[Method]:
    """The class of the recipe's method; with recipe.semi one that is trained on labelled rows, too.

    Raises StsbenchError, one line, for an unknown method, and for semi where it acts in no way or the method has labelled
    rows of its own.
    """
    kind: type[Method] = resolve(GROUP, recipe.method)
    if recipe.semi is None:
        return kind
    options = kind.Options(**recipe.options)
    if any(kind.labelled(options, stage) != "none" for stage in kind.stages) or SUP in kind.stages:
        raise StsbenchError(f"semi: the method {recipe.method} has a way of its own with labelled rows: set semi to null")
    if recipe.semi.procedure == "sup-unsup" and recipe.semi.alpha != SemiSettings.model_fields["alpha"].default:
        raise StsbenchError(
            f"semi.alpha {recipe.semi.alpha:g} acts in no way with semi.procedure sup-unsup, which adds up no losses: "
            "leave it out"
        )
    return _wrapped(kind, recipe.semi)  # type: ignore[arg-type]  # classes are hashable


def own_stages(kind: type[Method]) -> tuple[str, ...]:
    """The stages that are the method's own, without the one that recipe.semi puts before them."""
    return tuple(stage for stage in kind.stages if not (issubclass(kind, SemiSupervised) and stage == SUP))


def stream_of(kind: type[Method], stage: str) -> int:
    """The number by which a stage draws its batches: for a method's own stages the same with recipe.semi and without."""
    own = own_stages(kind)
    return own.index(stage) if stage in own else len(own)


class SemiSupervised(Method):
    """What comes before a method's class in the bases of a semi-supervised one: its stages, batches and terms.

    joint, sup-joint: in the method's own stages alpha * cross-entropy of labelled rows is added, the term "nli". sup-joint,
    sup-unsup: before them a stage "sup" with that term alone. Sentence vectors are the method's own (`Method.vectors`),
    heads included. All else is the method's.
    """

    semi: ClassVar[SemiSettings]

    def __init__(self, backbone: Backbone, options: Any) -> None:
        super().__init__(backbone, options)
        std = getattr(backbone.model.config, "initializer_range", 0.02)
        self.nli_classifier = NLIClassifier(std=std)
        self.nli_probe: Views | None = None  # two labelled rows, by which is found out what the cross-entropy trains
        self.nli_frozen: list[torch.nn.Parameter] = []

    @classmethod
    def labelled(cls, options: Any, stage: str) -> Literal["none", "instead", "beside"]:
        """Stage sup has labelled rows alone, the method's own stages a batch beside each, but for sup-unsup."""
        if stage == SUP:
            return "instead"
        return "none" if cls.semi.procedure == "sup-unsup" else "beside"

    @classmethod
    def labelled_roles(cls, options: Any, given: tuple[str, ...]) -> tuple[str, ...]:
        """Triplets, or pairs with a label."""
        return nli_roles(given, f"semi.procedure {cls.semi.procedure}")

    def labelled_views(self, rows: Examples, rng: np.random.Generator) -> Views:
        """A view a text of the row."""
        return nli_views(self, rows)

    def prepare_labelled(self, rows: Any) -> None:
        """The classifier, by the width of the method's vectors and the number of labels."""
        some = rows.at(np.asarray(rows.rows)[:2])
        self.nli_probe = self.labelled_views(some, np.random.default_rng(0))
        with borrowed(self):
            batch = self._probed()
            width = self.vectors(batch.ids, batch.mask).shape[1]
        self.nli_classifier.set_shape(width, classes_of(rows))

    def start_stage(self, stage: str) -> None:
        """In stage sup whatever the cross-entropy does not reach is frozen: a weight without gradient stops several
        processes. In the others the method's own say, and the classifier where it is used."""
        for weight in self.nli_frozen:
            weight.requires_grad_(True)
        self.nli_frozen = []
        if stage != SUP:
            super().start_stage(stage)
        self.nli_classifier.requires_grad_(self.labelled(self.options, stage) != "none")
        # rows held out of the labelled ones have only a loss, whatever the method's own are scored by
        self.__dict__["held_out_metric"] = "loss" if stage == SUP else type(self).held_out_metric
        if stage == SUP:
            self.nli_frozen = self._unreached()
            for weight in self.nli_frozen:
                weight.requires_grad_(False)

    def forward(self, batch: Batch) -> dict[str, Term]:
        """The method's terms, and "nli" where labelled rows come with the batch, or are all of it."""
        if batch.instead:
            return {_TERM: self._nli(batch)}
        terms = super().forward(batch)  # type: ignore[safe-super]
        if batch.labelled is None:
            return terms
        if _TERM in terms:
            raise StsbenchError(f"semi: the method {self.name} has a term called {_TERM} of its own: set semi to null")
        term = self._nli(batch.labelled)
        return {**terms, _TERM: Term(term.value, term.count, self.semi.alpha)}

    def _nli(self, batch: Batch) -> Term:
        return self.nli_classifier.term(self.vectors(batch.ids, batch.mask), batch)

    def _probed(self) -> Batch:
        if self.nli_probe is None:
            raise RuntimeError("prepare_labelled comes before a stage")
        pad = self.backbone.tokenizer.pad_token_id
        device = next(self.parameters()).device
        return to_batch(self.nli_probe, Shares((len(self.nli_probe.tokens[0]),)), 0 if pad is None else pad, device)

    def _unreached(self) -> list[torch.nn.Parameter]:
        """The trainable weights that the cross-entropy has no gradient for."""
        weights = [weight for weight in self.parameters() if weight.requires_grad]
        devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
        with torch.random.fork_rng(devices=devices), borrowed(self), torch.enable_grad():
            value = self._nli(self._probed()).value
            gradients = torch.autograd.grad(value, weights, allow_unused=True)
        return [weight for weight, gradient in zip(weights, gradients, strict=True) if gradient is None]


@cache
def _wrapped(kind: type[Method], semi: SemiSettings) -> type[Method]:
    stages = kind.stages if semi.procedure == "joint" else (SUP, *kind.stages)
    made = type(f"SemiSupervised{kind.__name__}", (SemiSupervised, kind), {"semi": semi, "stages": stages})
    return cast(type[Method], made)
