"""How often `compare --margin` calls two encoders practically equal: a table of docs/findings/statistics.md.

`python benchmarks/equivalence.py [--rounds N]`: N simulations (300 by default) a cell, where the true difference is the
margin, which should happen in at most 5 %, and where it is 0. Two minutes of one core.

Spearman: two encoders of one run each, over pairs whose gold scores and noise they share in part. Both follow the gold score
by as much as their noise allows; the truth is the correlation of a million pairs. Seeds: two methods whose seeds have sd 1,
or one side's three times that, and items with the sd in the line; the margin is 3.5 true standard errors.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np
from markdown_table import line
from scipy import stats

from stsbench.metrics.bootstrap import bootstrap_correlation, resample_counts
from stsbench.metrics.equivalence import Equivalence, equivalence, equivalence_over_seeds

DRAWS, ERRORS = 499, 3.5
PAIRS = {100: 0.8, 300: 0.65, 1379: 0.56}  # how many -> noise of the second encoder that is a margin worse
SEEDS = ((2, 2), (3, 3), (5, 5), (3, 5))


def encoders(rng: np.random.Generator, n: int, noise: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    gold, common, one, other = rng.normal(size=(4, n))
    return gold, gold + 0.4 * common + 0.5 * one, gold + 0.4 * common + noise * other


def spearman(gold: np.ndarray, similarity: np.ndarray) -> float:
    return 100 * float(stats.spearmanr(similarity, gold).statistic)


def of_encoders(n: int, noise: float, margin: float, rounds: int) -> Iterator[Equivalence | None]:
    """The tests of pairs of encoders, the second with that much noise of its own."""
    for number in range(rounds):
        gold, a, b = encoders(np.random.default_rng([n, number]), n, noise)
        counts = resample_counts(n, DRAWS, (n, number))
        draws = [100 * bootstrap_correlation(side, gold, counts, "spearman") for side in (a, b)]
        yield equivalence(spearman(gold, a), spearman(gold, b), *draws, margin)


def truth(noise: float) -> float:
    gold, a, b = encoders(np.random.default_rng(0), 1_000_000, noise)
    return spearman(gold, a) - spearman(gold, b)


def of_methods(
    seeds: tuple[int, int], ratio: float, items: float, effect: bool, rounds: int
) -> Iterator[Equivalence | None]:
    """The tests of pairs of methods, whose true difference is the margin (`effect`) or 0."""
    margin = ERRORS * float(np.sqrt(ratio**2 / seeds[0] + 1 / seeds[1] + 2 * items**2))
    for number in range(rounds):
        rng = np.random.default_rng([*seeds, int(ratio), int(10 * items), effect, number])
        a = effect * margin + rng.normal(0, items) + ratio * rng.standard_normal(seeds[0])
        b = rng.normal(0, items) + rng.standard_normal(seeds[1])
        draws = rng.normal(0, items, (2, DRAWS)) + np.array([[a.mean()], [b.mean()]])
        yield equivalence_over_seeds(a, b, *draws, margin, seed=[number])


def percent(tests: Iterator[Equivalence | None]) -> str:
    equal = [test is not None and test.p < 0.05 for test in tests]
    return f"{100 * np.mean(equal):.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=300)
    rounds = parser.parse_args().rounds
    line("compared", "called equal at the margin, %", "at a difference of 0, %")
    line("---", "---:", "---:")
    for n, worse in PAIRS.items():
        margin = truth(worse)
        line(f"one run each, Spearman, {n} pairs, margin {margin:.1f}",
             *(percent(of_encoders(n, noise, margin, rounds)) for noise in (worse, 0.5)))
    for seeds in SEEDS:
        for items in (0.1, 3.0):
            for ratio in (1, 3):
                noisier = f", A's seeds {ratio} times as noisy" if ratio > 1 else ""
                what = f"{seeds[0]} and {seeds[1]} seeds, sd of items {items}{noisier}"
                line(what, *(percent(of_methods(seeds, ratio, items, effect, rounds)) for effect in (True, False)))


if __name__ == "__main__":
    main()
