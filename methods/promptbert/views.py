"""What PromptBERT makes of a row: its sentence inside one template and another, or the texts of the data inside them."""

from __future__ import annotations

from stsbench.encoders.prompt.template import TokenTemplate
from stsbench.training.api.batch import Examples, Ragged, Views

from .options import PromptBERTOptions


class ViewMaker:
    """Rows to views. max_length: tokens of a sentence with two special ones, as backbone.max_length counts them."""

    def __init__(self, options: PromptBERTOptions, first: TokenTemplate, second: TokenTemplate, max_length: int) -> None:
        self.inside = options.text == "inside"
        self.first, self.second = first, second
        self.limit = max_length - 2  # the authors' code counts the sentence's pieces alone

    def __call__(self, rows: Examples) -> Views:
        """The first view inside the first template, all others inside the second."""
        if rows.roles != ("sentence",):
            anchor, *others = rows.roles
            return Views([self._read(rows, anchor, self.first), *(self._read(rows, role, self.second) for role in others)])
        first = self._read(rows, "sentence", self.first)
        return Views([first, first if self.second is self.first else self._read(rows, "sentence", self.second)])

    def read(self, rows: Examples, role: str) -> Ragged:
        """The texts of a role inside the first template."""
        return self._read(rows, role, self.first)

    def _read(self, rows: Examples, role: str, template: TokenTemplate) -> Ragged:
        pieces = template.pieces(rows.texts(role), self.limit) if self.inside else rows.ids(role)
        return template.wrap(pieces)
