"""What SimCSE makes of a row: the same sentence twice, a changed or following sentence, or the pair that the data bring."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from stsbench.data.text.augment import crop, delete_one_word, delete_words, read_thesaurus, round_share, synonym
from stsbench.data.text.examples import following
from stsbench.errors import StsbenchError
from stsbench.training.api.batch import IGNORED, Examples, Ragged, Views
from stsbench.training.api.views import Repeater
from stsbench.training.modules.backbone import Backbone
from stsbench.training.modules.edits import mask_tokens
from stsbench.training.modules.masked_lm import Generator

from .options import NEXT, SimCSEOptions

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
        """Return the views of one batch, and their masked copies where there is a masked-LM term."""
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


class Replacer(Generator):
    """The view "mlm" of Table 1: words replaced by what a frozen masked LM, in eval mode, predicts there."""

    def __init__(self, backbone: Backbone, model: str | None) -> None:
        """Read `model`, folder or Hub id of a masked LM of the backbone's vocabulary; None: the backbone's, as it starts.

        Raises StsbenchError, one line, for another vocabulary, no mask token, or a model that stores no masked-LM head.
        """
        super().__init__(backbone, model, "eval", option="options.replacer")
        tokenizer = self.backbone.tokenizer
        if not getattr(tokenizer, "is_fast", False):
            raise StsbenchError(f"options.view mlm needs a fast tokenizer, which knows words; {self.name} has none")
        self.mask_id = tokenizer.mask_token_id
        self.special = tokenizer.all_special_ids

    def forward(self, ids: Tensor, mask: Tensor, labels: Tensor) -> Tensor:
        """Return `ids` with the likeliest ordinary token where `labels` is not IGNORED, guessed at once; all are (n, L)."""
        chosen = labels != IGNORED
        return self.fill(ids.masked_fill(chosen, self.mask_id), mask, chosen, forbidden=self.special)


def words_to_replace(
    encoded: Any, rate: float, rng: np.random.Generator
) -> tuple[list[NDArray[np.int64]], list[NDArray[np.int64]]]:
    """Return the token ids of n tokenised texts, and labels: the ids of round_share(words, rate) whole words, else IGNORED.

    encoded: a fast tokenizer's output, whose words are those of its own splitting, punctuation marks among them.
    """
    ids, labels = [], []
    for number, row in enumerate(encoded["input_ids"]):
        words: Sequence[int | None] = encoded.word_ids(number)
        known = sorted({word for word in words if word is not None})
        drawn = set(rng.choice(known, round_share(len(known), rate), replace=False).tolist()) if known else set()
        tokens = np.asarray(row, dtype=np.int64)
        ids.append(tokens)
        labels.append(np.where([word in drawn for word in words], tokens, IGNORED))
    return ids, labels


def _plain(rows: Examples, role: str, rng: np.random.Generator) -> Ragged:
    return rows.ids(role)


def _change(options: SimCSEOptions) -> Change | None:
    """Return what is done to a sentence's words, for the views that do it without a model."""
    if options.view == "synonym":
        return partial(synonym, thesaurus=read_thesaurus(Path(options.thesaurus or "")))
    if options.view == "delete_one_word":
        return delete_one_word
    changes: dict[str, Change] = {"crop": crop, "delete_words": delete_words}
    return partial(changes[options.view], rate=options.rate) if options.view in changes else None
