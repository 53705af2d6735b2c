"""The rules by name, and the sentences that they make of others."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from . import changing, keeping

Edit = Callable[[str, np.random.Generator], str | None]
RuleName = Literal[
    "typo", "case", "punctuation", "number-word", "contraction",
    "negation", "entity", "name", "number", "word-order", "quantifier", "time", "antonym",
]


@dataclass(frozen=True)
class Rule:
    """An edit and whether it keeps the meaning."""

    name: RuleName
    keeps: bool
    edit: Edit


_KEEPING: dict[RuleName, Edit] = {
    "typo": keeping.typo, "case": keeping.case, "punctuation": keeping.punctuation, "number-word": keeping.number_word,
    "contraction": keeping.contraction,
}
_CHANGING: dict[RuleName, Edit] = {
    "negation": changing.negation, "entity": changing.entity, "name": changing.name, "number": changing.number,
    "word-order": changing.word_order, "quantifier": changing.quantifier, "time": changing.time, "antonym": changing.antonym,
}
RULES: dict[str, Rule] = {name: Rule(name, name in _KEEPING, edit) for name, edit in (_KEEPING | _CHANGING).items()}


def edited(text: str, rule: str, seed: int) -> str | None:
    """The text after a rule of `RULES`; None where the rule does not apply to it.

    The draw hangs on the seed, the rule and the text alone: a text becomes the same one wherever it stands.

    >>> edited("A big dog sleeps.", "antonym", 0), edited("Rain.", "antonym", 0)
    ('A small dog sleeps.', None)
    """
    digest = hashlib.blake2b(f"{rule}\0{text}".encode(), digest_size=16).digest()
    return RULES[rule].edit(text, np.random.default_rng([seed, *digest]))


@lru_cache(maxsize=8)  # a protocol asks for the texts to encode, and again when it observes their vectors
def edits_of(texts: tuple[str, ...], rule: str, seed: int, share: float) -> tuple[str | None, ...]:
    """Each text after a rule, None for those that it does not apply to, and for all but `share` of the others.

    The share, at least one text, is drawn by the seed.

    >>> edits_of(("A big dog.", "Rain.", "A big cat."), "antonym", 0, 1.0)
    ('A small dog.', None, 'A small cat.')
    """
    edits = [edited(text, rule, seed) for text in texts]
    applies = [i for i, new in enumerate(edits) if new is not None]
    kept = set(_drawn(applies, rule, seed, share))
    return tuple(new if i in kept else None for i, new in enumerate(edits))


def _drawn(positions: Sequence[int], rule: str, seed: int, share: float) -> Sequence[int]:
    if share == 1 or not positions:
        return positions
    order = np.random.default_rng([seed, *b"share", *rule.encode()]).permutation(len(positions))
    return [positions[i] for i in order[: max(1, round(share * len(positions)))].tolist()]
