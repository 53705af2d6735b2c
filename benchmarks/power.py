"""Power against its promise: the tables of docs/findings/power.md.

`python benchmarks/power.py [--rounds N] [--tables T ...]`: 1,000 simulated comparisons a row by default (standard error of a
share: 1.3), 500 of the seeds' (1.8), 199 resamples each; two minutes of one core.

Promised: a difference at the minimum detectable one is significant in 80 % of experiments. Real data: the population is the
1,379 pairs of STS-B as the board's records hold them, similarities of two rows and gold scores; the truth is the difference of the
two rows' correlations on all of them. `items_needed` says how many pairs show it, so many are drawn with replacement, and
`paired_difference` tests them, as `compare` does. Normal data: gold and two encoders' similarities are trivariate normal.
Seeds: scores of three seeds a side, with noise of items and of seeds, tested by `difference_over_seeds`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from math import inf
from pathlib import Path

import numpy as np
from markdown_table import line

from stsbench.evaluation.run_file import load_records, observations_of
from stsbench.metrics.bootstrap import resample_counts
from stsbench.metrics.bootstrap_correlation import bootstrap_correlation
from stsbench.metrics.correlation import correlation
from stsbench.metrics.inference.power import POWER, detectable_difference, error_of, items_needed
from stsbench.metrics.paired import paired_difference
from stsbench.metrics.seeds import difference_over_seeds

BOARD = Path(__file__).resolve().parents[1] / "leaderboard" / "measured"
DRAWS, BATCH, ITEMS = 199, 50, 0.5  # resamples; comparisons that share them; the noise of items, in the seeds' table
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
    arrays = observations_of(folder, record).arrays
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


def significant(sample: Sample, n: int, metric: str, rounds: int, rng: np.random.Generator) -> float:
    """Percent of samples of n pairs in which the test says that the two differ."""
    hits = 0
    for number in range(rounds):
        if number % BATCH == 0:
            counts = resample_counts(n, DRAWS, (n, number))
        both, gold = sample(n, rng)
        scores = [correlation(row, gold, metric) for row in both]
        tested = paired_difference(*scores, *bootstrap_correlation(both, gold, counts, metric))
        hits += tested.p is not None and tested.p < 0.05
    return 100 * hits / rounds


def noise_of(sample: Sample, metric: str, n: int, many: int, rng: np.random.Generator) -> float:
    """The standard error of the difference in samples of n pairs, by drawing `many` of them."""
    drawn = []
    for _ in range(many):
        both, gold = sample(n, rng)
        drawn.append(np.subtract(*(correlation(row, gold, metric) for row in both)))
    return float(np.std(drawn, ddof=1))


def real_table(rounds: int) -> None:
    line("STS-B", "metric", "difference", "standard error at 1,379", "pairs for 80 %", "significant, %")
    line("---", "---", "---:", "---:", "---:", "---:")
    for number, (one, other) in enumerate(PAIRS):
        (a, gold), (b, _) = row_of(one), row_of(other)
        both, n = np.stack([a, b]), len(gold)
        for metric in ("spearman", "pearson"):
            rng = np.random.default_rng([number, len(metric)])
            truth = float(np.subtract(*(correlation(row, gold, metric) for row in both)))
            error = float(np.std(np.subtract(*bootstrap_correlation(both, gold, resample_counts(n, 2000, (1,)), metric))))
            needed = items_needed(truth, error, n)
            if 20 <= needed <= 400:
                share = significant(real(both, gold), needed, metric, rounds, rng)
                line(f"{one}, {other}", metric, f"{100 * truth:+.2f}", f"{100 * error:.2f}", needed, f"{share:.1f}")


def normal_table(rounds: int) -> None:
    line("correlations with gold", "with each other", "pairs", "detectable", "true", "significant, %")
    line("---", "---:", "---:", "---:", "---:", "---:")
    for between, n in ((0.9, 30), (0.9, 50), (0.9, 100), (0.9, 400), (0.6, 50), (0.6, 200)):
        rng = np.random.default_rng([n, int(100 * between)])
        # The noise at n pairs from that at 1,000, as `error_of` scales it; then the second encoder is that much worse.
        second = 0.7
        for _ in range(3):
            error = error_of(noise_of(normal(0.7, second, between), "pearson", 1000, 4000, rng), 1000, n)
            second = 0.7 - detectable_difference(error)
        share = significant(normal(0.7, second, between), n, "pearson", rounds, rng)
        line(f".7, {second:.3f}", between, n, f"{100 * detectable_difference(error):.1f}", f"{70 - 100 * second:.1f}",
             f"{share:.1f}")


def seeds_table(rounds: int) -> None:
    line("seeds a side", "noise of a seed over that of items", "median detectable", "significant at it, %")
    line("---:", "---:", "---:", "---:")
    for count, ratio in ((3, 1.0), (3, 2.0), (3, 4.0), (5, 2.0), (10, 2.0)):
        rng, truth, share = np.random.default_rng([count, int(10 * ratio)]), 0.0, 0.0
        for start in (True, False):  # first what is detectable, then how often a difference as large is significant
            hits, detectable = 0, []
            for number in range(rounds // 2):
                items = rng.standard_normal(2) * ITEMS
                a, b = (mean + noise + ratio * ITEMS * rng.standard_normal(count)
                        for mean, noise in zip((truth, 0.0), items, strict=True))
                draws = np.stack([side.mean() + ITEMS * rng.standard_normal(DRAWS) for side in (a, b)])
                tested = difference_over_seeds(a, b, *draws, seed=(number,))
                hits += tested.p is not None and tested.p < 0.05
                detectable.append(detectable_difference(tested.error, tested.df) if tested.error else inf)
            share = 100 * hits / (rounds // 2)
            truth = float(np.median(detectable)) if start else truth
        line(count, f"{ratio:g}", f"{truth:.2f}", f"{share:.1f}")


TABLES = {"real": real_table, "normal": normal_table, "seeds": seeds_table}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    options = parser.parse_args()
    print(f"promised: {100 * POWER:.0f} %")
    for name in options.tables:
        print(flush=True)
        TABLES[name](options.rounds)


if __name__ == "__main__":
    main()
