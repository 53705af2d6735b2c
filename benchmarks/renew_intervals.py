"""Intervals of the board's records made anew from their observations, after a change of how intervals are made.

`python benchmarks/renew_intervals.py [leaderboard/measured]`, some minutes on one core. Scores and observations stay as they
are; a record whose scores are not those of its observations is refused.
"""

from __future__ import annotations

import sys
from pathlib import Path

from stsbench.evaluation.records import ScoreRow
from stsbench.evaluation.rescore import rescored
from stsbench.evaluation.run_file import RUN, load_records, read_own_observations, write_run

ROUNDING = 1e-6  # what a record may differ by from what its observations give
ROOT = Path(__file__).resolve().parents[1]


def renewed(file: Path) -> int:
    """Return how many records of a run file have other intervals than before, and write it if any has."""
    items, changed = [], 0
    for path, record in load_records(file):
        again = rescored(path, record)[1]
        scores = [row if _close(row, other) else row.model_copy(update={"low": other.low, "high": other.high})
                  for row, other in zip(record.scores, again, strict=True)]
        changed += scores != record.scores
        items.append((record.model_copy(update={"scores": scores}), read_own_observations(file, record)))
    if changed:
        write_run(file, items)
    return changed


def _close(row: ScoreRow, other: ScoreRow) -> bool:
    """Return whether two rows' intervals are the same, up to rounding."""
    ends = [(row.low, other.low), (row.high, other.high)]
    return all(one == two or (None not in (one, two) and abs(one - two) < ROUNDING) for one, two in ends)


if __name__ == "__main__":
    measured = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "leaderboard" / "measured"
    for run in sorted(measured.rglob(RUN)):
        print(f"{run}: {renewed(run)} records", flush=True)
