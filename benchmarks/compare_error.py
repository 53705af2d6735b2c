"""How often `compare` of several seeds calls two equal encoders different: tables of docs/findings/statistics.md.

`python benchmarks/compare_error.py [--rounds N] [--unpaired] [--seeds A,B ...] [--items SD ...] [--power]`: N simulations
(1000 by default) a cell, two seconds each. B's seeds have sd 1, A's so many times that. A run that is alone is compared as
it is: its seed has no noise. --power: how often a difference of 5 is found.
"""

from __future__ import annotations

import argparse

import numpy as np
from markdown_table import line

from stsbench.metrics.noise import difference_over_seeds

DRAWS = 299
RATIOS = (1, 3, 10)
PAIRS = ("2,2", "3,3", "5,5", "10,10", "2,3", "3,2", "2,10", "10,2", "3,5", "5,3", "5,10", "10,5", "3,1", "10,1")


def significant(rounds: int, seeds: tuple[int, int], ratio: float, items: float, paired: bool, effect: float) -> float:
    """Percent of simulations with p < .05."""
    rng, wrong = np.random.default_rng([*seeds, int(ratio), int(10 * items), paired, int(effect)]), 0
    for number in range(rounds):
        common = rng.standard_normal(seeds[0]) if paired else 0.0
        a = effect + rng.normal(0, items) + common + ratio * rng.standard_normal(seeds[0])
        b = rng.normal(0, items) + common + rng.standard_normal(seeds[1]) * (seeds[1] > 1)
        draws = rng.normal(0, items, (2, DRAWS)) + np.array([[a.mean()], [b.mean()]])
        p = difference_over_seeds(a, b, *draws, paired=paired, seed=[number]).p
        wrong += p is not None and p < 0.05
    return 100 * wrong / rounds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--unpaired", action="store_true", help="leave out the lines of paired seeds")
    parser.add_argument("--seeds", nargs="+", default=PAIRS, help="numbers of seeds: A,B")
    parser.add_argument("--items", type=float, nargs="+", default=(0.1, 3.0), help="sd of the items' part of a score")
    parser.add_argument("--power", action="store_true")
    options = parser.parse_args()
    line("seeds A, B", "sd of items", *(f"noise {ratio} : 1" for ratio in RATIOS))
    line(*["---:"] * (2 + len(RATIOS)))
    for text in options.seeds:
        seeds = int(text.split(",")[0]), int(text.split(",")[1])
        for paired in (False, True) if seeds[0] == seeds[1] and not options.unpaired else (False,):
            for items in options.items:
                shares = (significant(options.rounds, seeds, ratio, items, paired, 5 * options.power) for ratio in RATIOS)
                line(f"{seeds[0]}, {seeds[1]}{', paired' * paired}", items, *(f"{share:.1f}" for share in shares))


if __name__ == "__main__":
    main()
