"""Power analysis over seeds: how many more seeds would settle the comparison of two encoders, by task and on average."""

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
MOST = 1000  # more seeds are not practical
_POINTS, _OF_TWO, _DRAWN = 400, 60, 12  # numbers of quantiles: of one distribution, of each of two, of a variance's
BASIS = (
    "This takes the true difference to be as large as the observed one, which is uncertain itself. p is not corrected for "
    "several tasks. Test once, when all planned seeds are there: testing after every seed errs in more than 5 %."
)


@dataclass(frozen=True)
class NeededRow:
    """The comparison of one task or the average of a table, and the seeds that would settle it. needed: None where there is
    no test."""

    table: ComparisonTable
    name: str
    compared: Compared
    needed: MoreSeeds | None

    @property
    def settled(self) -> bool:
        """Return whether the difference is significant at 5 %, without a correction for several tasks."""
        p = self.compared.difference.p
        return p is not None and p < 1 - LEVEL


@dataclass(repr=False)
class SeedsNeeded(Tabular):
    """The result of `seeds_needed`. power: wanted power of the test."""

    comparison: Comparison
    rows: list[NeededRow]
    power: float

    def __repr__(self) -> str:
        return f"<SeedsNeeded for {counted(len(self.rows), 'score')}; print it>"

    def document(self) -> Document:
        """Return a table with a row for each task and average, and the conclusions below it."""
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
        """Return a sentence for each table on its average or only task, and the assumptions."""
        tables = {id(row.table): row for row in self.rows}  # keeps each table's last row, which is its average if it has one
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
        """Return the content of --json as plain data."""
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
    """Return how many more seeds of A and of B would settle each difference that `compare` tests; the arguments are those of
    `compare`.

    power: probability with which a difference as large as the observed one is to be significant at 5 %. More seeds do not
    reduce the noise of the items: where it alone is too large, the result says how many times as many items are needed.
    Raises StsbenchError as `compare` does, and where A and B are of one run each.

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
    """Return the number of further seeds with its range as text; "settled", "no number", or "" without a test."""
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
    """The number of further seeds for each side of several seeds, until a difference is significant with the wanted power.

    more: for the estimated variance over seeds, 0 where the present seeds suffice, None where `MOST` are too few; low, high:
    for the ends of that variance's 95 % interval. All three are None where no number suffices. item_error, seed_error:
    present standard errors of the difference due to items and due to seeds; power: of a test with the present seeds;
    most_power: limit of the power for many seeds; times_items: how many times the present items are needed at least, 1 or
    less where these suffice.
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
        """Return whether some number of seeds suffices."""
        return self.times_items < 1


def more_seeds(
    difference: float, item_error: float, sds: tuple[float, float], counts: tuple[int, int], *, paired: bool = False,
    power: float = POWER,
) -> MoreSeeds:
    """Return the number of further seeds, the same for either side, that would show a true difference of `difference`.

    item_error: standard error of the difference due to the items alone, in the scores' unit like all values; sds: standard
    deviations over the seeds of A and B, 0 for a side of one seed, which gets no more seeds; paired: seeds are paired,
    sds[0] is that of their differences. The test is `difference_over_seeds`; the power with more seeds is by noncentral
    Student's t, a close approximation from three seeds on. The variance's interval is by chi-square, for two sides with
    Satterthwaite's degrees of freedom (1946, An Approximate Distribution of Estimates of Variance Components). Raises
    StsbenchError for two sides of one seed, negative errors, or a power outside (0, 1).

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

    ends = (1.0, 1.0)  # ends of the variance's interval divided by the variance: df over quantiles of chi-square
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
    """Return Satterthwaite's degrees of freedom of the sum of (2,) squared standard errors of means over `counts` seeds."""
    doubt = sum(part**2 / (count - 1) for part, count in zip(parts, counts, strict=True) if part)
    return sum(parts) ** 2 / doubt if doubt else inf


def _power_now(size: float, item_error: float, parts: list[float], counts: tuple[int, int]) -> float:
    """Return the power with the present seeds, averaged over sample variances drawn around the true ones, `parts`."""
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
    """Return the power for seeds with these variances, by noncentral Student's t."""
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
    """Return the critical value of a difference's size at the 5 % level, by the distributions that `Noise` draws from."""
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
    """Return the smallest number from 0 to `MOST` that is enough, None where `MOST` is not; `enough` must be monotone."""
    if not enough(MOST):
        return None
    low, high = -1, MOST
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
