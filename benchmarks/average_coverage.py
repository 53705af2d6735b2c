"""How often 95 % intervals of averages of correlations cover the truth: a table of docs/findings/statistics.md.

`python benchmarks/average_coverage.py [--rounds N] [--cases C ...]`: N simulations (1000 by default) of Pearson's, 1,000
resamples each. Pairs are those of `grid` in interval_coverage.py, an average's parts have correlations from .5 to .8; three
seeds of one method have normal pairs. The simulations of a batch share their resamples.
"""

from __future__ import annotations

import argparse

import numpy as np
from interval_coverage import BATCH, DRAWS, drawn, pearson_draws
from markdown_table import line
from scipy import stats

from stsbench.metrics.bootstrap import fisher_interval, interval, resample_counts

CASES = {
    "subsets": (20, 30, 40, 50, 60), "seven small": (20, 30, 42, 60, 100, 150, 200),
    "seven tasks": (3108, 1500, 3750, 3000, 1186, 1379, 4927),
}
SEEDS, RHO, SPREAD = (42, 200, 1379), 0.8, 0.02  # pairs; the mean of all seeds' correlations, and their sd


def point(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return pearson_draws(x, y, np.ones((1, x.shape[1])))[:, 0]


def covers(values: np.ndarray, draws: np.ndarray, n: int, truth: float) -> np.ndarray:
    """(2,): how many of the simulations' percentile intervals, and of those on Fisher's z, hold the truth."""
    both = [(interval(row), fisher_interval(row, float(value), n)) for value, row in zip(values, draws, strict=True)]
    return np.array([sum(bounds[0] <= truth <= bounds[1] for bounds in way if bounds) for way in zip(*both, strict=True)])


def of_parts(sizes: tuple[int, ...], rounds: int) -> dict[str, np.ndarray]:
    """Percent, by aggregation. Seven tasks are redrawn by Poisson numbers, as `average_draws` does, subsets one by one."""
    rng, hits, rhos, weights = np.random.default_rng(sizes), {}, np.linspace(0.5, 0.8, len(sizes)), np.array(sizes)
    big = [drawn("grid", rho, 1, 1_000_000, np.random.default_rng(1)) for rho in rhos]
    truths = np.array([point(x, y)[0] for x, y in big])
    for start in range(0, rounds, BATCH):
        counts = [np.random.default_rng([n, start]).poisson(1.0, (DRAWS, n)).astype(float) if len(sizes) == 7
                  else resample_counts(n, DRAWS, (n, start)) for n in sizes]
        pairs = [drawn("grid", rho, BATCH, n, rng) for rho, n in zip(rhos, sizes, strict=True)]
        values = np.array([point(x, y) for x, y in pairs])
        draws = np.array([pearson_draws(x, y, resampled) for (x, y), resampled in zip(pairs, counts, strict=True)])
        now = {"mean": covers(values.mean(0), draws.mean(0), int(weights.mean()), truths.mean())}
        if len(sizes) != 7:
            x, y = (np.concatenate(sides, axis=1) for sides in zip(*pairs, strict=True))
            of_all = pearson_draws(x, y, np.concatenate(counts, axis=1))
            weighted = float(np.average(truths, weights=weights))  # of all pairs, too: the parts have the same margins
            two = [np.average(array, axis=0, weights=weights) for array in (values, draws)]
            now["wmean"] = covers(two[0], two[1], int(weights.mean()), weighted)
            now["all"] = covers(point(x, y), of_all, sum(sizes), weighted)
        for name, covered in now.items():
            hits[name] = hits.get(name, 0) + covered
    return {name: 100 * count / rounds for name, count in hits.items()}


def of_seeds(n: int, rounds: int) -> float:
    """Percent of the board's interval of three seeds' mean: percentiles of the items' draws plus a deviate of the seeds."""
    rng, hits = np.random.default_rng([n, 3]), 0
    wider = stats.t.ppf(0.975, 2) / stats.norm.ppf(0.975) / 3**0.5
    for start in range(0, rounds, BATCH):
        counts = resample_counts(n, DRAWS, (n, start))
        gold, common = rng.standard_normal((2, BATCH, n))
        rho = RHO + SPREAD * rng.standard_normal((3, BATCH, 1))
        noise = 0.8**0.5 * common + 0.2**0.5 * rng.standard_normal((3, BATCH, n))
        seeds = rho * gold + np.sqrt(1 - rho * rho) * noise
        values = np.array([point(row, gold) for row in seeds])
        draws = np.mean([pearson_draws(row, gold, counts) for row in seeds], axis=0)
        draws += values.std(axis=0, ddof=1)[:, None] * wider * rng.standard_normal(DRAWS)
        hits += covers(values.mean(axis=0), draws, n, RHO)[0]
    return 100 * hits / rounds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--cases", nargs="+", choices=[*CASES, "seeds"], default=[*CASES, "seeds"])
    options = parser.parse_args()
    line("average", "pairs", "percentiles", "Fisher's z")
    line("---", *["---:"] * 3)
    for case in options.cases:
        if case == "seeds":
            for n in SEEDS:
                line("three seeds", n, f"{of_seeds(n, options.rounds):.1f}", "")
        else:
            for how, (before, now) in of_parts(CASES[case], options.rounds).items():
                line(f"{case}, {how}", " ".join(map(str, CASES[case])), f"{before:.1f}", f"{now:.1f}")


if __name__ == "__main__":
    main()
