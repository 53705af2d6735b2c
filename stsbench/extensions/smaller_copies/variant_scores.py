"""The result of `measure_variants`: scores, loss and bytes of truncated and quantised vectors, as tables and plots."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from stsbench.display.table import Column, Document, Estimate, Table
from stsbench.display.tabular import Tabular, arrow_table
from stsbench.errors import StsbenchError
from stsbench.evaluation.plan import metric_under
from stsbench.evaluation.schema import Metric
from stsbench.extensions.smaller_copies.variant import CALL, FILE, SHARED
from stsbench.files import atomic_write
from stsbench.wording import counted

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pyarrow import Table as ArrowTable

    from stsbench.display.pareto import Point

AVERAGE = "Avg"  # the average of a protocol's tasks
FOOT = (
    "lost: points below the full vectors on the same items, with the 95 % interval of the paired bootstrap; *: no other "
    "copy is smaller and as good, or as small and better."
)
ABOUT = {
    "int8": "int8, uint8: 256 steps between the least and the greatest number of each dimension, calibrated on {}; the "
            "codes are compared as they stand, int8's from -128 on, uint8's from 0.",
    "binary": "binary: signs, 1 and -1, whose cosine orders as the Hamming distance does.",
    "ubinary": "ubinary: the same bits as 1 and 0, whose cosine is compared.",
}
CALIBRATED = {
    SHARED: "all texts of the set, both sides alike", CALL: "each call by itself, as mteb's CompressionWrapper does",
    FILE: "a file of texts",
}


@dataclass(frozen=True)
class VariantScore:
    """One score of one copy. value, with low and high, its 95 % interval over items, in the metric's unit; loss: how much
    worse than with the full vectors (lower, where neither is better), with its paired 95 % interval and p, None where the
    protocol does not observe single items."""

    dims: int  # numbers of a vector
    precision: str
    bytes: int  # a stored vector's size
    protocol: str
    task: str
    metric: str
    value: float
    low: float | None
    high: float | None
    n: int
    loss: float
    loss_low: float | None
    loss_high: float | None
    p: float | None
    fingerprint: str  # the copy's, before it is calibrated on a set

    @property
    def name(self) -> str:
        """Return "256 int8"."""
        return f"{self.dims} {self.precision}"

    @property
    def point(self) -> Point:
        """Return its point in the picture: the points that it gains over the full vectors, against its bytes."""
        from stsbench.display.pareto import Point

        low, high = (None if end is None else -end for end in (self.loss_high, self.loss_low))
        return Point(self.name, self.bytes, -self.loss, low, high)


@dataclass(frozen=True, repr=False)
class VariantScores(Tabular):
    """The result of `measure_variants`: every score of every copy, the full vectors first."""

    name: str  # the model's
    scores: tuple[VariantScore, ...]
    calibration: str = SHARED
    clip: tuple[float, float] | None = None  # quantiles beyond which numbers were cut before
    scaled: bool = False  # whether cut vectors were given length 1 again, as those of the model have
    left_out: tuple[str, ...] = ()  # a line for each protocol or width that was not measured
    failures: tuple[str, ...] = ()  # a line for each task that had no score

    def __repr__(self) -> str:
        copies = len({score.name for score in self.scores}) - 1
        return f"<VariantScores of {self.name}: {counted(copies, 'smaller set')} of vectors; print it>"

    @cached_property
    def tasks(self) -> tuple[tuple[str, str], ...]:
        """Return (protocol, task), averages among them, in their order."""
        return tuple(dict.fromkeys((score.protocol, score.task) for score in self.scores))

    @property
    def shown(self) -> tuple[tuple[str, str], ...]:
        """Return those that are printed and drawn: of a protocol with an average that alone."""
        averaged = {protocol for protocol, task in self.tasks if task == AVERAGE}
        return tuple(key for key in self.tasks if key[0] not in averaged or key[1] == AVERAGE)

    def task_scores(self, task: tuple[str, str]) -> list[VariantScore]:
        """Return the scores of one task, the full vectors' first."""
        return [score for score in self.scores if (score.protocol, score.task) == task]

    def front(self, task: tuple[str, str]) -> list[VariantScore]:
        """Return the copies on the Pareto front of size and score; [] where neither a high nor a low score is better."""
        from stsbench.display.pareto import front

        scores = self.task_scores(task) if self._metric(task).better != "neither" else []
        return [score for score, on in zip(scores, front([score.point for score in scores]), strict=True) if on]

    def to_arrow(self) -> ArrowTable:
        """Return a row for each copy and task."""
        return arrow_table([*map(asdict, self.scores)])

    def save(self, folder: Path) -> None:
        """Write variants.csv, every score, and a picture of each printed table, variants.png where there is one, into
        `folder`."""
        from stsbench.display.style import save

        with atomic_write(folder / "variants.csv") as stream:
            stream.write(self.csv())
        for number in range(len(self.shown)):
            name = "variants" if len(self.shown) == 1 else "-".join(["variants", *self.shown[number]]).replace(" ", "-")
            save(self.plot(number), folder / f"{name}.png")

    def plot(self, table: int = 0) -> Figure:
        """Return points against the full vectors, with their paired intervals, over bytes a vector.

        table: its number among those that are printed. Raises StsbenchError where there is no such table.
        """
        from stsbench.display.pareto import figure

        if table not in range(len(self.shown)):
            raise StsbenchError(f"table={table}: there are {counted(len(self.shown), 'table')}, from 0 on")
        scores = self.task_scores(self.shown[table])
        drawn: Figure = figure([score.point for score in scores], self._title(self.shown[table]), "bytes a vector",
                               f"points against the full vectors ({scores[0].metric})")
        return drawn

    def document(self) -> Document:
        """Return a table for each protocol's average, or each of its tasks where it has none."""
        return Document(list(map(self._table, self.shown)), below=self._remarks())

    def _title(self, task: tuple[str, str]) -> str:
        full = self.task_scores(task)[0]
        return f"{self.name}: {task[0]} {task[1]}, {full.metric} of {full.n:,} items"

    def _table(self, task: tuple[str, str]) -> Table:
        scores, digits = self.task_scores(task), self._metric(task).digits
        front = {score.name for score in self.front(task)}
        lost = [None, *(Estimate(score.loss, score.loss_low, score.loss_high) for score in scores[1:])]
        return Table(self._title(task), [
            Column("vectors", [score.name for score in scores]),
            Column("bytes", [f"{score.bytes:,}" for score in scores]),
            Column("share", [f"{100 * score.bytes / scores[0].bytes:.1f}%" for score in scores]),
            Column("score", [score.value for score in scores], digits), Column("lost", lost, digits),
            Column("", ["*" if score.name in front else "" for score in scores], words=True),
        ])

    def _metric(self, task: tuple[str, str]) -> Metric:
        return metric_under(task[0], self.task_scores(task)[0].metric)

    def _remarks(self) -> list[str]:
        precisions = {score.precision for score in self.scores}
        clipped = "" if self.clip is None else f", of which the quantiles {self.clip[0]:g} and {self.clip[1]:g} are the ends"
        about = [ABOUT[name].format(CALIBRATED[self.calibration] + clipped) for name, used in (
            ("int8", {"int8", "uint8"}), ("binary", {"binary"}), ("ubinary", {"ubinary"})) if used & precisions]
        cut = "scaled to length 1 again, as the model's are" if self.scaled else "not scaled, as the model's are not"
        widths = len({score.dims for score in self.scores}) > 1
        return [FOOT, *about, *([f"Cut vectors are {cut}."] if widths else []), *self.left_out]
