"""How often the test of two sides of as many seeds each errs, whatever the ratio of their noise, without noise of items.

`python benchmarks/two_sides.py`: a table of docs/findings/statistics.md; two seconds. Nothing is simulated: given the
ratio of the sample variances, which is F distributed, the difference over their pooled scale is Student's t, so that the
error is an integral over one variable (Welch 1938, The Significance of the Difference Between Two Means when the Population
Variances are Unequal, section 3).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from markdown_table import line
from scipy import stats

from stsbench.metrics.moderation import df_of_two

POINTS = 1000
RATIOS = np.exp(np.linspace(0, 5, 21))  # of the sds


def satterthwaite(one: float, other: float, count: int) -> float:
    return (count - 1) * (one + other) ** 2 / (one**2 + other**2)


def least(one: float, other: float, count: int) -> float:
    return float(count - 1)


def error(count: int, ratio: float, rule: Callable[[float, float, int], float], points: int = POINTS) -> float:
    """The share of equal sides that `rule`'s degrees of freedom call different at 5 %, with sds of `ratio` : 1."""
    df = count - 1
    quotient = stats.f.ppf((np.arange(points) + 0.5) / points, df, df)  # of the variances, each over its own truth
    one, other = ratio**2 * quotient, np.ones(points)
    critical = stats.t.isf(0.025, [rule(float(a), float(b), count) for a, b in zip(one, other, strict=True)])
    scale = 2 * (one + other) / (quotient + 1) / (ratio**2 + 1)  # the squared standard error, over that of the pooled scale
    return float(np.mean(2 * stats.t.sf(critical * np.sqrt(scale), 2 * df)))


def main() -> None:
    line("seeds a side", *(f"{name}, {where}" for name in ("n - 1", "here", "Satterthwaite") for where in ("1 : 1", "most")))
    line(*["---:"] * 7)
    for count in (2, 3, 4, 5, 7, 10, 20):
        cells = []
        for rule in (least, df_of_two, satterthwaite):
            errors = [100 * error(count, float(ratio), rule) for ratio in RATIOS]
            cells += [f"{errors[0]:.2f}", f"{max(errors):.2f}"]
        line(count, *cells)


if __name__ == "__main__":
    main()
