"""What SimCSE makes of a row: the same sentence twice, a changed or following sentence, or the pair that the data bring."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from stsbench.data.text.augment import crop, delete_one_word, delete_words, read_thesaurus, synonym
from stsbench.data.text.following import following
from stsbench.errors import StsbenchError
from stsbench.training.api.batch import IGNORED, Examples, Ragged, Views
from stsbench.training.api.repetition import Repeater
from stsbench.training.modules.backbone import Backbone
from stsbench.training.modules.masking import mask_tokens

from .options import NEXT, SimCSEOptions
from .replacement import words_to_replace

Change = Callable[..., list[str]]  # (words, rng=...) -> words


class ViewMaker:
    """Rows to views. Sentences that are changed word by word are split at white space, changed and tokenised anew."""

    def __init__(self, backbone: Backbone, options: SimCSEOptions) -> None:
        self.options, self.max_length = options, backbone.max_length
        self.tokenizer = copy.deepcopy(backbone.tokenizer)  # the truncation set on it below must not reach its other users
        self.change = _change(options)
        self.later = Repeater(backbone, options.repeat) if options.repeat is not None else _plain
        if options.mlm_weight > 0 and self.tokenizer.mask_token_id is None:
            raise StsbenchError(f"options.mlm_weight needs a mask token, and the tokenizer of {backbone.name} has none")

    def __call__(self, rows: Examples, rng: np.random.Generator) -> Views:
        """The views of one batch, and their masked copies where there is a masked-LM term."""
        views = self._views(rows, rng)
        if self.options.mlm_weight > 0:
            special, mask_id = self.tokenizer.all_special_ids, self.tokenizer.mask_token_id
            vocabulary, probability = len(self.tokenizer), self.options.mlm_probability
            copies = [mask_tokens(ids, special, mask_id, vocabulary, rng, probability) for ids in views.tokens]
            views.extra = {"mlm_ids": [ids for ids, _ in copies], "mlm_labels": [labels for _, labels in copies]}
        return views

    def _views(self, rows: Examples, rng: np.random.Generator) -> Views:
        if "sentence" not in rows.roles:
            anchor, *later = rows.roles
            return Views([rows.ids(anchor), *(self.later(rows, role, rng) for role in later)])
        view, both = self.options.view, self.options.augment_both
        plain: Ragged = rows.ids("sentence")
        if self.options.fixed_dropout_mask:
            return Views([plain])
        if view == "dropout":
            return Views([plain, self.later(rows, "sentence", rng)])
        if view in NEXT:
            return Views([plain, following(rows, NEXT[view], rng).ids("sentence")], of_rows=False)
        texts = rows.texts("sentence")
        if self.change is not None:
            first = self._changed(texts, rng) if both else plain
            return Views([first, self._changed(texts, rng)])
        rate, encoded = self.options.rate, self._tokenised(texts)
        assert rate is not None
        unchanged = plain, [np.full(len(ids), IGNORED) for ids in plain]
        pairs = [words_to_replace(encoded, rate, rng) if both else unchanged, words_to_replace(encoded, rate, rng)]
        return Views([ids for ids, _ in pairs], {"replaced_labels": [labels for _, labels in pairs]})

    def _changed(self, texts: list[str], rng: np.random.Generator) -> Ragged:
        assert self.change is not None
        changed = [" ".join(self.change(text.split(), rng=rng)) for text in texts]
        ids: Ragged = self._tokenised(changed)["input_ids"]
        return ids

    def _tokenised(self, texts: list[str]) -> Any:
        return self.tokenizer(texts, truncation=True, max_length=self.max_length, padding=False)


def _plain(rows: Examples, role: str, rng: np.random.Generator) -> Ragged:
    return rows.ids(role)


def _change(options: SimCSEOptions) -> Change | None:
    """What is done to a sentence's words, for the views that do it without a model."""
    if options.view == "synonym":
        return partial(synonym, thesaurus=read_thesaurus(Path(options.thesaurus or "")))
    if options.view == "delete_one_word":
        return delete_one_word
    changes: dict[str, Change] = {"crop": crop, "delete_words": delete_words}
    return partial(changes[options.view], rate=options.rate) if options.view in changes else None
