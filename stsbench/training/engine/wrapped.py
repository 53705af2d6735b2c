"""A method whose contrastive term is taken of shortened vectors, or without what a guide masks (matryoshka, guide)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import numpy as np
from torch import nn

from stsbench.errors import StsbenchError
from stsbench.training.api.batch import Batch, Examples, Term, Views
from stsbench.training.api.contrasting import Wrapping, wrapped
from stsbench.training.api.method import Method
from stsbench.training.api.teachers import Teachers
from stsbench.training.engine.semi import SemiSupervised
from stsbench.training.losses.guided import GuideRule
from stsbench.training.modules.masked_lm import LMHead
from stsbench.training.recipes.wrappers import GuideSettings, MatryoshkaSettings

MASKED = "masked"  # the share of the negatives, in the log
_BY_ROW = "guide cosines"
_HEADS = ("head", "projector")  # what stands behind the pooled vector, in every method here


class Around(nn.Module):
    """An objective that changes another one: what it does not change is the other's."""

    def __init__(self, method: Method, objective: Any) -> None:
        super().__init__()
        self.method, self.objective = method, objective

    @property
    def held_out_metric(self) -> str:
        """The objective's."""
        return str(self.objective.held_out_metric)

    def views(self, rows: Examples, rng: np.random.Generator) -> Views:
        """The objective's."""
        views: Views = self.objective.views(rows, rng)
        return views

    def labelled_views(self, rows: Examples, rng: np.random.Generator) -> Views:
        """The objective's."""
        views: Views = self.objective.labelled_views(rows, rng)
        return views

    def prepare_labelled(self, rows: Any) -> None:
        """The objective's."""
        self.objective.prepare_labelled(rows)

    def start_stage(self, stage: str) -> None:
        """The objective's."""
        self.objective.start_stage(stage)

    def counts(self, batch: Batch) -> dict[str, int]:
        """The objective's: what is changed or added goes with the rows."""
        counts: dict[str, int] = self.objective.counts(batch)
        return counts

    def inputs(self) -> dict[str, str]:
        """The objective's."""
        inputs: dict[str, str] = self.objective.inputs()
        return inputs

    def notes(self) -> list[str]:
        """The objective's."""
        notes: list[str] = self.objective.notes()
        return notes


class Wrapped(Around):
    """An objective whose contrastive terms are those of `Wrapping`, under the same names and weights.

    One forward pass of the encoder gives all of them. Other terms of the loss, a queue's vectors and a ranking by teachers
    are as without: they read whole vectors, but for the queue's, which are shortened with the others.
    """

    def __init__(
        self, method: Method, objective: Method | SemiSupervised, matryoshka: MatryoshkaSettings | None,
        guide: GuideSettings | None,
    ) -> None:
        """Raises StsbenchError, one line, where shortened vectors would not be those that are tested."""
        super().__init__(method, objective)
        self.matryoshka, self.guide = matryoshka, guide
        self.own_labels = method.needs(method.options).labelled == "only"  # else such a batch is of recipe.semi
        self.rule: GuideRule | None = None
        self.reader: Teachers | None = None
        if matryoshka is not None:
            _check_head(method)
            _check_width(matryoshka, method.backbone.vector_width)
        if guide is not None:
            self.rule = _rule(guide)
            offline = getattr(method.backbone, "offline", False)
            self.reader = Teachers([(guide.model, guide.settings, 1.0)], "guide.model", offline)

    def views(self, rows: Examples, rng: np.random.Generator) -> Views:
        """The objective's, and the guide's cosines of the texts as the data give them, whatever the views change in them."""
        views: Views = super().views(rows, rng)
        if self.guide is None:
            return views
        if not views.of_rows:
            why = f"a view of {self.method.name} is of another row, which it does not read"
            raise StsbenchError(f"guide: {why}: set it to null")
        if len(views.tokens[0]) != len(rows.rows):
            raise StsbenchError("guide: it masks rows, and this method makes other texts of them: set it to null")
        reader = self._loaded()
        if self.guide.dropout:  # by the batch's own random numbers: the same in every process and after a resumption
            reader = reader.with_dropout(int(rng.integers(2**31)))
        anchors, *others = [rows.texts(role) for role in rows.roles if role not in ("label", "score")]
        if not others:
            if self.guide.threshold != "fixed" and self.guide.margin <= 0:
                raise StsbenchError(
                    f"guide.margin {self.guide.margin:g} masks nothing: a plain sentence is its own positive, and no "
                    "text is nearer; set it above 0, e.g. 0.1"
                )
            views.by_row[_BY_ROW] = [reader.similarities(anchors, anchors)]
            return views
        positives, *negatives = others
        # of anchors with positives, each block of hard negatives, and anchors
        columns = [text for block in (positives, *negatives, anchors) for text in block]
        blocks = [reader.similarities(anchors, columns), reader.similarities(positives, positives)]
        views.by_row[_BY_ROW] = [np.concatenate(blocks, axis=1)]
        return views

    def inputs(self) -> dict[str, str]:
        """The objective's, and the guide by its fingerprint."""
        guide = {} if self.reader is None else {"guide": next(iter(self._loaded().fingerprints().values()))}
        return {**super().inputs(), **guide}

    def notes(self) -> list[str]:
        """The objective's, which the guide is, and what of a vector is trained."""
        lines: list[str] = super().notes()
        if self.reader is not None:
            spec = self._loaded().encoders[0].spec
            lines = [*lines, f"guide: {spec.name}, pooler {spec.pooler}"]
        if self.matryoshka is not None:
            dims, width = self.matryoshka.dims, self.method.backbone.vector_width
            first = ", ".join(map(str, dims))
            lines = [*lines, f"matryoshka: trains the first {first} numbers of a vector; no truncate_dim is stored"]
            if max(dims) < width:
                lines.append(f"warning: matryoshka.dims lacks the whole vector, {width}: its last numbers are not trained")
        return lines

    def forward(self, batch: Batch) -> dict[str, Term]:
        """The objective's terms."""
        dims = self.matryoshka.pairs if self.matryoshka is not None else ()
        wrapping = Wrapping(dims, self.rule, batch.by_row.get(_BY_ROW))
        with wrapped(wrapping):
            terms: dict[str, Term] = self.objective(batch)
        if not batch.labelled_only or self.own_labels:
            idle = {"matryoshka": self.matryoshka and not wrapping.calls, "guide": self.rule and not wrapping.masked}
            for section in (name for name, without in idle.items() if without):
                why = "compares no two views by the shared contrastive term"
                raise StsbenchError(f"{section}: {self.method.name} {why}: set it to null")
        if wrapping.masked:  # for the log: a guide that masks nearly all leaves nothing to learn
            terms[MASKED] = replace(wrapping.masked[0], weight=0.0)
        return terms

    def _loaded(self) -> Teachers:
        assert self.reader is not None
        self.reader.load(next(self.method.parameters()).device)
        return self.reader


def _rule(guide: GuideSettings) -> GuideRule:
    return GuideRule(
        guide.threshold, guide.margin, 1.0 if guide.phi is None else guide.phi, guide.contrast_anchors,
        guide.contrast_positives, guide.diagonals, guide.masked, guide.loss,
    )


def _check_width(matryoshka: MatryoshkaSettings, width: int) -> None:
    if (most := max(matryoshka.dims)) > width:
        raise StsbenchError(f"matryoshka.dims {most} is more than the {width} numbers of a vector: leave it out")


def _check_head(method: Method) -> None:
    """Raises StsbenchError for a head that the loss has and the tested encoder has not: it mixes the numbers of a vector, so
    that the first of what the loss compares say nothing of the first of what is tested."""
    for name in _HEADS:
        head = getattr(method, name, None)
        if not isinstance(head, nn.Module) or isinstance(head, LMHead):  # words are no vectors of sentences
            continue
        weights = {weight.data_ptr() for weight in head.parameters()}
        tested = method.inference()
        parts = [tested.model, tested.dense, tested.token_pooler, getattr(tested.prompt, "head", None)]
        kept = {weight.data_ptr() for part in parts if isinstance(part, nn.Module) for weight in part.parameters()}
        if not weights <= kept:
            option = type(method.options).model_fields.get(name)
            can_be_none = option is not None and "none" in get_args(option.annotation)
            choose = f"set options.{name} to one that is kept, or to none" if can_be_none else "take a method without one"
            raise StsbenchError(
                f"matryoshka: {method.name} contrasts what its {name} makes of a vector, and that is dropped at test: the "
                f"first numbers of a tested vector would not be those trained; {choose}"
            )
