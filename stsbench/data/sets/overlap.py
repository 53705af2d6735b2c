"""Sentences that one set shares with others: STS-B is built from STS12-17, so its dev split is not unseen data."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stsbench.data.sets.scripts import words
from stsbench.data.sets.sets import DataSet, PairSet
from stsbench.errors import DataError
from stsbench.metrics.bootstrap import distinct

_WORDS = re.compile(r"[^\W_]+")


@dataclass(frozen=True)
class OverlapReport:
    """Counts of distinct normalised sentences of `target`, and of its pairs, a user's own that repeat counted once."""

    target: str
    others: tuple[str, ...]
    sentences: int  # distinct in target
    shared: int  # of these, also in any other set
    by_other: dict[str, int]  # of these, also in that one set
    pairs: int
    touched_pairs: int  # pairs with at least one shared sentence

    @property
    def percent(self) -> float:
        """Shared sentences in percent of the target's distinct sentences; 0.0 for a set without sentences."""
        return 100.0 * self.shared / self.sentences if self.sentences else 0.0


def normalise(text: str) -> str:
    """Lower case, letters and digits only, one space between; Moses' HTML entities (&apos;) count as punctuation.

    In any script: vowel signs and accents belong to their letters, widths do not count, and ideographs, kana and Thai, which
    have no spaces between words, get none for their punctuation.
    """
    text = html.unescape(text).lower()
    return " ".join(_WORDS.findall(text)) if text.isascii() else words(text)


def overlap(target: DataSet, others: Sequence[DataSet]) -> OverlapReport:
    """What share of `target`'s distinct sentences occurs in `others`; a sentence of punctuation only never counts.

    Raises DataError for a set that does not hold scored pairs.
    """
    mask = overlapping_pairs(target, others)
    sentences_of_target = _sentences([target])
    common_with = {other.id: sentences_of_target & _sentences([other]) for other in others}
    shared: set[str] = set().union(*common_with.values())
    return OverlapReport(
        target=target.id, others=tuple(common_with), sentences=len(sentences_of_target), shared=len(shared),
        by_other={name: len(common) for name, common in common_with.items()}, pairs=distinct(target.items),
        touched_pairs=distinct(target.items[mask]),
    )


def overlapping_pairs(target: DataSet, others: Sequence[DataSet]) -> NDArray[np.bool_]:
    """Mask (n,): true where either sentence of the pair occurs in `others`. `target.keep(~mask)` keeps the unseen pairs.

    Raises DataError for a set that does not hold scored pairs.
    """
    for item in others:
        _pairs(item)
    target, known = _pairs(target), _sentences(others)
    return np.array(
        [normalise(first) in known or normalise(second) in known
         for first, second in zip(target.first, target.second, strict=True)],
        dtype=np.bool_,
    )


def _pairs(item: DataSet) -> PairSet:
    if not isinstance(item, PairSet):
        raise DataError(f"{item.id} holds labelled texts, not scored pairs: only sets of scored pairs are compared")
    return item


def _sentences(sets: Iterable[DataSet]) -> set[str]:
    return {normalise(text) for item in sets for text in item.texts} - {""}
