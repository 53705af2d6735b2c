"""`leaderboard convert`: a board's records into the form that it keeps today, in place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from stsbench.evaluation.records import record_text
from stsbench.evaluation.rescore import observations_of
from stsbench.files import atomic_write

from .board_form import board_forms, write_observations
from .entries import EntryRun, read_entries

BATCH = 32  # runs at a time: what the data decide of their draws is computed once for them


@dataclass
class Converted:
    """What a conversion did. size: bytes of all observations before and after; moved: by how much a score moved at most."""

    records: int = 0
    before: int = 0
    after: int = 0
    moved: float = 0.0


def convert(board: Path) -> Converted:
    """Rewrite every record of a board that is in an older form, with its observations.

    Each record is replaced whole once its new observations are there, and the old ones go last: after an interruption the
    board is as valid as before, and the same command goes on. Raises StsbenchError for damaged observations.
    """
    done = Converted(before=_size(board))
    runs = [run for entry in read_entries(board / "measured") for run in entry.runs]
    for batch in _batches([run for run in runs if any(_old(each.record.observations.file) for each in run.records)]):
        items = [(each.path, each.record, observations_of(each.path.parent, each.record))
                 for run in batch for each in run.records if _old(each.record.observations.file)]
        for made in board_forms(items):
            write_observations(made.path.parent, made)
            with atomic_write(made.path) as stream:
                stream.write(record_text(made.record))
            done.records, done.moved = done.records + 1, max(done.moved, made.moved)
    for run in runs:
        for each in run.records:  # one that was converted before an interruption, too
            (each.path.parent / "observations" / f"{each.path.stem}.npz").unlink(missing_ok=True)
    done.after = _size(board)
    return done


def _old(file: str) -> bool:
    return file.endswith(".npz")


def _batches(runs: list[EntryRun]) -> Iterator[list[EntryRun]]:
    for at in range(0, len(runs), BATCH):
        yield runs[at : at + BATCH]


def _size(board: Path) -> int:
    folders: Iterable[Path] = [board / "observations", *(board / "measured").glob("*/*/observations")]
    return sum(path.stat().st_size for folder in folders if folder.is_dir() for path in folder.iterdir())
