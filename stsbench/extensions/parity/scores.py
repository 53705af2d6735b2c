"""What the difference of two encoders costs in points: both measured on the same data, and whether the scores are as good
as equal."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

from stsbench.comparison.compare import compare
from stsbench.encoders.base import Encoder
from stsbench.errors import StsbenchError, StsbenchWarning
from stsbench.evaluation.api import evaluate
from stsbench.extensions.parity.options import ParityOptions
from stsbench.metrics.paired import Difference

_BOARD = "cannot enter the public leaderboard"  # of no interest here
EQUIVALENT, UNEQUAL, OPEN = "equivalent", "not equivalent", "undecided"


@dataclass(frozen=True)
class Scores:
    """One task, or the average: the scores a and b, b less a with its 95 % interval, and the verdict at a margin."""

    protocol: str
    metric: str
    task: str
    n: int
    a: float
    b: float
    difference: Difference
    margin: float

    @property
    def verdict(self) -> str:
        """equivalent: the 95 % interval lies within +-margin, so that two one-sided tests at 2.5 % each say so (Schuirmann
        1987); not equivalent: it lies wholly outside; else undecided."""
        low, high = self.difference.low, self.difference.high
        if low is None or high is None:
            return OPEN
        if -self.margin < low and high < self.margin:
            return EQUIVALENT
        return UNEQUAL if low > self.margin or high < -self.margin else OPEN


def scores_of(encoders: Sequence[Encoder], options: ParityOptions) -> tuple[tuple[Scores, ...], tuple[str, ...]]:
    """A row for each task of each protocol, the average last; and what a user must know of the two runs. StsbenchError:
    nothing can be compared."""
    assert options.protocols is not None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", StsbenchWarning)
        runs = [evaluate(
            encoder.identified(), protocols=options.protocols, tasks=options.tasks, data_dir=options.data_dir,
            sample=options.sample, resamples=0,
        ) for encoder in encoders]
    if lacking := [line for run in runs for line in run.failed_lines()]:
        raise StsbenchError(f"no verdict on the scores, a task has none: {lacking[0]}; name the others with --tasks")
    comparison = compare(runs[1], runs[0], resamples=options.resamples)
    heard = [str(one.message) for one in caught if issubclass(one.category, StsbenchWarning)]
    notes = [line for line in heard if _BOARD not in line] + comparison.omissions()
    rows = [
        Scores(table.setting.protocol, table.setting.metric, name, row.n, row.b, row.a, row.difference, options.margin)
        for table in comparison.tables for name, row in table.named
    ]
    if not rows:
        raise StsbenchError(f"{', '.join(options.protocols)}: no task was scored for both: no verdict on the scores")
    return tuple(rows), tuple(dict.fromkeys(notes))
