"""SNCSE (Wang et al. 2022): a sentence in two templates, read at the mask, and its negation as a soft negative."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from stsbench.encoders.prompt.modules import MLPHead
from stsbench.encoders.prompt.prompt import Prompt
from stsbench.encoders.prompt.template import TokenTemplate, with_full_stop
from stsbench.errors import StsbenchError
from stsbench.losses.margins import bidirectional_margin
from stsbench.training.api.batch import Batch, Examples, Ragged, Term, Views
from stsbench.training.api.contrasting import contrast
from stsbench.training.api.method import Inference, Method, Needs
from stsbench.training.modules.backbone import Backbone
from stsbench.training.modules.prompting import check_length

from .negatives import Negatives, stop_rule
from .options import SNCSEOptions

_ROWS = 10_000  # counted at once: their texts are in memory


class SNCSE(Method):
    """Unsupervised, on plain sentences: InfoNCE of two templates and the bidirectional margin loss of the negations."""

    name = "sncse"
    Options = SNCSEOptions
    options: SNCSEOptions
    sample_settings = {"options.negation": "verbs"}  # noqa: RUF012 - as of the base

    def __init__(self, backbone: Backbone, options: SNCSEOptions) -> None:
        """Read the templates, and what the negations come from. backbone: with the pooler mask, its `name`.

        Raises StsbenchError, one line: another pooler, a template without one place for the sentence and one mask or too
        long for backbone.max_length or the model, no parser or file for the negations.
        """
        super().__init__(backbone, options)
        if backbone.pooler != "mask":
            raise StsbenchError(f"sncse trains the pooler mask, not {backbone.pooler}: set backbone.pooler mask")
        self.first = self._template(options.template, "options.template")
        self.second = self.first
        if options.second_template not in (None, options.template):
            self.second = self._template(options.second_template or "", "options.second_template")
        if options.test_template is not None:
            TokenTemplate(backbone.tokenizer, options.test_template, "options.test_template")
        std = getattr(backbone.model.config, "initializer_range", 0.02)
        self.head = MLPHead(backbone.width, std) if options.head != "none" else None
        self.negatives = Negatives(options) if options.weight else None

    @classmethod
    def needs(cls, options: SNCSEOptions) -> Needs:
        """Return what sentences need; dropout where both views are one template's."""
        return Needs(dropout=options.second_template in (None, options.template))

    def prepare(self, rows: Any) -> None:
        """Count the sentences whose negation is none of the file's or the rule's. A parser reads all texts here, once."""
        if self.negatives is not None:
            for start in range(0, len(rows), _ROWS):
                self.negatives.count(rows.at(rows.rows[start : start + _ROWS]).texts("sentence"))

    def views(self, rows: Examples, rng: np.random.Generator) -> Views:
        """Return the sentence in either template, and its negation in the second."""
        sentences = rows.texts("sentence")
        views = [self._inside(sentences, self.first), self._inside(sentences, self.second)]
        if self.negatives is not None:
            views.append(self._inside(self.negatives(sentences), self.second))
        return Views(views)

    def forward(self, batch: Batch) -> dict[str, Term]:
        """contrastive: InfoNCE of the first view against the second; soft_negative: the bidirectional margin loss."""
        n, options = len(batch), self.options
        first, second, *negations = self._vectors(batch.ids, batch.mask, n).split(n)
        terms = {
            "contrastive": contrast(
                first, second, [], batch.shares, self.gather_mode, temperature=options.temperature
            )
        }
        if negations:
            value = bidirectional_margin(first, second, negations[0], alpha=options.alpha, beta=options.beta)
            terms["soft_negative"] = Term(value, n, options.weight)
        return terms

    def read(self, rows: Examples, role: str) -> Ragged:
        """Return the texts inside the first template."""
        return self._inside(rows.texts(role), self.first)

    def vectors(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Return (n, d) vectors as the loss compares them, through the head. ids, mask: (n, L), as `read` gives."""
        return self._vectors(ids, mask, len(ids))

    def view_vectors(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return (n, d) vectors of the sentence in either template."""
        n = len(batch)
        first, second = self._vectors(batch.ids[: 2 * n], batch.mask[: 2 * n], n).split(n)
        return first, second

    def inference(self) -> Inference:
        """Return the state at the mask of the test's template, with the full stop that training puts behind a text."""
        options = self.options
        prompt = Prompt(
            options.test_template or options.template, full_stop=stop_rule(options),
            head=self.head if options.head == "mlp" else None,
        )
        return Inference(self.backbone.model, self.backbone.tokenizer, "mask", prompt=prompt)

    def inputs(self) -> dict[str, str]:
        """Return what the negations come from."""
        return {} if self.negatives is None else self.negatives.inputs()

    def notes(self) -> list[str]:
        """Return how many negations are none of the file's or the rule's."""
        return [] if self.negatives is None else self.negatives.report()

    def _vectors(self, ids: Tensor, mask: Tensor, first: int) -> Tensor:
        """Return (rows, d): the `first` rows are in the first template, all others in the second."""
        indices = torch.cat([self.first.mask_indices(mask[:first]), self.second.mask_indices(mask[first:])])
        states = self.backbone.at(ids, mask, indices)
        return states if self.head is None else self.head(states)

    def _inside(self, texts: list[str], template: TokenTemplate) -> Ragged:
        """Return the texts inside a template, each with a full stop where it lacks one, cut to what max_length leaves."""
        limit = self.backbone.max_length - (template.length if self.options.max_length_counts == "template" else 2)
        stop = stop_rule(self.options)
        return template.wrap(template.pieces([with_full_stop(text, stop) for text in texts], limit))

    def _template(self, template: str, name: str) -> TokenTemplate:
        tokenizer, backbone = self.backbone.tokenizer, self.backbone
        parsed = TokenTemplate(tokenizer, template, name)
        if self.options.train_tokens == "released":
            plain, parsed = parsed, TokenTemplate(tokenizer, template, name, blanks="template")
            if parsed.before == plain.before:
                raise StsbenchError(
                    f"options.train_tokens released has no effect: for {backbone.name} the blank before the sentence is no "
                    "token, or there is none; leave it at test"
                )
        if self.options.max_length_counts == "sentence":
            check_length(parsed, name, backbone)
        elif parsed.length >= backbone.max_length:
            raise StsbenchError(
                f"{name}: its {parsed.length} tokens fill backbone.max_length {backbone.max_length}, and no token is left "
                "for the sentence: raise it, or set options.max_length_counts sentence"
            )
        return parsed
