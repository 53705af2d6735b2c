"""A record in the form that a board keeps: what the data decide in one file for all encoders, the rest rounded where no
score moves."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stsbench.comparison.comparability import Measured, measured
from stsbench.evaluation.columns import digest_of, in_steps, split
from stsbench.evaluation.protocol import Observations, load_protocol
from stsbench.evaluation.records import Observed, Record, ScoreRow, SharedFile

from .draws import draw_many

MOVED = 5e-7  # at most, in the unit of a score, by rounding: half of what a record's check allows


@dataclass(frozen=True)
class BoardRecord:
    """A record as the board keeps it, with all it observed. path: of the record it was made of; kept: what stands beside it
    in its run; shared: the rest, which is a file of the board's own."""

    path: Path
    record: Record
    observations: Observations
    kept: Observations
    shared: Observations


def board_forms(items: list[tuple[Path, Record, Observations]]) -> list[BoardRecord]:
    """The records in the board's form; the draws that tell whether their scores stay are computed together."""
    rounded = [measured(path, record, _rounded(record, observations)) for path, record, observations in items]
    draw_many(rounded)
    return [_form(coarse, observations) for coarse, (_, _, observations) in zip(rounded, items, strict=True)]


def _rounded(record: Record, observations: Observations) -> Observations:
    arrays = observations.arrays
    declared = load_protocol(record.protocol.name).arrays
    coarse = {key: in_steps(array) for key, array in arrays.items()
              if declared[key].rounded and array.dtype == np.float64 and np.isfinite(array).all()}
    return Observations({**arrays, **coarse}, observations.names) if coarse else observations


def _form(coarse: Measured, observations: Observations) -> BoardRecord:
    record, stored = coarse.record, coarse.observed()
    again = coarse.protocol.score(stored, record.data.id, coarse.task)
    if not _largest_difference(again, record.scores) <= MOVED:  # NaN, too
        stored = observations
    kind = type(coarse.protocol)
    decided = [key for declared in (kind.arrays, kind.names) for key, part in declared.items() if part.shared]
    shared, kept = split(stored, decided)
    if not shared.arrays:
        shared, kept = Observations({}), stored
    observed = Observed(sha256=digest_of(kept))
    if shared.arrays:
        digest = digest_of(shared)
        name = re.sub(r"[^\w.-]+", "-", f"{record.protocol.name}.{record.data.id}.{digest[:12]}.parquet")
        observed.shared = SharedFile(file=f"../../../observations/{name}", sha256=digest)
    return BoardRecord(coarse.path, record.model_copy(update={"observations": observed}), stored, kept, shared)


def _largest_difference(again: list[ScoreRow], stored: list[ScoreRow]) -> float:
    """Infinite where the rows are others."""
    if len(again) != len(stored):
        return float("inf")
    numbers = [np.array([[row.value, row.low, row.high] for row in rows], dtype=float) for rows in (again, stored)]
    if (np.isnan(numbers[0]) != np.isnan(numbers[1])).any():
        return float("inf")
    return float(np.nanmax(np.abs(numbers[0] - numbers[1]), initial=0))
