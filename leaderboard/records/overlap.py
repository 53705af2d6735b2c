"""What the training texts of an encoder share with the sets that it was tested on, as its records say it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from stsbench.encoders.fitted import texts_not_compared, texts_shared
from stsbench.evaluation.records import Record


@dataclass(frozen=True)
class Overlap:
    """shared: training text -> "30 of 2,638 of sts13/test" for each set that it holds texts of; unknown: training text ->
    the sets that it was not compared with."""

    shared: dict[str, tuple[str, ...]]
    unknown: dict[str, tuple[str, ...]]

    def sentences(self) -> list[str]:
        """A sentence for each training text, first of what is shared."""
        return [
            *(f"trained on {text}, which holds test texts: {', '.join(sets)}, as its training recorded (near duplicates "
              "were not looked for)" for text, sets in self.shared.items()),
            *(f"trained on {text}, which was not compared with {', '.join(sets)}" for text, sets in self.unknown.items()),
        ]


def overlap_of(records: Iterable[Record]) -> Overlap:
    """Of records of one encoder, or of its seeds. Nothing of encoders whose records say nothing of their training texts."""
    shared: dict[str, dict[str, None]] = {}
    unknown: dict[str, dict[str, None]] = {}
    for record in records:
        data, stated = record.data, record.provenance.get("training_overlap", ())
        sample = data.text_version == "sample"
        for one in texts_shared(stated, data.id, sample):
            set_name = data.shown if data.id == one.test else one.test
            shared.setdefault(one.training, {})[f"{one.exact + one.normalised:,} of {one.texts:,} of {set_name}"] = None
        for text in texts_not_compared(stated, data.id, sample):
            unknown.setdefault(text, {})[data.shown] = None
    return Overlap({text: tuple(sets) for text, sets in shared.items()},
                   {text: tuple(sets) for text, sets in unknown.items()})
