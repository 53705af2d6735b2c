"""What DiffCSE makes of a batch: the sentences, and block by block the changed copies that its auxiliary task reads."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from stsbench.data.text.following import following
from stsbench.errors import StsbenchError
from stsbench.training.api.batch import Examples, Ragged, Views
from stsbench.training.api.repetition import Repeater
from stsbench.training.modules.backbone import Backbone
from stsbench.training.modules.edits import delete_tokens, insert_masks
from stsbench.training.modules.masking import mask_tokens

from .options import DiffCSEOptions, Operator, changes, detects

_LABELS = " labels"


class ViewMaker:
    """Rows to views: V of sentences (the sentence twice, or what the data give, anchor first), then blocks of changed ones.

    A block is one operator on one sentence ("same" or "next"), blocks in the order of options.sentence, then of
    options.operators, of which combine "choice" draws one a batch. It holds a copy of each sentence view, drawn on its own
    (with options.augmented_as of the first only), and in extra, under names that begin with "OPERATOR SENTENCE":

    - replace: the copy is masked; "... original" the ids before, "... labels" these at chosen places, else IGNORED;
    - insert: the copy has [MASK] tokens added; "... labels" 1 at these, 0 elsewhere;
    - delete: the copy lacks tokens; "... labels" 1 at those whose left neighbour is gone, 0 elsewhere.
    """

    def __init__(self, backbone: Backbone, options: DiffCSEOptions) -> None:
        """Raises StsbenchError for a tokenizer without the mask token that replace and insert need."""
        tokenizer = backbone.tokenizer
        self.options, self.max_length = options, backbone.max_length
        self.repeater = Repeater(backbone, options.repeat) if options.repeat is not None else None
        self.special, self.mask_id, self.vocabulary = tokenizer.all_special_ids, tokenizer.mask_token_id, len(tokenizer)
        masking = [operator for operator in options.operators if operator != "delete"]
        if changes(options) and masking and self.mask_id is None:
            raise StsbenchError(
                f"options.operators {masking[0]} needs a mask token, and the tokenizer of {backbone.name} has none"
            )

    def __call__(self, rows: Examples, rng: np.random.Generator) -> Views:
        """The views of one batch. Sentences as they are cost `rng` nothing. Changed copies are of repeated ones, too."""
        options = self.options
        first, *later = rows.roles if options.view == "given" else ("sentence", "sentence")
        plain = rows.ids(first)
        sentences: list[Ragged] = [plain, *(self._later(rows, role, rng) for role in later)]
        views = Views(list(sentences), one_length=options.rtd_mean == "all" and detects(options))
        if not changes(options):
            return views
        operators = options.operators
        if options.combine == "choice":
            operators = (operators[int(rng.integers(len(operators)))],)
        for sentence in options.sentence.split("+"):
            originals = sentences
            if sentence == "next":
                originals = [following(rows, 1, rng).ids("sentence")] * len(sentences)
            for operator in operators:
                for ids in originals if options.augmented_as is None else originals[:1]:
                    self._add(views, operator, sentence, ids, rng)
        return views

    def _later(self, rows: Examples, role: str, rng: np.random.Generator) -> Ragged:
        return rows.ids(role) if self.repeater is None else self.repeater(rows, role, rng)

    def _add(self, views: Views, operator: Operator, sentence: str, ids: Ragged, rng: np.random.Generator) -> None:
        """One changed copy of one view."""
        options, name = self.options, f"{operator} {sentence}"
        if operator == "replace":
            copies, labels = mask_tokens(
                ids, self.special, self.mask_id, self.vocabulary, rng, options.mask_ratio, options.masked, options.random
            )
            views.extra.setdefault(f"{name} original", []).append(ids)
        elif operator == "insert":
            copies, labels = insert_masks(ids, self.special, self.mask_id, rng, options.edit_ratio, self.max_length)
        else:
            copies, labels = delete_tokens(ids, self.special, rng, options.edit_ratio)
        views.tokens.append(copies)
        views.extra.setdefault(name + _LABELS, []).append(labels)


def blocks(extra: Iterable[str]) -> list[tuple[str, str]]:
    """(operator, sentence) of each block, in the order of its views. extra: that of Views or Batch, or its names."""
    names = [name.removesuffix(_LABELS).split(" ") for name in extra if name.endswith(_LABELS)]
    return [(operator, sentence) for operator, sentence in names]
