"""What the difference of two encoders costs in points: both measured on the same data, and whether the scores are as good
as equal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stsbench.comparison.compare import compare
from stsbench.diagnosis.options import ParityOptions
from stsbench.encoders.base import Encoder
from stsbench.errors import StsbenchError
from stsbench.evaluation.api import evaluate
from stsbench.metrics.paired import Difference

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


def scores_of(encoders: Sequence[Encoder], options: ParityOptions) -> tuple[Scores, ...]:
    """A row for each task of each protocol and metric, the average last. StsbenchError: nothing can be compared."""
    assert options.protocols is not None
    runs = [evaluate(
        encoder.identified(), protocols=options.protocols, tasks=options.tasks, data_dir=options.data_dir,
        sample=options.sample, resamples=0,
    ) for encoder in encoders]
    rows: list[Scores] = []
    for table in compare(runs[1], runs[0], resamples=options.resamples).tables:
        for name, row in table.named:
            setting = table.setting
            rows.append(Scores(setting.protocol, setting.metric, name, row.n, row.b, row.a, row.difference, options.margin))
    if not rows:
        raise StsbenchError(f"{', '.join(options.protocols)}: no task was scored for both: no verdict on the scores")
    return tuple(rows)
