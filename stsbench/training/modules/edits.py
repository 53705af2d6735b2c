"""Tokens put into and taken out of token lists, and labels that say where: what a discriminator has to find."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from stsbench.data.text.augment import share_of

Rows = list[NDArray[np.int64]]
Given = Sequence[Sequence[int] | NDArray[np.integer]]


def insert_masks(
    ids: Given,
    special_ids: Iterable[int],
    mask_id: int,
    rng: np.random.Generator,
    ratio: float,
    max_length: int | None = None,
) -> tuple[Rows, Rows]:
    """Each list of token ids with mask_id put in at places drawn without replacement, and labels: 1 at these, 0 elsewhere.

    A row of n tokens that are not special gets ratio * n, rounded to the nearest whole number, halves up; so a short one
    may get none. The places are the gaps beside such a token, [CLS] and [SEP] being its neighbours, too: never before the
    first or after the last token of the row, and never two in one gap. Rows of more than max_length tokens are cut as the
    tokenizer cuts them: the last token stays where it is special. Source: Chuang et al. (2022), DiffCSE, Table 4, "insert".
    """
    rows = _Flat(ids, special_ids)
    gaps = np.zeros(len(rows.tokens), bool)  # after each token
    gaps[:-1] = rows.joined & (rows.ordinary[:-1] | rows.ordinary[1:])
    chosen = rows.drawn(gaps, np.minimum(rows.shares(ratio), rows.count(gaps)), rng)
    indices = np.flatnonzero(chosen) + 1
    lengths = rows.lengths + rows.count(chosen)
    copies = _split(np.insert(rows.tokens, indices, mask_id), lengths)
    labels = _split(np.insert(np.zeros_like(rows.tokens), indices, 1), lengths)
    if max_length is None:
        return copies, labels
    kept = [_kept(len(copy), max_length, last) for copy, last in zip(copies, rows.ends_special(), strict=True)]
    return [row[at] for row, at in zip(copies, kept, strict=True)], [row[at] for row, at in zip(labels, kept, strict=True)]


def delete_tokens(ids: Given, special_ids: Iterable[int], rng: np.random.Generator, ratio: float) -> tuple[Rows, Rows]:
    """Each list of token ids without some, and a label for each that stays: 1 where the one just before it was taken out.

    Of a row's n tokens that are not special ratio * n are drawn, rounded to the nearest whole number, halves up, but never
    all of them; special ones stay, and [SEP] is labelled like any other. Source: Chuang et al. (2022), DiffCSE, Table 4,
    "delete".
    """
    rows = _Flat(ids, special_ids)
    most = np.maximum(rows.count(rows.ordinary) - 1, 0)
    gone = rows.drawn(rows.ordinary, np.minimum(rows.shares(ratio), most), rng)
    labels = np.zeros_like(rows.tokens)
    labels[1:] = rows.joined & gone[:-1]
    lengths = rows.lengths - rows.count(gone)
    return _split(rows.tokens[~gone], lengths), _split(labels[~gone], lengths)


class _Flat:
    """Token lists end to end. ordinary: which are not special; joined: of each but the last, whether its row goes on."""

    def __init__(self, ids: Given, special_ids: Iterable[int]) -> None:
        rows = [np.asarray(row, dtype=np.int64) for row in ids]
        self.lengths = np.array([len(row) for row in rows], np.int64)
        self.tokens = np.concatenate([np.zeros(0, np.int64), *rows])
        self.row_of = np.repeat(np.arange(len(rows)), self.lengths)
        self.ordinary = ~np.isin(self.tokens, list(special_ids))
        self.joined = self.row_of[1:] == self.row_of[:-1]

    def count(self, which: NDArray[np.bool_]) -> NDArray[np.int64]:
        """How many of each row."""
        return np.bincount(self.row_of[which], minlength=len(self.lengths))

    def shares(self, ratio: float) -> NDArray[np.int64]:
        """That share of each row's ordinary tokens, as whole numbers."""
        return np.array([share_of(int(n), ratio) for n in self.count(self.ordinary)], np.int64)

    def drawn(self, candidates: NDArray[np.bool_], counts: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.bool_]:
        """So many of each row's candidates, every set of that size as likely as any other."""
        keys = np.where(candidates, rng.random(len(candidates)), np.inf)
        order = np.lexsort((keys, self.row_of))  # row by row, each row's candidates in random order, then the others
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order)) - np.searchsorted(self.row_of, self.row_of)
        return rank < counts[self.row_of]

    def ends_special(self) -> list[bool]:
        """Whether each row's last token is special."""
        ends = np.cumsum(self.lengths)
        return [bool(n) and not self.ordinary[end - 1] for n, end in zip(self.lengths, ends, strict=True)]


def _split(tokens: NDArray[np.int64], lengths: NDArray[np.int64]) -> Rows:
    return np.split(tokens, np.cumsum(lengths)[:-1]) if len(lengths) else []


def _kept(length: int, most: int, ends_special: bool) -> NDArray[np.int64]:
    """The places that stay of a row."""
    indices = np.arange(min(length, most))
    if ends_special and length > most:
        indices[-1] = length - 1
    return indices
