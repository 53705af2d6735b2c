"""How often `compare` of several seeds calls two equal encoders different: a table of docs/findings/interval-coverage.md.

`python benchmarks/compare_error.py [--rounds N] [--unpaired] [--seeds A,B ...]`: N simulations (2000 by default) a line, ten
seconds to a minute each. B's seeds have sd 1, A's so many times that; items have sd .1 or 3. `own`: with each side's own
variance where both have two seeds (Behrens and Fisher's test), which was tried. Power: of a true difference of 5.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np

from stsbench.metrics import noise
from stsbench.metrics.moderation import NO_PRIOR, VariancePrior, outlying, prior_of_rows
from stsbench.metrics.seeds import difference_over_seeds

DRAWS = 299
PAIRS = ((2, 2), (3, 3), (5, 5), (10, 10), (2, 3), (3, 2), (2, 10), (10, 2), (3, 5), (5, 3))


def own_of_two(variances: np.ndarray, df: np.ndarray) -> tuple[VariancePrior, np.ndarray, np.ndarray]:
    if df.min() < 2:
        return NO_PRIOR, np.zeros(len(df)), outlying(variances, df)
    return prior_of_rows(variances, df)


def significant(rounds: int, seeds: tuple[int, int], ratio: float, items: float, paired: bool, effect: float) -> float:
    """Percent of simulations with p < .05."""
    rng, wrong = np.random.default_rng([*seeds, int(ratio), int(10 * items), paired, int(effect)]), 0
    for number in range(rounds):
        common = rng.standard_normal(seeds[0]) if paired else 0.0
        a = effect + rng.normal(0, items) + common + ratio * rng.standard_normal(seeds[0])
        b = rng.normal(0, items) + common + rng.standard_normal(seeds[1])
        draws = rng.normal(0, items, (2, DRAWS)) + np.array([[a.mean()], [b.mean()]])
        p = difference_over_seeds(a, b, *draws, paired=paired, seed=[number]).p
        wrong += p is not None and p < 0.05
    return 100 * wrong / rounds


def line(*cells: object) -> None:
    sys.stdout.write("| " + " | ".join(map(str, cells)) + " |\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--unpaired", action="store_true", help="leave out the lines of paired seeds")
    parser.add_argument("--seeds", nargs="+", default=[f"{a},{b}" for a, b in PAIRS], help="numbers of seeds: A,B")
    options = parser.parse_args()
    rounds = options.rounds
    line("seeds A, B", "noise A : B", "sd of items", "error, %", "own, %", "power, %", "own, %")
    line(*["---:"] * 7)
    for text in options.seeds:
        seeds = int(text.split(",")[0]), int(text.split(",")[1])
        for paired in (False, True) if seeds[0] == seeds[1] and not options.unpaired else (False,):
            for ratio in (1, 3, 10):
                for items in (0.1, 3.0):
                    cells: list[str] = []
                    for effect in (0, 5):
                        for rule in (prior_of_rows, own_of_two):
                            if rule is own_of_two and (seeds != (2, 2) or paired):
                                cells.append("")  # the rule is the same there
                                continue
                            noise.prior_of_rows = rule
                            cells.append(f"{significant(rounds, seeds, ratio, items, paired, effect):.1f}")
                    line(f"{seeds[0]}, {seeds[1]}{', paired' * paired}", f"{ratio} : 1", items, *cells)


if __name__ == "__main__":
    main()
