"""Templates around a sentence: `{}` or `[X]` stands for the sentence, `[MASK]` or `{mask}` for the mask token.

Template holds a template as text, TokenTemplate as tokens. Tokeniser returns the token ids of texts inside a Template, cut
only at the encoder's limit; template_positions returns the position ids of a template without a sentence.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stsbench.encoders.prompt.tokenizer import known_text, panics_are_errors
from stsbench.errors import EncoderError

Positions = Literal["matched", "empty"]
WordPlaces = Literal["own", "rightmost"]
Start = Literal["own", "zero"]
FullStop = bool | Literal["punctuation32", "prompteol"]
_SENTENCE = ("{}", "[X]")
_MASK = ("[MASK]", "{mask}")


@dataclass(frozen=True)
class Template:
    """The text before and after the sentence, with the model's own mask token filled in."""

    before: str = ""
    after: str = ""
    mask_last: bool = True  # the template's mask stands behind the sentence, so it is the last one of the text

    def fill(self, text: str) -> str:
        """Return the text that is tokenised."""
        return self.before + text + self.after


def parse_template(
    template: str | None, mask_token: str | None, needs_mask: bool, text_prompt: str = "", option: str = "--template"
) -> Template:
    """Return `template` parsed. text_prompt: a stored prompt, directly before the sentence; option: its name in errors.

    EncoderError: no or several places for the sentence or the mask, a mask for a tokenizer that has none, or no mask
    where the pooler needs one.
    """
    if template is None:
        if needs_mask:
            raise EncoderError("--pooler mask needs --template, e.g. 'This sentence : \"{}\" means [MASK] .'")
        return Template(before=text_prompt)
    matches = [(template.find(mark), mark) for mark in _SENTENCE if mark in template]
    if len(matches) != 1 or template.count(matches[0][1]) != 1:
        raise EncoderError(f"{option} {template!r} must hold {{}} or [X] for the sentence exactly once")
    at, mark = matches[0]
    before, after = template[:at], template[at + len(mark):]
    masks = [sum(side.count(mask) for mask in _MASK) for side in (before, after)]
    if needs_mask and sum(masks) != 1:
        raise EncoderError(f"{option} {template!r} must hold [MASK] or {{mask}} exactly once for --pooler mask")
    if sum(masks):
        if not mask_token:
            raise EncoderError(f"{option} {template!r}: this model's tokenizer has no mask token")
        for mask in _MASK:
            before, after = before.replace(mask, mask_token), after.replace(mask, mask_token)
    return Template(before + text_prompt, after, mask_last=masks[1] > 0)


def with_full_stop(text: str, rule: FullStop = True) -> str:
    """Return `text` with a full stop at its end, by a rule.

    True: unless it is empty or ends in . ? " or ' (PromptBERT's evaluation.py). "punctuation32": a blank and a full stop,
    unless it is blank or its last character but blanks is one of string.punctuation (SNCSE's code). "prompteol": as True,
    then every " becomes ', and a final ? a full stop (evaluation.py of kongds/scaling_sentemb). False: as it is.
    """
    if rule == "prompteol":
        text = with_full_stop(text).replace('"', "'")
        return f"{text[:-1]}." if text.endswith("?") else text
    if rule == "punctuation32":
        return text if text.rstrip()[-1:] in ("", *string.punctuation) else f"{text} ."
    return text if not rule or not text or text[-1] in ".?\"'" else text + "."


class TokenTemplate:
    """A template around sentences that are tokenised by themselves (Jiang et al. 2022, PromptBERT, section 3).

    before, after: token ids with the special token at either end: the part before the sentence without blanks at its end,
    and the part behind it with the blanks at its start (RoBERTa's tokens hold the blank before them). One token of the two
    is the mask. A sentence may hold mask tokens of its own: the template's is found by its distance from an end.
    """

    def __init__(
        self, tokenizer: Any, template: str, name: str, word_places: WordPlaces = "own",
        blanks: Literal["sentence", "template"] = "sentence",
    ) -> None:
        """template: with {} or [X] and [MASK] or {mask}; name: what errors begin with, e.g. "options.template";
        word_places: which tokens learned words stand for, the template's own, or each one's rightmost match in the text, in
        the sentence or not, where a later word overrides an earlier one (PromptBERT's released code). blanks: whose tokens
        hold the blanks before the sentence; "template": as tokens of their own, if the tokenizer has such (SNCSE's code).

        EncoderError, one line: a template without one sentence and one mask, a tokenizer without a mask token, one that
        does not put one special token at either end of a text, one that loses the template's mask.
        """
        self.name, self.template, self.tokenizer, self.word_places = name, template, tokenizer, word_places
        filled = parse_template(template, tokenizer.mask_token, True, option=f"{name}:")
        if len(self.alone([""])[0]) != 2:
            raise EncoderError(
                f"{name}: the tokenizer does not put one special token at either end of a text, as a template needs"
            )
        start = filled.before if blanks == "template" else filled.before.rstrip()
        self.before = self.alone([start])[0][:-1]
        self.after = self.alone([filled.after])[0][1:]
        self.mask_last = filled.mask_last
        self.mask_id = int(tokenizer.mask_token_id)
        side = self.after if self.mask_last else self.before
        if [*self.before, *self.after].count(self.mask_id) != 1 or side.count(self.mask_id) != 1:
            raise EncoderError(f"{name}: the tokenizer does not keep {tokenizer.mask_token} whole in {template!r}")
        self._lead = filled.before[len(start):]

    @property
    def length(self) -> int:
        """Return the number of tokens of the template alone, special ones included."""
        return len(self.before) + len(self.after)

    @property
    def word_ids(self) -> list[int]:
        """Return the template's tokens in order, without special tokens and mask."""
        return [token for token in [*self.before[1:], *self.after[:-1]] if token != self.mask_id]

    def wrap(self, rows: Sequence[Sequence[int] | NDArray[Any]]) -> list[NDArray[np.int64]]:
        """Return token ids of texts inside the template. rows: the ids of each text with a special token at either end,
        which are dropped."""
        parts = (np.asarray(row, dtype=np.int64)[1:-1] for row in rows)
        return [np.concatenate([self.before, part, self.after]).astype(np.int64) for part in parts]

    def pieces(self, texts: Sequence[str], limit: int | None = None) -> list[list[int]]:
        """Return each text's tokens as they are inside the template, after the template's blanks before the sentence: at
        most `limit`, between two special tokens.

        Where the template touches the sentence without a blank, tokens that a tokenizer joins across that seam (byte-level
        BPE: `"` and `.`) come apart.
        """
        rows = self.alone([self._lead + text for text in texts])
        return [[row[0], *row[1:-1][:limit], row[-1]] for row in rows]

    def alone(self, texts: Sequence[str]) -> list[list[int]]:
        """Return each text's tokens as they are without a template, between two special tokens."""
        if not texts:
            return []
        rows = self.tokenizer(list(texts), truncation=False, padding=False, verbose=False)["input_ids"]
        return [list(row) for row in rows]

    def counts(self, mask: Tensor) -> Tensor:
        """Return (n,) the sentences' numbers of tokens. mask: (n, L), 1 on real tokens, of texts inside the template."""
        return mask.sum(1) - self.length

    def mask_index(self, length: int) -> int:
        """Return the index of the template's own mask token in a text of `length` tokens inside the template."""
        if self.mask_last:
            return length - len(self.after) + self.after.index(self.mask_id)
        return self.before.index(self.mask_id)

    def mask_indices(self, mask: Tensor) -> Tensor:
        """Return (n,) indices of the template's own mask token in texts inside the template. mask: (n, L), padded
        right."""
        lengths = mask.sum(1)
        return lengths + self.mask_index(0) if self.mask_last else torch.full_like(lengths, self.mask_index(0))

    def words(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Return int64 (n, L): the number in `word_ids` of the learned word that stands for a token, -1 for none.

        ids, mask: (n, L) texts inside the template, padded right.
        """
        if self.word_places == "rightmost":
            return self._rightmost(ids, mask)
        before, after = self._numbers()
        rows = torch.full(mask.shape, -1, dtype=torch.long, device=mask.device)
        rows[:, : len(before)] = torch.as_tensor(before, device=mask.device)
        starts = mask.sum(1).long() - len(after)
        positions = starts.unsqueeze(1) + torch.arange(len(after), device=mask.device)
        return rows.scatter(1, positions, torch.as_tensor(after, device=mask.device).expand(len(mask), -1))

    def _rightmost(self, ids: Tensor, mask: Tensor) -> Tensor:
        rows = torch.full_like(ids, -1)
        positions = torch.arange(ids.shape[1], device=ids.device) * mask.long()
        for number, token in enumerate(self.word_ids):
            last = (positions * (ids == token)).amax(1, keepdim=True)
            rows.scatter_(1, last, number)
        return rows

    def _numbers(self) -> tuple[list[int], list[int]]:
        """Return the index in `word_ids` of each token of `before` and `after`, -1 for special tokens and the mask."""
        tokens = [*self.before, *self.after]
        special = {0, len(tokens) - 1}
        number, numbers = 0, []
        for index, token in enumerate(tokens):
            word = index not in special and token != self.mask_id
            numbers.append(number if word else -1)
            number += word
        return numbers[: len(self.before)], numbers[len(self.before):]


def first_position(model: Any) -> int:
    """Return the position id of a text's first token: 0, for RoBERTa's kin the padding index + 1."""
    table = getattr(getattr(model, "embeddings", None), "position_embeddings", None)
    padding = getattr(table, "padding_idx", None)
    return 0 if padding is None else int(padding) + 1


def template_positions(counts: Any, split: int, length: int, base: int, positions: Positions) -> Any:
    """Return int64 (m, length) position ids of a template alone (Jiang et al. 2022, PromptBERT, section 3.3).

    counts: (m,) int64 tensor, the tokens of a sentence before token `split`; positions: "matched": what follows is placed
    as after so many tokens, "empty": as after none. base: the first token's position.
    """
    offsets = torch.arange(length, device=counts.device)
    plain = (offsets + base).expand(len(counts), -1)
    if positions == "empty":
        return plain.contiguous()
    return plain + (offsets >= split) * counts.unsqueeze(1)


class Tokeniser:
    """Tokenises texts inside a template with a transformers tokenizer, up to the encoder's limit.

    A tokenizer.json may set truncation (128 in all-MiniLM-L6-v2's) and fixed padding: both are switched off, as they would
    change the tokens silently. full_stop: the rule by which a full stop is added to texts (with_full_stop).
    """

    def __init__(
        self, tokenizer: Any, limit: int | None, template: Template, full_stop: FullStop = False,
        limit_name: str = "--max-length",
    ) -> None:
        self.tokenizer = tokenizer
        self.limit, self.limit_name = limit, limit_name
        self.template = template
        self.full_stop = full_stop
        self.drops_first = getattr(tokenizer, "truncation_side", "right") == "left"
        # None for a slow tokenizer, and for a class that is not transformers' own, which may change texts or ids itself.
        fast = getattr(tokenizer, "is_fast", False) and type(tokenizer).__module__.partition(".")[0] == "transformers"
        self.backend: Any = getattr(tokenizer, "backend_tokenizer", None) if fast else None
        if self.backend is not None:
            self.backend.no_truncation()
            self.backend.no_padding()
        self.head, self.tail = self._ends()
        least = len(self._tokenize(template.fill("")))
        if limit is not None and limit <= least:
            raise EncoderError(f"{limit_name} {limit} leaves no token for the sentence: the {least} around it fill it")

    def __call__(self, texts: Sequence[str]) -> tuple[list[list[int]], NDArray[np.bool_]]:
        """Return token ids of n texts, and which of them were cut: bool (n,)."""
        filled = [self.template.fill(with_full_stop(text, self.full_stop)) for text in texts]
        if self.backend is not None:
            fast = getattr(self.backend, "encode_batch_fast", self.backend.encode_batch)  # fast: without offsets
            with panics_are_errors(str(getattr(self.tokenizer, "name_or_path", "") or "this model")):
                ids = [encoding.ids for encoding in fast(filled)]
        else:
            ids = [list(row) for row in self.tokenizer(filled)["input_ids"]] if filled else []
        cut = np.array([self.limit is not None and len(row) > self.limit for row in ids], dtype=np.bool_)
        for i in np.flatnonzero(cut).tolist():
            ids[i] = self._shorten(filled[i], ids[i])
        return ids, cut

    def mark(self, ids: Sequence[int], text: str) -> int:
        """Return the index of the template's mask token in `ids`. EncoderError: the text has lost it.

        A text may hold mask tokens of its own, so the template's is counted from the end where it follows the sentence, else
        from the start. A tokenizer splits texts at mask tokens first, so the tokens beyond it are the same for every text.
        """
        mask, last = self.tokenizer.mask_token_id, self.template.mask_last
        side = self.tail if last else self.head
        if mask in side:
            position = len(ids) - len(side) + side.index(mask) if last else side.index(mask)
            if 0 <= position < len(ids) and ids[position] == mask:
                return position
        raise EncoderError(f"the tokenizer lost the template's mask token in {text[:60]!r}")

    def _tokenize(self, filled: str) -> list[int]:
        if self.backend is not None:
            return list(self.backend.encode(filled).ids)
        return list(self.tokenizer(filled)["input_ids"])

    def _ends(self) -> tuple[list[int], list[int]]:
        """Return the tokens before and behind every sentence, special ones included, each part of the template by itself."""
        special, probe = self._tokenize(""), self._tokenize(known_text(self.tokenizer))
        first = next((i for i, pair in enumerate(zip(special, probe, strict=False)) if pair[0] != pair[1]), len(special))
        before, after = self._tokenize(self.template.before.rstrip()), self._tokenize(self.template.after)
        return before[: len(before) - (len(special) - first)], after[first:]

    def _shorten(self, filled: str, ids: list[int]) -> list[int]:
        """Return `ids` without the sentence's last tokens (its first ones where the tokenizer's truncation_side is left),
        so that special tokens and template stay whole."""
        excess = len(ids) - (self.limit or 0)
        start, stop = len(self.head), len(ids) - len(self.tail)
        if start <= stop and ids[:start] == self.head and ids[stop:] == self.tail:
            sentence = list(range(start, stop))
        else:  # template and sentence share a token; a slow tokenizer knows no offsets
            sentence = [] if self.backend is None else self._inside(filled)
        if excess >= len(sentence):
            raise EncoderError(f"{self.limit_name} {self.limit} cannot hold the template around {filled[:60]!r}")
        dropped = set(sentence[:excess] if self.drops_first else sentence[-excess:])
        return [token for i, token in enumerate(ids) if i not in dropped]

    def _inside(self, filled: str) -> list[int]:
        """Return the indices of tokens that are only the sentence's, by the characters that they cover."""
        assert self.backend is not None
        encoding, before = self.backend.encode(filled), self.template.before
        start, stop = len(before.rstrip()), len(filled) - len(self.template.after)
        return [
            i for i, (left, right) in enumerate(encoding.offsets)
            if not encoding.special_tokens_mask[i] and start <= left < right <= stop
        ]
