"""A record in the form that a board keeps: what the data decide in one file for all encoders, the rest rounded where no
score moves."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stsbench.errors import StsbenchError
from stsbench.evaluation.columns import digest_of, in_steps, packed, split
from stsbench.evaluation.comparability import Measured, measured
from stsbench.evaluation.load import load_protocol
from stsbench.evaluation.protocol import Observations
from stsbench.evaluation.records import ObservationFile, Record, ScoreRow, SharedFile
from stsbench.evaluation.rescore import observations_of
from stsbench.files import create_whole

from .draws import draw_many

MOVED = 5e-7  # at most, in the unit of a score, by rounding: half of what a record's check allows


@dataclass(frozen=True)
class BoardRecord:
    """A record as the board keeps it. files: path, below the run folder, -> content; moved: by how much a score moved."""

    path: Path  # of the record it was made of
    record: Record
    observations: Observations
    files: dict[str, bytes]
    moved: float


def board_forms(items: list[tuple[Path, Record, Observations]]) -> list[BoardRecord]:
    """The records in the board's form; the draws that tell whether their scores stay are computed together."""
    rounded = [measured(path, record, _rounded(record, observations)) for path, record, observations in items]
    draw_many(rounded)
    return [_form(each, observations) for each, (_, _, observations) in zip(rounded, items, strict=True)]


def _rounded(record: Record, observations: Observations) -> Observations:
    arrays = observations.arrays
    declared = load_protocol(record.protocol.name).arrays
    coarse = {key: in_steps(array) for key, array in arrays.items()
              if declared[key].rounded and array.dtype == np.float64 and np.isfinite(array).all()}
    return Observations({**arrays, **coarse}, observations.names) if coarse else observations


def _form(coarse: Measured, observations: Observations) -> BoardRecord:
    record, kept = coarse.record, coarse.observed()
    again = coarse.protocol.score(kept, record.data.id, coarse.task)
    moved = _largest_difference(again, record.scores)
    if not moved <= MOVED:  # NaN, too
        kept, moved = observations, 0.0
    kind = type(coarse.protocol)
    decided = [key for key, each in kind.arrays.items() if each.shared]
    decided += [key for key, each in kind.names.items() if each.shared]
    shared, mine = split(kept, decided)
    stored = ObservationFile(file=f"observations/{coarse.path.stem}.parquet", sha256=digest_of(mine))
    files = {stored.file: packed(mine)}
    if shared.arrays:
        digest = digest_of(shared)
        name = re.sub(r"[^\w.-]+", "-", f"{record.protocol.name}.{record.data.id}.{digest[:12]}.parquet")
        stored.shared = SharedFile(file=f"../../../observations/{name}", sha256=digest)
        files = {stored.shared.file: packed(shared), **files}
    return BoardRecord(coarse.path, record.model_copy(update={"observations": stored}), kept, files, moved)


def _largest_difference(again: list[ScoreRow], stored: list[ScoreRow]) -> float:
    """Infinite where the rows are others."""
    if len(again) != len(stored):
        return float("inf")
    numbers = [np.array([[row.value, row.low, row.high] for row in rows], dtype=float) for rows in (again, stored)]
    if (np.isnan(numbers[0]) != np.isnan(numbers[1])).any():
        return float("inf")
    return float(np.nanmax(np.abs(numbers[0] - numbers[1]), initial=0))


def write_observations(folder: Path, made: BoardRecord) -> None:
    """Write what the record in the run folder `folder` of a board refers to, unless it is there.

    Raises StsbenchError where another content is there under that name.
    """
    for name, content in made.files.items():
        path = folder / name
        path = path.parent.resolve() / path.name  # the shared file's folder is reached through one that may not exist yet
        create_whole(path, content)
    try:
        observations_of(folder, made.record)
    except StsbenchError as error:
        raise StsbenchError(f"{error}; records are never overwritten: remove that file if it belongs to none") from error
