"""Sentences that one set of scored pairs shares with others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stsbench.data.own.overlap import overlapping_pairs, sentences
from stsbench.data.sets.sets import DataSet
from stsbench.metrics.bootstrap import distinct


@dataclass(frozen=True)
class OverlapReport:
    """Counts of distinct normalised sentences of `target`, and of its pairs, a user's own that repeat counted once."""

    target: str
    others: tuple[str, ...]
    sentences: int  # distinct in target
    shared: int  # texts that any other set holds, too
    by_other: dict[str, int]  # texts that this one other set holds, too
    pairs: int
    touched_pairs: int  # pairs with at least one shared sentence

    @property
    def percent(self) -> float:
        """Return shared sentences in percent of the target's distinct sentences; 0.0 for a set without sentences."""
        return 100.0 * self.shared / self.sentences if self.sentences else 0.0


def overlap(target: DataSet, others: Sequence[DataSet]) -> OverlapReport:
    """Return what share of `target`'s distinct sentences occurs in `others`; a sentence of punctuation only never counts.

    Raises DataError for a set that does not hold scored pairs.
    """
    mask = overlapping_pairs(target, others)
    sentences_of_target = sentences([target])
    common_with = {other.id: sentences_of_target & sentences([other]) for other in others}
    shared: set[str] = set().union(*common_with.values())
    return OverlapReport(
        target=target.id, others=tuple(common_with), sentences=len(sentences_of_target), shared=len(shared),
        by_other={name: len(common) for name, common in common_with.items()}, pairs=distinct(target.items),
        touched_pairs=distinct(target.items[mask]),
    )
