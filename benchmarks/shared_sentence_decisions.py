"""How often what is decided by a difference errs where pairs share sentences: equivalence, power, several seeds.

    python benchmarks/shared_sentence_decisions.py --rounds 400 > benchmarks/tables/shared_sentence_decisions.csv

Two encoders are drawn as in `shared_sentence_tests.py`, on the same graphs, and judged by the functions that `compare` and
`power` call. For equivalence and power the second is 3 points worse. equivalent: how often a margin of these 3 points is
found to hold, at most 5 % in truth. found, foreseen: how often the difference is found, and how often it would be by the
standard errors of the same draws. seeds: how often three seeds a side of one method, each with an effect of its own on the
slope and on the pairs, are found to differ.
"""

from __future__ import annotations

import argparse
from math import asin, pi, sqrt

import numpy as np
from scipy.optimize import brentq
from shared_sentence_tests import COMMON, OF_LABEL, SLOPE, graphs, normal, score

from stsbench.metrics.equivalence import equivalence
from stsbench.metrics.noise import difference_over_seeds
from stsbench.metrics.paired import paired_difference
from stsbench.metrics.power import difference_power
from stsbench.metrics.shared_sentences import Influence, SharedSentences, mean_influence, stretched_pair

MARGIN, SEEDS, DRAWS = 3.0, 3, 500
OF_SEED = 0.15  # of an encoder's own error, as a share of its variance, and of its slope, as a standard deviation of 2 %


def truth(slope: float) -> float:
    """Return Spearman's correlation, x 100, of the label and of an encoder with this slope."""
    return 600 / pi * asin(slope / sqrt(1 + slope**2) / 2)


WORSE = float(brentq(lambda slope: truth(slope) - truth(SLOPE) + MARGIN, 0.1, SLOPE))


class Rounds:
    """What is drawn anew in each round on one graph. task: (n,) of an average of several tasks."""

    def __init__(self, pair: np.ndarray, task: np.ndarray, share: float) -> None:
        self.rng, self.graph = np.random.default_rng(round(100 * share)), SharedSentences(*pair, stratum=task)
        self.pair, self.task, self.share = pair, task, share
        low, high = pair.min(axis=0), pair.max(axis=0)
        self.item = np.unique(low.astype(np.int64) * (high.max() + 1) + high, return_inverse=True)[1]
        self.weight = len(task) / (task.max() + 1) / np.bincount(task)[task]

    def error(self, share: float) -> np.ndarray:
        return normal(self.rng, self.pair, self.item, share)

    def influence(self, similarity: np.ndarray, label: np.ndarray) -> Influence:
        value, reaction = score(similarity, label, self.task, self.weight)
        return Influence(100 * value, 100 * self.graph.centred(reaction), self.graph, self.weight)

    def draws(self, a: Influence, b: Influence) -> tuple[np.ndarray, np.ndarray]:
        """Return (DRAWS,) of two scores: items redrawn, then stretched."""
        moves = np.random.default_rng(0).normal(size=(DRAWS, self.item.max() + 1))[:, self.item] / self.graph.n
        return stretched_pair(a.score + moves @ a.values, b.score + moves @ b.values, a, b)

    def label_and_common(self) -> tuple[np.ndarray, np.ndarray]:
        return self.error(OF_LABEL), sqrt(COMMON) * self.error(self.share)


def rates(pair: np.ndarray, task: np.ndarray, share: float, rounds: int) -> list[float]:
    """Return equivalent, found, foreseen and seeds, in per cent."""
    world, sums = Rounds(pair, task, share), np.zeros(4)
    for _ in range(rounds):
        label, common = world.label_and_common()
        a, b = (world.influence(slope * label + common + sqrt(1 - COMMON) * world.error(share), label)
                for slope in (SLOPE, WORSE))
        drawn = world.draws(a, b)
        test, difference = equivalence(a.score, b.score, *drawn, MARGIN), paired_difference(a.score, b.score, *drawn)
        sums[:3] += (test is not None and test.p < 0.05, difference.p is not None and difference.p < 0.05,
                     difference_power(MARGIN, difference.error) if difference.error else 0)
        sides = []
        for _ in "ab":
            error = sqrt(1 - COMMON) * world.error(share)
            sides.append([
                world.influence(SLOPE * (1 + 0.02 * world.rng.normal()) * label + common + sqrt(1 - OF_SEED) * error
                                + sqrt(OF_SEED * (1 - COMMON)) * world.error(share), label)
                for _ in range(SEEDS)
            ])
        drawn = world.draws(*(mean_influence(side) for side in sides))
        scores = [np.array([one.score for one in side]) for side in sides]
        difference = difference_over_seeds(*scores, *drawn)
        sums[3] += difference.p is not None and difference.p < 0.05
    return (100 * sums / rounds).tolist()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=400)
    rounds = parser.parse_args().rounds
    print("set,share,equivalent,found,foreseen,seeds")
    for name, (pair, task) in graphs().items():
        for share in (0.0, 0.3, 0.6):
            cells = [f"{rate:.1f}" for rate in rates(pair, task, share, rounds)]
            print(",".join([name.replace(",", ""), str(share), *cells]), flush=True)


if __name__ == "__main__":
    main()
