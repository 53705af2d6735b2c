"""How often the intervals of thresholds cover the true one: two kinds of pairs whose distributions are known.

    python benchmarks/thresholds.py [--simulations 1000] [--resamples 400]

A row for each shape, share of matches and number of pairs: coverage of the thresholds of the best F1 and accuracy, by an
ordinary percentile bootstrap and as `pairs:FILE` computes it, and of that for a precision of .9 (`stsbench calibrate`).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from stsbench.extensions.statistics.calibrate import threshold_for
from stsbench.metrics.bootstrap import interval, resample_counts
from stsbench.metrics.matching import (
    CRITERIA,
    Cuts,
    criterion,
    matching_draws,
    matching_scores,
    threshold_interval,
)

PRECISION = 0.9


@dataclass(frozen=True)
class Shape:
    """Similarities of pairs that match (first) and of others, as frozen scipy distributions."""

    name: str
    match: stats.rv_continuous
    other: stats.rv_continuous

    def best(self, name: str, share: float) -> float:
        """The true threshold, on a grid."""
        grid = np.linspace(-1, 2, 300_001)
        true, false = share * self.match.sf(grid), (1 - share) * self.other.sf(grid)
        values = 2 * true / (true + false + share) if name == "f1" else true - false
        return float(grid[np.argmax(values)])

    def precise(self, share: float) -> float | None:
        """The smallest threshold with PRECISION, on a grid; None where the precision is nowhere so high."""
        grid = np.linspace(-1, 2, 300_001)
        true, false = share * self.match.sf(grid), (1 - share) * self.other.sf(grid)
        enough = (true >= PRECISION * (true + false)) & (true + false > 1e-6)
        return float(grid[np.argmax(enough)]) if enough.any() else None

    def draw(self, n: int, share: float, rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """n pairs: similarities and labels."""
        label = (rng.random(n) < share).astype(np.int64)
        both = self.match.rvs(n, random_state=rng), self.other.rvs(n, random_state=rng)
        return np.where(label == 1, *both), label


SHAPES = (
    Shape("normal, 1.5 apart", stats.norm(0.6, 0.12), stats.norm(0.42, 0.12)),
    Shape("normal, 3 apart", stats.norm(0.7, 0.12), stats.norm(0.34, 0.12)),
    Shape("skewed (beta)", stats.beta(8, 2.5), stats.beta(3, 5)),
    Shape("heavy tails (t, 5)", stats.t(5, 0.65, 0.1), stats.t(5, 0.4, 0.1)),
)


def coverage(shape: Shape, share: float, n: int, simulations: int, resamples: int) -> list[float]:
    """In percent: F1 by percentiles, F1 here, accuracy by percentiles, accuracy here, precision."""
    wanted = {name: shape.best(name, share) for name in CRITERIA}
    precise, rng = shape.precise(share), np.random.default_rng([n, int(100 * share), *shape.name.encode()])
    inside = np.zeros(5)
    for number in range(simulations):
        similarity, label = shape.draw(n, share, rng)
        counts = resample_counts(n, resamples, (number,))
        scores, draws = matching_scores(similarity, label), matching_draws(similarity, label, [counts])
        cuts = Cuts(similarity, label)
        drawn = cuts.counts(counts)
        for i, name in enumerate(CRITERIA):
            plain = interval(cuts.thresholds[np.argmax(criterion(name, *drawn), axis=1)])
            inside[2 * i] += _covers(plain, wanted[name])
            if name in draws.shifts:
                ends = threshold_interval(getattr(scores, f"{name}_threshold"), draws.shifts[name])
                inside[2 * i + 1] += _covers(ends, wanted[name])
        threshold = threshold_for(similarity, label, PRECISION)
        inside[4] += threshold is None or (
            precise is not None and threshold.low <= precise <= (threshold.high or np.inf))
    return [*(100 * inside[:4] / simulations), np.nan if precise is None else 100 * inside[4] / simulations]


def _covers(ends: tuple[float, float] | None, value: float) -> bool:
    return ends is not None and ends[0] <= value <= ends[1]


def main(show: Callable[[str], object] = print) -> None:
    """Print the table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulations", type=int, default=1000)
    parser.add_argument("--resamples", type=int, default=400)
    chosen = parser.parse_args()
    show("| shape | matches | pairs | F1, percentiles | F1 | accuracy, percentiles | accuracy | precision .9 |")
    show("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for shape in SHAPES:
        for share, n in ((0.5, 100), (0.5, 300), (0.5, 1000), (0.2, 300), (0.2, 1000)):
            cells = coverage(shape, share, n, chosen.simulations, chosen.resamples)
            shown = " | ".join("" if np.isnan(cell) else f"{cell:.1f}" for cell in cells)
            show(f"| {shape.name} | {100 * share:.0f} % | {n} | {shown} |")


if __name__ == "__main__":
    main()
