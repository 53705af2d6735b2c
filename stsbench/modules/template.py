"""A template in tokens: what stands before and after a sentence's own, and where its mask is found, by place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stsbench.encoders.template import parse_template
from stsbench.errors import EncoderError


class TokenTemplate:
    """A template around sentences that are tokenised by themselves (Jiang et al. 2022, PromptBERT, section 3).

    before, after: token ids with the special token at either end: the part before the sentence without blanks at its end,
    and the part behind it with the blanks at its start (RoBERTa's tokens hold the blank before them). One token of the two
    is the mask. A sentence may hold mask tokens of its own: the template's is never searched for, but counted to.
    """

    def __init__(self, tokenizer: Any, template: str, name: str) -> None:
        """template: with {} or [X] and [MASK] or {mask}; name: what errors begin with, e.g. "options.template".

        EncoderError, one line: a template without one sentence and one mask, a tokenizer without a mask token, one that
        does not put one special token at either end of a text, one that loses the template's mask.
        """
        self.name, self.template, self.tokenizer = name, template, tokenizer
        filled = parse_template(template, tokenizer.mask_token, True, option=f"{name}:")
        if len(self._encode([""])[0]) != 2:
            raise EncoderError(
                f"{name}: the tokenizer does not put one special token at either end of a text, as a template needs"
            )
        self.before = self._encode([filled.before.rstrip()])[0][:-1]
        self.after = self._encode([filled.after])[0][1:]
        self.mask_last = filled.mask_last
        self.mask_id = int(tokenizer.mask_token_id)
        if [*self.before, *self.after].count(self.mask_id) != 1 or self._side().count(self.mask_id) != 1:
            raise EncoderError(f"{name}: the tokenizer does not keep {tokenizer.mask_token} whole in {template!r}")
        self._lead = filled.before[len(filled.before.rstrip()):]

    @property
    def length(self) -> int:
        """Tokens of the template alone, special ones included."""
        return len(self.before) + len(self.after)

    @property
    def word_ids(self) -> list[int]:
        """The template's tokens in order, without special tokens and mask."""
        return [token for token in [*self.before[1:], *self.after[:-1]] if token != self.mask_id]

    def wrap(self, rows: Sequence[Sequence[int] | NDArray[Any]]) -> list[NDArray[np.int64]]:
        """Texts inside the template. rows: [text] -> its token ids with a special token at either end, which are dropped."""
        parts = (np.asarray(row, dtype=np.int64)[1:-1] for row in rows)
        return [np.concatenate([self.before, part, self.after]).astype(np.int64) for part in parts]

    def pieces(self, texts: Sequence[str], limit: int | None = None) -> list[list[int]]:
        """[text] -> its tokens as they are inside the template, after the blanks that stand there before the sentence,
        `limit` of them at most, between two special tokens.

        Where the template touches the sentence without a blank, tokens that a tokenizer joins across that seam (byte-level
        BPE: `"` and `.`) come apart.
        """
        rows = self._encode([self._lead + text for text in texts])
        return [[row[0], *row[1:-1][:limit], row[-1]] for row in rows]

    def alone(self, texts: Sequence[str]) -> list[list[int]]:
        """[text] -> its tokens as they are without a template, between two special tokens."""
        return self._encode(texts)

    def counts(self, mask: Tensor) -> Tensor:
        """(n,) tokens of the sentence alone. mask: (n, L), 1 on real tokens, of texts inside the template."""
        return mask.sum(1) - self.length

    def place(self, length: int) -> int:
        """Where the template's own mask token stands in a text of `length` tokens inside the template."""
        if self.mask_last:
            return length - len(self.after) + self.after.index(self.mask_id)
        return self.before.index(self.mask_id)

    def places(self, mask: Tensor) -> Tensor:
        """(n,) where the template's own mask token stands in texts inside the template. mask: (n, L), padded right."""
        lengths = mask.sum(1)
        return lengths + self.place(0) if self.mask_last else torch.full_like(lengths, self.place(0))

    def words(self, mask: Tensor) -> Tensor:
        """int64 (n, L): at the template's tokens their number in `word_ids`, elsewhere -1. mask: (n, L), padded right."""
        before, after = self.numbers()
        found = torch.full(mask.shape, -1, dtype=torch.long, device=mask.device)
        found[:, : len(before)] = torch.as_tensor(before, device=mask.device)
        starts = mask.sum(1).long() - len(after)
        places = starts.unsqueeze(1) + torch.arange(len(after), device=mask.device)
        return found.scatter(1, places, torch.as_tensor(after, device=mask.device).expand(len(mask), -1))

    def numbers(self) -> tuple[list[int], list[int]]:
        """For each token of `before` and of `after` its number in `word_ids`, -1 for special tokens and the mask."""
        tokens = [*self.before, *self.after]
        special = {0, len(tokens) - 1}
        number, found = 0, []
        for place, token in enumerate(tokens):
            word = place not in special and token != self.mask_id
            found.append(number if word else -1)
            number += word
        return found[: len(self.before)], found[len(self.before):]

    def _side(self) -> list[int]:
        return self.after if self.mask_last else self.before

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        if not texts:
            return []
        rows = self.tokenizer(list(texts), truncation=False, padding=False, verbose=False)["input_ids"]
        return [list(row) for row in rows]
