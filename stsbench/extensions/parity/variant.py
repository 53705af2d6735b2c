"""Variants of an encoder with some of its parts changed, and their vectors; hidden states are computed once for all."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse import issparse

from stsbench.encoders.base import Encoder
from stsbench.encoders.forward.batching import Groups
from stsbench.encoders.forward.pooling import pool
from stsbench.encoders.prompt.template import Template, Tokeniser
from stsbench.encoders.prompt.tokenizer import table_size
from stsbench.errors import EncoderError
from stsbench.extensions.parity.measures import Floats
from stsbench.extensions.parity.parts import Parts, changed, pooled_states
from stsbench.torch_state import fresh_torch

INSIDE = "mean of the tokens that are not special"  # a pooler of other programs
OTHER = "the other side's"  # weights or tokenizer of B, where its parts are known
_BUDGET = 4096  # tokens per batch
_KEPT = 100_000_000  # numbers in the cache of hidden states, beyond which it is emptied
_STATES = (0, 1, -2, -1)


@dataclass(frozen=True)
class Variant:
    """The changes of an encoder; the default is the encoder as it is."""

    lower: bool = False
    prompt: str | None = None  # None: its own
    tokens: str = ""  # key of TOKENIZERS, or OTHER; "": its own tokenizer
    first: int = 0  # special tokens before a text: 1 one more, -1 one fewer
    last: int = 0  # special tokens after a text: 1 one more, -1 one fewer
    limit: int | None = None  # tokens; None: its own
    keeps_end: bool = True  # False: a text that is cut loses its last special token
    weights: str = ""
    poolers: tuple[str, ...] = ()  # (): its own
    layer: int | None = None
    without: frozenset[int] = frozenset()  # indices of left-out steps
    post: bool = True
    width: int | None = None  # dimensions that are kept
    stored: str = ""  # the type that the finished numbers were rounded to

    def cut_limit(self, parts: Parts) -> int | None:
        """Return the limit of tokens that applies: the variant's, or else the encoder's."""
        return parts.limit if self.limit is None else self.limit


class Workshop:
    """Computes vectors of an encoder's variants. partner: the parts of B, where they are known, for variants with OTHER."""

    def __init__(self, parts: Parts, partner: Parts | None = None) -> None:
        self.parts, self.other = parts, partner
        self._states: dict[tuple[str, tuple[int, ...]], dict[int, Any]] = {}
        self._kept = 0
        self._model: tuple[str, Any] = ("", parts.model)
        self._tokenizers: dict[str, Any] = {"": copy.deepcopy(parts.tokenizer)}
        if partner is not None:
            self._tokenizers[OTHER] = copy.deepcopy(partner.tokenizer)

    def vectors(self, texts: Sequence[str], variant: Variant) -> Floats | None:
        """Return float64 (n, d) vectors of n texts; None where the variant cannot be computed: the model lacks a token id, a
        layer or positions, or no token is left."""
        import torch

        try:
            with fresh_torch(), torch.inference_mode():
                rows = self.rows(texts, variant)
                states = self._all_states(rows, variant.weights)
                pooled = torch.stack([self._pooled(row, states[tuple(row)], variant) for row in rows])
                return self._finished(pooled, variant)
        except (EncoderError, IndexError, RuntimeError, ValueError):
            return None

    def rows(self, texts: Sequence[str], variant: Variant) -> list[list[int]]:
        """Return the token ids of each text, special tokens included."""
        limit, tokenizer = variant.cut_limit(self.parts), self._tokenizer(variant.tokens)
        around = self.parts.template
        prompt = self.parts.prompt if variant.prompt is None else variant.prompt
        inner = None if limit is None or not variant.keeps_end else limit - variant.first - variant.last
        tokeniser = Tokeniser(tokenizer, inner, Template(around.before + prompt, around.after), self.parts.full_stop)
        listed = [text.lower() for text in texts] if variant.lower else list(texts)
        rows = [self._ended(row, tokenizer, variant) for row in tokeniser(listed)[0]]
        return rows if variant.keeps_end else [row[:limit] for row in rows]

    def special(self, which: str = "") -> tuple[int, int]:
        """Return how many special tokens the tokenizer puts before and after a text."""
        tokeniser = Tokeniser(self._tokenizer(which), None, Template())
        return len(tokeniser.head), len(tokeniser.tail)

    def lengths(self, texts: Sequence[str], variant: Variant) -> list[int]:
        """Return the number of tokens of each text without truncation."""
        return [len(row) for row in self.rows(texts, replace(variant, limit=1 << 30, keeps_end=True))]

    def _ended(self, row: list[int], tokenizer: Any, variant: Variant) -> list[int]:
        if variant.first < 0:
            row = row[1:]
        if variant.last < 0:
            row = row[:-1]
        return [*_ids(tokenizer, ("bos_token_id", "cls_token_id"), variant.first), *row,
                *_ids(tokenizer, ("eos_token_id", "sep_token_id"), variant.last)]

    def _tokenizer(self, which: str) -> Any:
        if which not in self._tokenizers:
            self._tokenizers[which] = TOKENIZERS[which](copy.deepcopy(self.parts.tokenizer))
        return self._tokenizers[which]

    def has_tokenizer(self, which: str) -> bool:
        """Return whether this change of TOKENIZERS applies to the tokenizer."""
        try:
            return self._tokenizer(which) is not None
        except Exception:  # tokenizers raises a plain Exception for settings that it refuses
            return False

    def model(self, which: str) -> Any:
        """Return the model with changed weights; the last one is cached."""
        if which == "":
            return self.parts.model
        if which == OTHER:
            return self.other.model if self.other is not None else None
        if self._model[0] != which:
            self._model = (which, changed(self.parts.model, which))
        return self._model[1]

    def _all_states(self, rows: list[list[int]], weights: str) -> dict[tuple[int, ...], dict[int, Any]]:
        """Return row -> number of the layer -> hidden states (L, d), for every distinct row of token ids."""
        if self._kept > _KEPT:
            self._states, self._kept = {}, 0
        distinct = {tuple(row) for row in rows if row}
        missing = sorted((row for row in distinct if (weights, row) not in self._states), key=len)
        while missing:
            length = len(missing[0])
            batch = [row for row in missing[: max(1, _BUDGET // length)] if len(row) == length]
            del missing[: len(batch)]
            for row, states in zip(batch, self._forward(batch, weights), strict=True):
                self._states[weights, row] = states
                self._kept += sum(state.numel() for state in states.values())
        return {row: self._states[weights, row] for row in distinct} | {(): {}}

    def _forward(self, batch: list[tuple[int, ...]], weights: str) -> list[dict[int, Any]]:
        """Return number of the layer -> hidden states (L, d) for each row; rows of one length, so that nothing is padded."""
        import torch

        from stsbench.encoders.forward.passes import PaddedForward

        model, pad = self.model(weights), self.parts.tokenizer.pad_token_id or 0
        wanted = tuple(dict.fromkeys([*_STATES, *([self.parts.layer] if self.parts.layer is not None else [])]))
        ids = torch.tensor(batch, device=next(model.parameters()).device).flatten()
        table = table_size(model)
        if table is not None and int(ids.max()) >= table:
            raise EncoderError("the model has no embedding of a token id")
        groups: Groups = [(len(batch), len(batch[0]))]
        states = [state.unflatten(0, groups[0]) for state in PaddedForward(model, pad)(ids, groups, wanted)]
        return [{number: state[i] for number, state in zip(wanted, states, strict=True)} for i in range(len(batch))]

    def _pooled(self, row: list[int], states: dict[int, Any], variant: Variant) -> Any:
        """Return the (d,) float32 vector of one text; zeros for a text without tokens."""
        import torch

        poolers = variant.poolers or self.parts.poolers
        layer = self.parts.layer if variant.layer is None else variant.layer
        if not row:
            return torch.zeros(len(poolers) * int(self.parts.model.config.hidden_size))
        parts = []
        for name, numbers in zip(poolers, pooled_states(poolers, layer), strict=True):
            if name == INSIDE:
                head, tail = self.special(variant.tokens)
                inner = states[-1][head: len(row) - tail]
                parts.append((inner if len(inner) else states[-1]).float().mean(0))
                continue
            groups: Groups = [(1, len(row))]
            dense = self.parts.dense or _pooler_output(self.model(variant.weights))
            parts.append(pool(name, [states[n] for n in numbers], groups, None, dense, self.parts.token_pooler)[0])
        return torch.cat(parts).float().cpu()

    def _finished(self, vectors: Any, variant: Variant) -> Floats:
        for number, (_, step) in enumerate(self.parts.steps):
            if number not in variant.without:
                vectors = step(vectors)
        made = vectors.float().cpu().numpy()
        if self.parts.post is not None and variant.post:
            made = self.parts.post.transform(made).astype(np.float32)
        return _stored(made.astype(np.float64)[:, : variant.width], variant.stored)


class Sealed:
    """Computes variants of an encoder whose parts are not known: only its texts and its vectors can be changed."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder

    def vectors(self, texts: Sequence[str], variant: Variant) -> Floats | None:
        """Return the same as `Workshop.vectors`, for changes of case, prompt, width and rounding alone."""
        reader = self.encoder if variant.prompt is None else self.encoder.with_prompt(variant.prompt)
        listed = list(dict.fromkeys(text.lower() for text in texts)) if variant.lower else list(texts)
        try:
            made = dense(reader.run(listed).vectors)[:, : variant.width]
        except EncoderError:
            return None
        if variant.lower:
            made = made[[listed.index(text.lower()) for text in texts]]
        return _stored(made, variant.stored)


def dense(vectors: Any) -> Floats:
    """Return float64 (n, d) of an encoder's vectors, dense or sparse."""
    return np.asarray(vectors.toarray() if issparse(vectors) else vectors, dtype=np.float64)


def _stored(vectors: Floats, kind: str) -> Floats:
    import torch

    rounded = torch.from_numpy(vectors.astype(np.float32)).to(getattr(torch, kind)) if kind else None
    return vectors if rounded is None else rounded.float().numpy().astype(np.float64)


def _ids(tokenizer: Any, names: tuple[str, ...], count: int) -> list[int]:
    number = next((value for name in names if (value := getattr(tokenizer, name, None)) is not None), None)
    if count > 0 and number is None:
        raise EncoderError("the tokenizer has no such special token")
    return [int(number)] * count if number is not None else []


def _pooler_output(model: Any) -> Callable[[Any], Any] | None:
    """Return BERT's dense layer over the first token, where the model has one."""
    if not hasattr(getattr(model, "pooler", None), "dense"):
        return None
    return lambda first: model.pooler(first.unsqueeze(1))


def _edited(tokenizer: Any, edit: Callable[[dict[str, Any]], bool]) -> Any:
    """Return the tokenizer after `edit` has changed its tokenizer.json in place; None where that found nothing to change."""
    from tokenizers import Tokenizer

    stored = json.loads(tokenizer.backend_tokenizer.to_str())
    if not edit(stored):
        return None
    tokenizer._tokenizer = Tokenizer.from_str(json.dumps(stored))
    return tokenizer


def _settings(stored: Any, key: str) -> list[dict[str, Any]]:
    """Return every JSON object at any depth that has this key."""
    nested = list(stored.values()) if isinstance(stored, dict) else stored if isinstance(stored, list) else []
    deeper = [one for value in nested for one in _settings(value, key)]
    return [stored, *deeper] if isinstance(stored, dict) and key in stored else deeper


def _set(part: str, key: str, old: tuple[Any, ...], new: Any) -> Callable[[dict[str, Any]], bool]:
    """Return an edit that sets `key` to `new` wherever its value is in `old`, within one part of tokenizer.json."""

    def edit(stored: dict[str, Any]) -> bool:
        settings = [one for one in _settings(stored.get(part), key) if one[key] in old]
        for one in settings:
            one[key] = new
        return bool(settings)

    return edit


def _keep_case(stored: dict[str, Any]) -> bool:
    """Remove lower-casing; return whether there was any. BERT's normalizer then strips no accents by default, either."""
    bert = _set("normalizer", "lowercase", (True,), False)(stored)
    steps = (stored.get("normalizer") or {}).get("normalizers") or []
    kept = [step for step in steps if step.get("type") != "Lowercase"]
    if len(kept) < len(steps):
        stored["normalizer"]["normalizers"] = kept
    elif (stored.get("normalizer") or {}).get("type") == "Lowercase":
        stored["normalizer"] = None
        return True
    return bert or len(kept) < len(steps)


def _as_text(tokenizer: Any) -> Any:
    tokenizer.split_special_tokens = True  # each call of the tokenizer resets the backend's by this
    tokenizer.backend_tokenizer.encode_special_tokens = True
    return tokenizer


TOKENIZERS: dict[str, Callable[[Any], Any]] = {
    "does not lower-case": lambda tokenizer: _edited(tokenizer, _keep_case),
    "keeps accents": lambda tokenizer: _edited(tokenizer, _set("normalizer", "strip_accents", (None, True), False)),
    "strips accents": lambda tokenizer: _edited(tokenizer, _set("normalizer", "strip_accents", (None, False), True)),
    "reads special tokens in a text as words": _as_text,
    "puts a blank before a text": lambda tokenizer: _edited(
        tokenizer, _set("pre_tokenizer", "add_prefix_space", (False,), True)
    ),
    "puts no blank before a text": lambda tokenizer: _edited(
        tokenizer, _set("pre_tokenizer", "add_prefix_space", (True,), False)
    ),
}
