"""Power against its promise: the tables of docs/findings/statistics.md.

`python benchmarks/power.py [--rounds N] [--tables T ...]`: 2,000 simulated comparisons a row by default (standard error of a
share: .9), 500 of Spearman's and of the seeds' (1.8), 200 resamples each; a minute of one core.

Promised: a difference at the minimum detectable one is significant in 80 % of experiments. Real data: the population is the
1,379 pairs of STS-B as the board holds them, similarities of two rows and gold scores; the truth is the difference
of the two rows' correlations on all of them. `items_needed` says how many pairs show it, so many are drawn with replacement,
and `paired_difference` tests them, as `compare` does. Normal data: gold and two similarities are trivariate normal.
Seeds: scores of three seeds a side, with noise of items and of seeds, tested by `difference_over_seeds`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from math import inf
from pathlib import Path

import numpy as np
from markdown_table import line

from stsbench.evaluation.run_file import load_records, read_observations
from stsbench.extensions.statistics.power import items_needed
from stsbench.metrics.bootstrap import bootstrap_correlation, resample_counts
from stsbench.metrics.noise import difference_over_seeds
from stsbench.metrics.paired import paired_difference
from stsbench.metrics.power import POWER, detectable_difference
from stsbench.metrics.similarity import correlation

BOARD = Path(__file__).resolve().parents[1] / "leaderboard" / "measured"
# Resamples: of 200, p < .05 in 4.98 % where nothing differs (of 199, in 4.5); comparisons that share them; the noise of
# items in the seeds' table.
DRAWS, BATCH, ITEMS = 200, 50, 0.5
PAIRS = (  # rows of the board, from close to unlike, and of differences that 49 to 400 pairs show
    ("minilm-mean", "minilm-cls"), ("minilm-mean", "tfidf"), ("minilm-mean", "minilm-mlm32-cls"),
    ("minilm-mean", "token-set"), ("minilm-mean", "minilm-mlm32-simcse"),
)
Sample = Callable[[int, np.random.Generator], tuple[np.ndarray, np.ndarray]]  # (2, n) similarities and (n,) gold


def row_of(name: str) -> tuple[np.ndarray, np.ndarray]:
    """(n,) similarities and gold of STS-B, of the row's first run."""
    folder = sorted(path for path in (BOARD / name).iterdir() if path.is_dir())[0]
    record = next(record for _, record in load_records(folder)
                  if record.protocol.name == "sts" and record.data.id == "stsb/test")
    arrays = read_observations(folder, record).arrays
    return arrays["similarity"], arrays["gold"]


def real(similarities: np.ndarray, gold: np.ndarray) -> Sample:
    def sample(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        at = rng.integers(0, len(gold), n)
        return similarities[:, at], gold[at]
    return sample


def normal(first: float, second: float, between: float) -> Sample:
    """Correlations of two encoders with gold, and with each other."""
    root = np.linalg.cholesky([[1, first, second], [first, 1, between], [second, between, 1]])

    def sample(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        gold, *both = root @ rng.standard_normal((3, n))
        return np.stack(both), gold
    return sample


def pearson(both: np.ndarray, gold: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """(samples, 2, draws) correlations of both (samples, 2, n) with gold (samples, n), under (draws, n) counts."""
    gold = gold[:, None]
    a, b, aa, bb, ab = ((values @ counts.T) / counts.sum(axis=1) for values in (both, gold, both**2, gold**2, both * gold))
    return (ab - a * b) / np.sqrt((aa - a * a) * (bb - b * b))


def significant(sample: Sample, n: int, metric: str, rounds: int, rng: np.random.Generator) -> float:
    """Percent of samples of n pairs in which the test says that the two differ."""
    hits = 0
    for start in range(0, rounds, BATCH):
        counts = resample_counts(n, DRAWS, (n, start))
        drawn = [sample(n, rng) for _ in range(BATCH)]
        if metric == "pearson":
            both, gold = (np.stack(part) for part in zip(*drawn, strict=True))
            both, gold = both - both.mean(axis=2, keepdims=True), gold - gold.mean(axis=1, keepdims=True)
            values, draws = pearson(both, gold, np.ones((1, n)))[..., 0], pearson(both, gold, counts)
        else:
            values = [[correlation(row, gold, metric) for row in both] for both, gold in drawn]
            draws = [bootstrap_correlation(both, gold, counts, metric) for both, gold in drawn]
        for (a, b), (draws_a, draws_b) in zip(values, draws, strict=True):
            tested = paired_difference(float(a), float(b), draws_a, draws_b)
            hits += tested.p is not None and tested.p < 0.05
    return 100 * hits / rounds


def normal_error(first: float, second: float, between: float, n: int) -> float:
    """The standard error of the difference of Pearson's correlations first and second, which share gold, of n normal
    triples (Olkin and Siotani 1976, Asymptotic distribution of functions of a correlation matrix)."""
    left = 1 - first**2 - second**2
    covariance = between * left - first * second * (left - between**2) / 2
    return float(np.sqrt(((1 - first**2) ** 2 + (1 - second**2) ** 2 - 2 * covariance) / n))


def real_table(rounds: int, metric: str) -> None:
    line("STS-B", "metric", "difference", "standard error at 1,379", "pairs for 80 %", "significant, %")
    line("---", "---", "---:", "---:", "---:", "---:")
    for number, (one, other) in enumerate(PAIRS):
        (a, gold), (b, _) = row_of(one), row_of(other)
        both, n = np.stack([a, b]), len(gold)
        rng = np.random.default_rng([number, len(metric)])
        truth = float(np.subtract(*(correlation(row, gold, metric) for row in both)))
        error = float(np.std(np.subtract(*bootstrap_correlation(both, gold, resample_counts(n, 2000, (1,)), metric))))
        needed = items_needed(truth, error, n)
        if 20 <= needed <= 400:
            share = significant(real(both, gold), needed, metric, rounds if metric == "pearson" else rounds // 4, rng)
            line(f"{one}, {other}", metric, f"{100 * truth:+.2f}", f"{100 * error:.2f}", needed, f"{share:.1f}")


def normal_table(rounds: int) -> None:
    line("correlations with gold", "with each other", "pairs", "detectable difference", "significant, %")
    line("---", "---:", "---:", "---:", "---:")
    for between, n in ((0.9, 30), (0.9, 50), (0.9, 100), (0.9, 400), (0.6, 50), (0.6, 200)):
        rng = np.random.default_rng([n, int(100 * between)])
        second = 0.7
        for _ in range(50):  # so much worse that it is just detectable, its worse correlation being noisier
            second = 0.7 - detectable_difference(normal_error(0.7, second, between, n))
        share = significant(normal(0.7, second, between), n, "pearson", rounds, rng)
        line(f".7, {second:.3f}", between, n, f"{70 - 100 * second:.1f}", f"{share:.1f}")


def seeds_table(rounds: int) -> None:
    line("seeds a side", "noise of a seed over that of items", "median detectable", "significant at it, %")
    line("---:", "---:", "---:", "---:")
    for count, ratio in ((3, 1.0), (3, 2.0), (3, 4.0), (5, 2.0), (10, 2.0)):
        rng, truth, share = np.random.default_rng([count, int(10 * ratio)]), 0.0, 0.0
        for start in (True, False):  # first what is detectable, then how often a difference as large is significant
            hits, detectable = 0, []
            for number in range(rounds // 4):
                items = rng.standard_normal(2) * ITEMS
                a, b = (mean + noise + ratio * ITEMS * rng.standard_normal(count)
                        for mean, noise in zip((truth, 0.0), items, strict=True))
                draws = np.stack([side.mean() + ITEMS * rng.standard_normal(DRAWS) for side in (a, b)])
                tested = difference_over_seeds(a, b, *draws, seed=(number,))
                hits += tested.p is not None and tested.p < 0.05
                detectable.append(detectable_difference(tested.error, tested.df) if tested.error else inf)
            share = 100 * hits / (rounds // 4)
            truth = float(np.median(detectable)) if start else truth
        line(count, f"{ratio:g}", f"{truth:.2f}", f"{share:.1f}")


TABLES = {"pearson": lambda rounds: real_table(rounds, "pearson"), "spearman": lambda rounds: real_table(rounds, "spearman"),
           "normal": normal_table, "seeds": seeds_table}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    options = parser.parse_args()
    print(f"promised: {100 * POWER:.0f} %")
    for name in options.tables:
        print(flush=True)
        TABLES[name](options.rounds)


if __name__ == "__main__":
    main()
