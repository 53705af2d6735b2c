"""How often the intervals of labelled pairs and of triplets hold the truth where their texts repeat.

    python benchmarks/shared_sentence_own.py --rounds 400 > benchmarks/tables/shared_sentence_own.csv

Each of 40 texts stands in six rows. Half of an error's variance is of the text, so that an encoder is good or bad at all
rows of it. Before: the rows are independent. After: as `pairs:FILE` and `triplets:FILE` report it.
"""

from __future__ import annotations

import argparse

import numpy as np

from stsbench.evaluation.protocol import Observations, load_protocol
from stsbench.metrics.matching import matching_scores

TEXTS, ROWS, SHARE = 40, 6, 0.5
N = TEXTS * ROWS
LARGE = 200_000  # texts, of which the truth is computed


def errors(rng: np.random.Generator, texts: int) -> np.ndarray:
    return np.sqrt(SHARE) * np.repeat(rng.normal(size=texts), ROWS) + np.sqrt(1 - SHARE) * rng.normal(size=texts * ROWS)


def pairs(rng: np.random.Generator, texts: int) -> dict[str, np.ndarray]:
    label = (rng.random(texts * ROWS) < 0.4).astype(np.int64)
    return {"similarity": label + errors(rng, texts), "label": label}


def triplets(rng: np.random.Generator, texts: int) -> dict[str, np.ndarray]:
    return {"positive": 0.7 + errors(rng, texts), "negative": np.zeros(texts * ROWS)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=400)
    rounds = parser.parse_args().rounds
    rng = np.random.default_rng(0)
    large = pairs(rng, LARGE)
    scores = matching_scores(large["similarity"], large["label"])
    many = triplets(rng, LARGE)
    truths = {"pairs": {name: 100 * getattr(scores, name) for name in ("ap", "auc", "f1", "accuracy")},
              "triplets": {"accuracy": 100 * float(np.mean(many["positive"] > many["negative"]))}}
    print("protocol,metric,coverage_before,coverage_after,width_before,width_after")
    for name, draw in (("pairs", pairs), ("triplets", triplets)):
        protocol = load_protocol(name)({"similarity": "dot"})
        counts = {metric: np.zeros(4) for metric in truths[name]}
        text = np.repeat(np.arange(TEXTS, dtype=np.uint64), ROWS)
        keys = {"sentence1": text, "sentence2": np.arange(1000, 1000 + N, dtype=np.uint64)}
        keys |= {"sentence3": np.arange(9000, 9000 + N, dtype=np.uint64)} if name == "triplets" else {}
        for number in range(rounds):
            arrays = {**draw(rng, TEXTS), "subset": np.zeros(N, np.int64)}
            for at, more in enumerate(({}, keys)):
                for row in protocol.score(Observations({**arrays, **more}, {"subsets": ["all"]}), f"own:{number}", "own"):
                    if (truth := truths[name].get(row.metric)) is not None:
                        counts[row.metric][[at, at + 2]] += row.low <= truth <= row.high, row.high - row.low
        for metric, sums in counts.items():
            before, after, *widths = sums / rounds
            print(f"{name},{metric},{100 * before:.1f},{100 * after:.1f},{widths[0]:.1f},{widths[1]:.1f}", flush=True)


if __name__ == "__main__":
    main()
