"""A method trained with labelled rows, too: NLI's cross-entropy beside its own loss, or in a stage before it.

Source: Wang and Lu (2022), DiffAug, Appendix C. Which stages there are, and their rows: training/recipes/method_plan.py.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import torch
from torch import nn

from stsbench.encoders.forward.borrowed import borrowed
from stsbench.errors import StsbenchError
from stsbench.torch_random import forked
from stsbench.training.api.batch import Batch, Examples, Shares, Term, Views
from stsbench.training.api.labelled import NLIClassifier, classes_of, nli_views
from stsbench.training.api.method import Method
from stsbench.training.recipes.method_plan import SUP
from stsbench.training.recipes.recipe import SemiSettings
from stsbench.training.rows.batches import to_batch

_TERM = "nli"


class SemiSupervised(nn.Module):
    """A method and a classifier of labelled pairs over its sentence vectors (`Method.vectors`, heads included).

    forward gives the method's terms and alpha * cross-entropy, the term "nli"; of batches of labelled rows only, that term
    alone. The classifier is a submodule of the method, "nli_classifier": it is saved, moved and optimised with it.
    """

    def __init__(self, method: Method, semi: SemiSettings) -> None:
        super().__init__()
        std = getattr(method.backbone.model.config, "initializer_range", 0.02)
        if hasattr(method, "nli_classifier"):
            raise StsbenchError(f"semi: the method {method.name} has an nli_classifier itself: set semi to null")
        method.add_module("nli_classifier", NLIClassifier(std=std))
        self.method, self.semi = method, semi
        self.held_out_metric = method.held_out_metric
        self.probe: Views | None = None  # two labelled rows, which show what the cross-entropy trains
        self.frozen: list[nn.Parameter] = []

    @property
    def classifier(self) -> NLIClassifier:
        """The method's submodule."""
        return cast(NLIClassifier, self.method.nli_classifier)

    def views(self, rows: Examples, rng: np.random.Generator) -> Views:
        """The method's."""
        return self.method.views(rows, rng)

    def labelled_views(self, rows: Examples, rng: np.random.Generator) -> Views:
        """A view for each text of a row."""
        return nli_views(self.method, rows)

    def prepare_labelled(self, rows: Any) -> None:
        """Make the classifier, by the width of the method's vectors and the number of labels."""
        some = rows.at(np.asarray(rows.rows)[:2])
        self.probe = self.labelled_views(some, np.random.default_rng(0))
        with borrowed(self.method):
            batch = self._probe_batch()
            width = self.method.vectors(batch.ids, batch.mask).shape[1]
        self.classifier.set_shape(width, classes_of(rows))

    def start_stage(self, stage: str) -> None:
        """In stage sup, freeze whatever the cross-entropy does not reach: DDP stops at a weight without gradient. In the
        other stages the method decides, and the classifier is trained where it is used."""
        for weight in self.frozen:
            weight.requires_grad_(True)
        self.frozen = []
        sup = stage == SUP
        if not sup:
            self.method.start_stage(stage)
        self.classifier.requires_grad_(sup or self.semi.procedure != "sup-unsup")
        # held-out labelled rows have nothing but a loss, whatever the method's rows are scored by
        self.held_out_metric = "loss" if sup else self.method.held_out_metric
        if sup:
            self.frozen = self._unreached()
            for weight in self.frozen:
                weight.requires_grad_(False)

    def forward(self, batch: Batch) -> dict[str, Term]:
        """The terms of the loss."""
        if batch.labelled_only:
            return {_TERM: self._nli(batch)}
        terms: dict[str, Term] = self.method(batch)
        if batch.labelled is None:
            return terms
        if _TERM in terms:
            raise StsbenchError(f"semi: the method {self.method.name} has a term called {_TERM} itself: set semi to null")
        term = self._nli(batch.labelled)
        return {**terms, _TERM: Term(term.value, term.count, self.semi.alpha)}

    def counts(self, batch: Batch) -> dict[str, int]:
        """The method's, and of the cross-entropy the labelled rows that go with the batch."""
        if batch.labelled_only:
            return {}
        labelled = {} if batch.labelled is None else {_TERM: len(batch.labelled)}
        return {**self.method.counts(batch), **labelled}

    def inputs(self) -> dict[str, str]:
        """The method's."""
        return self.method.inputs()

    def notes(self) -> list[str]:
        """The method's."""
        return self.method.notes()

    def _nli(self, batch: Batch) -> Term:
        return self.classifier.term(self.method.vectors(batch.ids, batch.mask), batch)

    def _probe_batch(self) -> Batch:
        if self.probe is None:
            raise RuntimeError("prepare_labelled comes before a stage")
        pad = self.method.backbone.tokenizer.pad_token_id
        device = next(self.method.parameters()).device
        return to_batch(self.probe, Shares((len(self.probe.tokens[0]),)), 0 if pad is None else pad, device)

    def _unreached(self) -> list[nn.Parameter]:
        """The trainable weights that get no gradient from the cross-entropy."""
        weights = [weight for weight in self.method.parameters() if weight.requires_grad]
        with forked(), borrowed(self.method), torch.enable_grad():
            value = self._nli(self._probe_batch()).value
            gradients = torch.autograd.grad(value, weights, allow_unused=True)
        return [weight for weight, gradient in zip(weights, gradients, strict=True) if gradient is None]
