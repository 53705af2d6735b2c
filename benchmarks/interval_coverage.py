"""How often 95 % intervals of correlations cover the truth: the table of docs/findings/statistics.md.

`python benchmarks/interval_coverage.py [--rounds N] [--sizes N ...] [--truths R ...] [--shapes S ...]`: N simulations (1000
by default) a cell of Pearson's, at most 400 of Spearman's (200 from 500 pairs on), 1,000 resamples each; it takes an hour.
Shapes: `normal`: bivariate normal; `grid`: gold from 0 to 5 in steps of .2 and skewed, cosines bounded and skewed; `heavy`:
Student's t with 5 degrees of freedom. The simulations of a batch share their resamples.
"""

from __future__ import annotations

import argparse

import numpy as np
from markdown_table import line
from scipy import special, stats

from stsbench.metrics.bootstrap import bootstrap_correlation, fisher_interval, interval, resample_counts

SIZES, TRUTHS, SHAPES = (10, 20, 30, 42, 60, 100, 200, 500, 1379), (0.0, 0.3, 0.5, 0.8, 0.95), ("normal", "grid", "heavy")
DRAWS, BATCH = 1000, 100


def drawn(shape: str, rho: float, rows: int, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """(rows, n) predicted and gold."""
    x, y = rng.standard_normal((2, rows, n))
    y = rho * x + np.sqrt(1 - rho * rho) * y
    if shape == "heavy":
        scale = np.sqrt(5 / rng.chisquare(5, (rows, n)))
        return x * scale, y * scale
    if shape == "grid":
        return special.betaincinv(6, 2, special.ndtr(x)), np.round(25 * special.betaincinv(1.6, 1.1, special.ndtr(y))) / 5
    return x, y


def pearson_draws(x: np.ndarray, y: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """(rows, draws)"""
    a, b, aa, bb, ab = ((values @ counts.T) / counts.sum(axis=1) for values in (x, y, x * x, y * y, x * y))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.clip((ab - a * b) / np.sqrt((aa - a * a) * (bb - b * b)), -1, 1)


def covered(shape: str, rho: float, n: int, rounds: int, truths: tuple[float, float]) -> list[float]:
    """Percent: Pearson's percentile interval, Pearson's by Fisher's z, Spearman's percentile interval."""
    rng, hits, spearman = (
        np.random.default_rng([n, int(100 * rho), SHAPES.index(shape)]),
        np.zeros(3),
        400 if n < 500 else 200,
    )
    rounds = max(1, rounds // BATCH) * BATCH
    for start in range(0, rounds, BATCH):
        x, y = drawn(shape, rho, BATCH, n, rng)
        counts = resample_counts(n, DRAWS, (n, start))
        x, y = x - x.mean(axis=1, keepdims=True), y - y.mean(axis=1, keepdims=True)
        for i, draws in enumerate(pearson_draws(x, y, counts)):
            value = float(np.corrcoef(x[i], y[i])[0, 1])
            for at, bounds in enumerate((interval(draws), fisher_interval(draws, value, n))):
                hits[at] += bounds is not None and bounds[0] <= truths[0] <= bounds[1]
            if start + i < spearman:
                bounds = interval(bootstrap_correlation(x[i], y[i], counts, "spearman"))
                hits[2] += bounds is not None and bounds[0] <= truths[1] <= bounds[1]
    return list(100 * hits / [rounds, rounds, min(spearman, rounds)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--truths", type=float, nargs="+", default=TRUTHS)
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=SHAPES)
    options = parser.parse_args()
    rounds = options.rounds
    line("shape", "pairs", *(f"correlation {rho}" for rho in options.truths))
    line("---", *["---:"] * (1 + len(options.truths)))
    for shape in options.shapes:
        truths = {}
        for rho in options.truths:
            x, y = drawn(shape, rho, 1, 2_000_000, np.random.default_rng(1))
            exact = shape != "grid"  # correlations of an elliptical distribution are its parameter
            truths[rho] = (rho if exact else float(np.corrcoef(x[0], y[0])[0, 1]), float(stats.spearmanr(x[0], y[0])[0]))
        for n in options.sizes:
            cells = (covered(shape, rho, n, rounds, truths[rho]) for rho in options.truths)
            line(shape, n, *(f"{before:.1f} → {now:.1f}; {ranks:.1f}" for before, now, ranks in cells))


if __name__ == "__main__":
    main()
