"""How often intervals and tests of correlations err where pairs share sentences, on the graphs of the catalog's sets.

    python benchmarks/shared_sentence_tests.py --rounds 300

Two encoders of the same quality are drawn on each set's true graph of sentences, the data being where `stsbench eval`
finds them: the label is normal, 30 % of its variance of the two sentences; a similarity is the label and an error, of
which `share` is of the sentences and half is the same in both encoders. Before: pairs are independent, which the
bootstrap over pairs comes to. After: as `stsbench.metrics.shared_sentences` stretches it. Level: how often a test at 5 %
calls the two different; coverage: how often a score's 95 % interval holds the truth.
"""

from __future__ import annotations

import argparse
from math import asin, pi, sqrt

import numpy as np
from scipy.special import ndtri

from stsbench.data.fetch.sources import load_data
from stsbench.data.sets.sentences import letters
from stsbench.metrics.shared_sentences import SharedSentences, spearman_influence

SETS = {"STS12": "sts12/test", "STS13": "sts13/test", "STS14": "sts14/test", "STS15": "sts15/test", "STS16": "sts16/test",
        "STS-B": "stsb/test", "SICK-R": "sick-r/test"}
SLOPE, OF_LABEL, COMMON = 1.33, 0.3, 0.5  # a correlation of .80; shares of the label's and of the errors' variance
TRUTH = 6 / pi * asin(SLOPE / sqrt(1 + SLOPE**2) / 2)  # Spearman's correlation of two normal numbers
Z = float(ndtri(0.975))


def graphs() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return set -> (2, n) numbers of the sentences of each pair, and (n,) which task each pair is of: of the average all
    seven; and 50 pairs of one's own, ten texts with five each."""
    sets = {name: load_data(set_id) for name, set_id in SETS.items()}
    texts = [letters(text) for side in ("first", "second") for data in sets.values() for text in getattr(data, side)]
    pairs = np.unique(texts, return_inverse=True)[1].reshape(2, -1)
    task = np.repeat(np.arange(len(sets)), [len(data.first) for data in sets.values()])
    made = {name: (pairs[:, task == number], np.zeros((task == number).sum(), int)) for number, name in enumerate(sets)}
    file = np.stack([np.repeat(np.arange(10), 5), np.arange(10, 60)])
    return {**made, "average": (pairs, task), "a file, 10 x 5": (file, np.zeros(50, int))}


def normal(rng: np.random.Generator, pair: np.ndarray, item: np.ndarray, share: float) -> np.ndarray:
    """Return (n,) of variance 1, `share` of it of the two sentences; rows of one item are alike."""
    first, second = rng.normal(size=pair.max() + 1)[pair]
    return np.sqrt(share / 2) * (first + second) + np.sqrt(1 - share) * rng.normal(size=item.max() + 1)[item]


def score(similarity: np.ndarray, label: np.ndarray, task: np.ndarray, weight: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the mean of the tasks' correlations, and its (n,) influence values."""
    values, mean = np.empty(len(task)), 0.0
    for number in range(task.max() + 1):
        rows = task == number
        one, values[rows] = spearman_influence(similarity[rows], label[rows])
        mean += one / (task.max() + 1)
    return mean, values * weight


def rates(pair: np.ndarray, task: np.ndarray, share: float, rounds: int) -> np.ndarray:
    """Return level before and after, coverage before and after, in per cent."""
    rng, graph = np.random.default_rng(round(100 * share)), SharedSentences(*pair, stratum=task)
    low, high = pair.min(axis=0), pair.max(axis=0)
    item = np.unique(low.astype(np.int64) * (high.max() + 1) + high, return_inverse=True)[1]
    weight = len(task) / (task.max() + 1) / np.bincount(task)[task]
    counts = np.zeros(4)
    for _ in range(rounds):
        label, common = normal(rng, pair, item, OF_LABEL), normal(rng, pair, item, share)
        scores = []
        for _ in "ab":
            error = np.sqrt(COMMON) * common + np.sqrt(1 - COMMON) * normal(rng, pair, item, share)
            scores.append(score(SLOPE * label + error, label, task, weight))
        (a, of_a), (b, of_b) = scores
        for at, value, reaction in ((0, a - b, of_a - of_b), (2, a - TRUTH, of_a)):
            reaction = graph.centred(reaction)
            plain = sqrt(np.mean(reaction**2) / graph.n)
            stretched = sqrt(graph.item_variance(reaction)) * graph.stretch(reaction, weight)
            beyond = np.array([abs(value) > Z * plain, abs(value) > Z * stretched])
            counts[at : at + 2] += beyond if at == 0 else ~beyond
    return 100 * counts / rounds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=300)
    rounds = parser.parse_args().rounds
    print("| set | level before | level after | coverage before | coverage after |\n| --- | ---: | ---: | ---: | ---: |")
    for name, (pair, task) in graphs().items():
        columns = np.transpose([rates(pair, task, share, rounds) for share in (0.0, 0.3, 0.6)])
        print(f"| {name} | {' | '.join(' / '.join(f'{rate:.1f}' for rate in column) for column in columns)} |", flush=True)


if __name__ == "__main__":
    main()
