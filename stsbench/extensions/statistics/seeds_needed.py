"""How many more seeds would settle the comparison of two encoders, task by task and on average."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from math import hypot, inf, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from stsbench.comparison.compare import compare
from stsbench.comparison.comparison import Comparison, title
from stsbench.comparison.differences import Compared, ComparisonTable
from stsbench.comparison.shared import RESAMPLES
from stsbench.display.table import Column, Document, Table
from stsbench.display.tabular import Tabular, arrow_table
from stsbench.errors import StsbenchError
from stsbench.metrics.moderation import df_of_two
from stsbench.metrics.paired import LEVEL
from stsbench.options import takes
from stsbench.wording import counted

if TYPE_CHECKING:
    import pyarrow as pa

POWER = 0.8
MOST = 1000  # more seeds than that are no plan
_POINTS, _OF_TWO, _DRAWN = 400, 60, 12  # quantiles that stand for a distribution, for each of two, for a variance's
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
        """Return whether it is significant at 5 %, by itself."""
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
        """Return a row for each task and average of each table: the difference, its p, errors, powers and seeds."""
        return arrow_table([
            {**asdict(row.table.setting), "task": row.compared.task, "subset": row.compared.subset, **_json(row)}
            for row in self.rows
        ])

    def as_json(self) -> dict[str, Any]:
        """Return what --json writes, as plain data."""
        rows = [{"protocol": row.table.setting.protocol, "metric": row.table.setting.metric,
                 "aggregation": row.table.setting.aggregation, "task": row.compared.task, "subset": row.compared.subset,
                 **_json(row)} for row in self.rows]
        compared = self.comparison.as_json()
        kept = {key: compared[key] for key in ("a", "b", "seeds", "by_seed", "resamples", "seed", "not_compared", "failed")}
        return {**kept, "power": self.power, "rows": rows, "sentences": self.sentences()}


@takes()
def seeds_needed(
    a: Any, b: Any, *, protocols: str | Sequence[str] | None = None, protocol: str | Sequence[str] | None = None,
    metric: str | None = None, resamples: int = RESAMPLES, seed: int = 0, by_seed: bool | None = None, power: float = POWER,
) -> SeedsNeeded:
    """Return how many more seeds of A and of B would settle each difference that `compare` tests, which takes the same
    arguments.

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
    """Return how many more seeds settle it, within what range."""
    if row.needed is None or row.settled or not row.needed.settleable:
        return "" if row.needed is None else "settled" if row.settled else "no number"
    return f"{_many(row.needed.more)} [{_many(row.needed.low)}, {_many(row.needed.high)}]"


def _json(row: NeededRow) -> dict[str, Any]:
    needed = row.needed
    numbers = asdict(needed) if needed else {}
    if numbers and numbers["times_items"] == inf:
        numbers["times_items"] = None
    return {"n": row.compared.n, "difference": row.compared.difference.value, "p": row.compared.difference.p,
            "settled": row.settled, **numbers}


def _many(count: int | None) -> str:
    return f"more than {MOST:,}" if count is None else str(count)


@dataclass(frozen=True)
class MoreSeeds:
    """How many more seeds each side of several needs until the difference would be significant at 5 % with 80 % power.

    more: with the variance over seeds as estimated, 0 where today's seeds have that power, None where `MOST` are too few;
    low, high: the same with the ends of that variance's 95 % interval. All three are None where no number suffices.
    item_error, seed_error: today's standard errors of the difference, for its items and for its seeds; power: of a test with
    today's seeds; most_power: with any number of seeds; times_items: how many times as many items as today's would be needed
    at least, 1 or less where these suffice.
    """

    more: int | None
    low: int | None
    high: int | None
    item_error: float
    seed_error: float
    power: float
    most_power: float
    times_items: float

    @property
    def settleable(self) -> bool:
        """Return whether any number of seeds suffices."""
        return self.times_items < 1


def more_seeds(
    difference: float, item_error: float, sds: tuple[float, float], counts: tuple[int, int], *, paired: bool = False,
    power: float = POWER,
) -> MoreSeeds:
    """Return the number of seeds, as many for either side, that would show a true difference as large as `difference`.

    item_error: standard error of the difference for the items alone, in the scores' unit as all of these; sds: over the
    seeds of A and of B, 0 for a side of one seed, which is taken as it is and gets no more; paired: seeds are pairs, and
    sds[0] is that of their differences. The test is `difference_over_seeds`; how often more seeds show the difference is by
    noncentral Student's t, nearly so with three seeds or more. The interval of the variance is that of chi-square, of both
    sides together with Satterthwaite's degrees of freedom (1946, An Approximate Distribution of Estimates of Variance
    Components). Raises StsbenchError for two sides of one seed, numbers below 0, or a power outside (0, 1).

    >>> needed = more_seeds(1.0, 0.2, (0.8, 0.6), (3, 3))
    >>> needed.more, needed.low, needed.high, round(needed.power, 2)
    (10, 3, 105, 0.13)
    >>> round(more_seeds(0.5, 0.2, (0.8, 0.6), (3, 3)).times_items, 2)
    1.26
    """
    from scipy import stats

    _check(difference, item_error, sds, counts, power)
    enough = float(stats.norm.isf((1 - LEVEL) / 2) + stats.norm.ppf(power))  # standard errors
    size = abs(difference)
    several = [count > 1 for count in counts]
    variances = [sd**2 if many else 0.0 for sd, many in zip(sds, several, strict=True)]
    if paired:
        variances[1], several[1] = 0.0, False
    parts = [variance / count for variance, count in zip(variances, counts, strict=True)]
    df = _satterthwaite(parts, counts)
    times = (enough * item_error / size) ** 2 if size else inf

    def power_with(more: int, scale: float) -> float:
        sizes = [count + more if many else count for count, many in zip(counts, several, strict=True)]
        return _power(size, item_error, [scale * variance for variance in variances], sizes)

    def needed(scale: float) -> int | None:
        return _smallest(lambda more: power_with(more, scale) >= power) if times < 1 else None

    ends = (1.0, 1.0)  # times the variance of the seeds: df over the quantiles of chi-square
    if sum(parts):
        ends = (df / float(stats.chi2.ppf((1 + LEVEL) / 2, df)), df / float(stats.chi2.ppf((1 - LEVEL) / 2, df)))
    limit = float(stats.norm.cdf(size / item_error - stats.norm.isf((1 - LEVEL) / 2))) if item_error else float(size > 0)
    today = _power_now(size, item_error, parts, counts)
    return MoreSeeds(needed(1.0), needed(ends[0]), needed(ends[1]), item_error, sqrt(sum(parts)), today, limit, times)


def _check(difference: float, item_error: float, sds: tuple[float, float], counts: tuple[int, int], power: float) -> None:
    if not np.isfinite([difference, item_error, *sds]).all() or min(item_error, *sds) < 0:
        raise StsbenchError(f"more_seeds: difference={difference}, item_error={item_error}, sds={sds} must be numbers, and "
                            "errors and sds not below 0")
    if min(counts) < 1 or max(counts) < 2:
        raise StsbenchError(f"more_seeds: counts={counts} say nothing of other seeds: give two or more of a side")
    if not 0 < power < 1:
        raise StsbenchError(f"more_seeds: power={power} must lie between 0 and 1")


def _satterthwaite(parts: list[float], counts: list[int] | tuple[int, int]) -> float:
    """Return degrees of freedom of the sum of (2,) squared standard errors of means over `counts` seeds."""
    doubt = sum(part**2 / (count - 1) for part, count in zip(parts, counts, strict=True) if part)
    return sum(parts) ** 2 / doubt if doubt else inf


def _power_now(size: float, item_error: float, parts: list[float], counts: tuple[int, int]) -> float:
    """Of the test with these few seeds, over all that their sample variances may be where the true ones are `parts`."""
    from scipy import stats

    error = hypot(item_error, sqrt(sum(parts)))
    if not error:
        return float(size > 0)
    at = (np.arange(_DRAWN) + 0.5) / _DRAWN
    drawn = [part * stats.chi2.ppf(at, count - 1) / (count - 1) if part else np.zeros(1)
             for part, count in zip(parts, counts, strict=True)]
    critical = np.array([_critical(item_error, [float(a), float(b)], list(counts)) for a in drawn[0] for b in drawn[1]])
    return float(np.mean(stats.norm.sf((critical - size) / error) + stats.norm.sf((critical + size) / error)))


def _power(size: float, item_error: float, variances: list[float], counts: list[int]) -> float:
    """Of the test where the seeds' sample variances are as large as these: Student's t, noncentral."""
    from scipy import stats

    parts = [variance / count for variance, count in zip(variances, counts, strict=True)]
    error = hypot(item_error, sqrt(sum(parts)))
    if not error:
        return float(size > 0)
    critical = _critical(item_error, parts, counts)
    doubt = sum(part**2 / (count - 1) for part, count in zip(parts, counts, strict=True) if part)
    if not doubt:
        return float(stats.norm.sf(critical / error - size / error))
    return float(stats.nct.sf(critical / error, error**4 / doubt, size / error))


def _critical(item_error: float, parts: list[float], counts: list[int]) -> float:
    """Return what a difference must exceed, by the distributions that `Noise` draws from."""
    from scipy import optimize, stats

    at = (np.arange(_POINTS) + 0.5) / _POINTS
    random = [(sqrt(part), count) for part, count in zip(parts, counts, strict=True) if part]
    if len(random) == 2 and counts[0] == counts[1]:
        df = df_of_two(parts[0], parts[1], counts[0])
        deviations = sqrt(sum(parts)) * stats.t.ppf(at, df)
    else:
        at = (np.arange(_OF_TWO) + 0.5) / _OF_TWO if len(random) == 2 else at
        drawn = [error * stats.t.ppf(at, count - 1) for error, count in random] or [np.zeros(1)]
        deviations = drawn[0] if len(drawn) == 1 else np.add.outer(drawn[0], drawn[1]).ravel()
    if not item_error:
        return float(np.quantile(np.abs(deviations), LEVEL))

    def beyond(limit: float) -> float:
        return float(np.mean(2 * stats.norm.sf((limit - deviations) / item_error))) - (1 - LEVEL)

    highest = float(np.abs(deviations).max()) + 10 * item_error
    return float(optimize.brentq(beyond, 0.0, highest, xtol=1e-6 * highest))


def _smallest(enough: Callable[[int], bool]) -> int | None:
    """Return the smallest number from 0 to `MOST` that is enough, where all above it are; None where none is."""
    if not enough(MOST):
        return None
    low, high = -1, MOST
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
