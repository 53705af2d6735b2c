"""MTEB's published results beside what was measured here: the same model's scores, and how much encoders' errors
correlate."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from stsbench.leaderboard.ranks.lines import ScoreLine
from stsbench.leaderboard.ranks.significance import Placed
from stsbench.leaderboard.ranks.wording import slug

from .results import TASKS, load_published
from .standings import AsPublished, MeasuredHere, as_published

TAB = "sts-spearman-all"  # mteb computes one correlation over all pairs of a task


def published_board(root: Path, placed: Sequence[Placed]) -> AsPublished | None:
    """What lies in as_published/ of a board, with the board's own rows of MTEB's seven tasks; None without that folder."""
    published = load_published(root)
    if published is None:
        return None
    lines = {entry.id: line for entry, line, _ in placed if _is_of_mteb(line)}
    scores = {name: {task: line.cells[column].value for task, column in TASKS.items()} for name, line in lines.items()}
    here = [MeasuredHere(entry, model, scores[entry]) for entry, model in published.measured_here.items() if entry in scores]
    if len(lines) < 2:
        return as_published(published, measured_here=here)
    measured = np.array([list(row.values()) for row in scores.values()]) / 100
    draws = np.array([[line.draws[column] for column in TASKS.values()] for line in lines.values()]) / 100
    return as_published(published, measured, draws, here)


def _is_of_mteb(line: ScoreLine) -> bool:
    """Whether a line has all seven tasks, on the catalog's data by its defaults; a line of several seeds is their mean."""
    return (slug(line) == TAB and line.known and not line.sample and not line.user_set
            and all(column in line.draws for column in TASKS.values()))
