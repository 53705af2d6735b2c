"""How many more seeds would settle the comparison of two encoders, task by task and on average."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from stsbench.comparison.compare import compare
from stsbench.comparison.comparison import Comparison
from stsbench.comparison.differences import Compared, ComparisonTable
from stsbench.comparison.shared import RESAMPLES
from stsbench.comparison.wording import title
from stsbench.display.table import Column, Document, Table
from stsbench.display.tabular import Tabular, arrow_table
from stsbench.errors import StsbenchError
from stsbench.metrics.paired import LEVEL
from stsbench.metrics.seeds import MOST, POWER, MoreSeeds, more_seeds
from stsbench.wording import counted

if TYPE_CHECKING:
    import pyarrow as pa

BASIS = (
    "This takes the true difference to be as large as the observed one, which is uncertain itself. p is not corrected for "
    "several tasks. Test once, when all planned seeds are there: testing after every seed errs in more than 5 %."
)


@dataclass(frozen=True)
class NeededRow:
    """One task, or the average, of a table: its comparison, and the seeds that would settle it. needed: None where there is
    no test, and so no plan."""

    table: ComparisonTable
    name: str
    compared: Compared
    needed: MoreSeeds | None

    @property
    def settled(self) -> bool:
        """Whether it is significant at 5 %, by itself."""
        p = self.compared.difference.p
        return p is not None and p < 1 - LEVEL


@dataclass(repr=False)
class SeedsNeeded(Tabular):
    """What `seeds_needed` gives. power: with which the difference is to be shown."""

    comparison: Comparison
    rows: list[NeededRow]
    power: float

    def __repr__(self) -> str:
        return f"<SeedsNeeded for {counted(len(self.rows), 'score')}; print it>"

    def document(self) -> Document:
        """Return a row a task and average, and what it says in sentences."""
        a, b = self.comparison.seeds
        side = "a side" if 1 not in (a, b) else f"of {'A' if b == 1 else 'B'}"
        gaps, digits = [row.compared.difference for row in self.rows], [row.table.metric.digits for row in self.rows]
        needed = [row.needed for row in self.rows]
        columns = [
            Column("task", [row.name for row in self.rows]),
            Column("protocol", [row.table.setting.protocol for row in self.rows]),
            Column("A - B", [gap.value for gap in gaps], digits, signed=True), Column("p", [gap.p for gap in gaps], 4),
            Column("error of items", [None if one is None else one.item_error for one in needed], digits, detail=1),
            Column("error of seeds", [None if one is None else one.seed_error for one in needed], digits, detail=1),
            Column("power now", ["" if one is None else f"{100 * one.power:.0f} %" for one in needed], detail=1),
            Column(f"more seeds {side} [95 % range]", list(map(_plan, self.rows)), words=False),
        ]
        title = f"Seeds that would settle A - B ({counted(a, 'seed')} of A, {b} of B) with a power of {100 * self.power:g} %"
        return Document([Table(title, columns, names=2)], below=self.sentences())

    def sentences(self) -> list[str]:
        """Of each table the average in plain words, or else its only task; then what the numbers rest on."""
        tables = {id(row.table): row for row in self.rows}  # the last row of each: its average, where there is one
        lines = [f"{title(row.table)}, {row.name}: {self._sentence(row)}" for row in tables.values()
                if row.table.average or len(row.table.rows) == 1]
        return [*lines, BASIS]

    def _sentence(self, row: NeededRow) -> str:
        needed, gap, digits = row.needed, row.compared.difference, row.table.metric.digits
        if needed is None or gap.p is None:
            return "there is no test, so there is no plan."
        if row.settled:
            return f"A and B differ significantly already (p = {gap.p:.4f}): no more seeds are needed."
        if not gap.value:
            return "A and B have the same score: no number of seeds shows a difference of 0."
        size = f"{abs(gap.value):.{digits}f}"
        if not needed.settleable:
            return (f"no number of seeds settles it: the items alone leave a true difference of {size} a power of "
                    f"{100 * needed.most_power:.0f} %. It needs at least {needed.times_items:.2g} times as many items, some "
                    f"{int(float(f'{needed.times_items * row.compared.n:.2g}')):,}.")
        a, b = self.comparison.seeds
        whom = "each side" if 1 not in (a, b) else "A" if b == 1 else "B"
        if needed.more is None:
            return f"more than {MOST:,} more seeds of {whom}: nearly all of what is uncertain is the items."
        if not needed.more:
            return f"today's seeds show a true difference of {size} in {100 * self.power:g} % of cases, but did not here."
        more = counted(needed.more, "more seed")
        return (f"{more} of {whom} would show a true difference of {size} in {100 * self.power:g} % of cases; the seeds' "
                f"variance is uncertain, so {_many(needed.low)} to {_many(needed.high)}.")

    def omissions(self) -> list[str]:
        """Return a line for each reason and protocol of what could not be compared."""
        return self.comparison.omissions()

    def to_arrow(self) -> pa.Table:
        """A row for each task and average of each table: the difference, its p, errors, powers and seeds."""
        return arrow_table([
            {**asdict(row.table.setting), "task": row.compared.task, "subset": row.compared.subset, **_json(row)}
            for row in self.rows
        ])

    def as_json(self) -> dict[str, Any]:
        """What --json writes, as plain data."""
        rows = [{"protocol": row.table.setting.protocol, "metric": row.table.setting.metric,
                 "aggregation": row.table.setting.aggregation, "task": row.compared.task, "subset": row.compared.subset,
                 **_json(row)} for row in self.rows]
        compared = self.comparison.as_json()
        kept = {key: compared[key] for key in ("a", "b", "seeds", "by_seed", "resamples", "seed", "not_compared", "failed")}
        return {**kept, "power": self.power, "rows": rows, "sentences": self.sentences()}


def seeds_needed(
    a: Any, b: Any, *, protocols: str | Sequence[str] | None = None, protocol: str | Sequence[str] | None = None,
    metric: str | None = None, resamples: int = RESAMPLES, seed: int = 0, by_seed: bool | None = None, power: float = POWER,
) -> SeedsNeeded:
    """How many more seeds of A and of B would settle each difference that `compare` tests, which takes the same arguments.

    power: with which a difference as large as the observed one is to be significant at 5 %. The noise of the items stays,
    however many seeds there are: where it alone is too large, no number of seeds settles it, and so many times more items
    are needed. Raises StsbenchError as `compare` does, and where A and B are of one run each.

    >>> from stsbench import evaluate, seeds_needed
    >>> runs = [evaluate(model, sample=True, tasks="STS-B", resamples=0) for model in ("lexical:tfidf", "lexical:token-set")]
    >>> seeds_needed(*runs)
    Traceback (most recent call last):
    ...
    stsbench.errors.StsbenchError: A and B are of one run each: give two runs or more of one of them
    """
    if not 0 < power < 1:
        raise StsbenchError(f"power={power} must lie between 0 and 1, as 0.8 does")
    compared = compare(a, b, protocols=protocols, protocol=protocol, metric=metric, resamples=resamples, seed=seed,
                       by_seed=by_seed)
    if compared.seeds == (1, 1):
        raise StsbenchError("A and B are of one run each: give two runs or more of one of them")
    rows = [NeededRow(table, name, row, _needed(row, power)) for table in compared.tables for name, row in table.named]
    return SeedsNeeded(compared, rows, power)


def _needed(row: Compared, power: float) -> MoreSeeds | None:
    spread = row.spread
    if spread is None or row.difference.p is None:
        return None
    return more_seeds(row.difference.value, spread.item_error, spread.sds, spread.counts, paired=spread.paired, power=power)


def _plan(row: NeededRow) -> str:
    """How many more seeds settle it, within what range."""
    if row.needed is None or row.settled or not row.needed.settleable:
        return "" if row.needed is None else "settled" if row.settled else "no number"
    return f"{_many(row.needed.more)} [{_many(row.needed.low)}, {_many(row.needed.high)}]"


def _json(row: NeededRow) -> dict[str, Any]:
    needed = row.needed
    numbers = asdict(needed) if needed else {}
    if numbers and numbers["times_items"] == float("inf"):
        numbers["times_items"] = None
    return {"n": row.compared.n, "difference": row.compared.difference.value, "p": row.compared.difference.p,
            "settled": row.settled, **numbers}


def _many(count: int | None) -> str:
    return f"more than {MOST:,}" if count is None else str(count)
