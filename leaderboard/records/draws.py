"""The bootstrap draws of many records at once: counts and gold ranks are computed once for all encoders of a data set."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from stsbench.comparison.comparability import Measured
from stsbench.errors import StsbenchError
from stsbench.evaluation.measure import RESAMPLES, SEED, drawn_with


def draw_many(records: Iterable[Measured]) -> None:
    """Draw what checking and scoring these records will need, all encoders of a data set together."""
    groups: dict[tuple[str, ...], tuple[int, int, list[Measured]]] = {}
    for record in records:
        with suppress(StsbenchError):  # one is damaged: as below
            record.observed()  # here, while the records of one run file follow each other
        for resamples, seed in {(RESAMPLES, SEED), drawn_with(record.protocol)}:
            key = (record.protocol.name, repr(record.protocol.settings), record.set_id, record.digest, f"{resamples} {seed}")
            groups.setdefault(key, (resamples, seed, []))[2].append(record)
    for resamples, seed, members in groups.values():
        try:
            observed = [record.observed() for record in members]
            members[0].protocol.draw_all(observed, members[0].set_id, resamples, seed)
        except Exception:  # one of them is damaged or forged: each is drawn by itself, and the check says which it is
            continue
