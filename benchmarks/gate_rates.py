"""How often `stsbench gate` fails: a model that is as good as its baseline, and one that is a point worse.

    python benchmarks/gate_rates.py --pairs 1379 --repetitions 200

The labels are normal, a similarity is the label and noise; `shared` of the noise's variance is the same in both models, as
of two checkpoints of one training. The worse model has less of the label, so that its true correlation is a point lower.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

from stsbench.evaluation.run_file import RUN, write_run
from stsbench.extensions.results.items import ItemScores, items_of_run
from stsbench.extensions.statistics.gate import gate

SCORE = 0.82  # of the baseline, as all-MiniLM-L6-v2's on STS-B


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=1379)
    parser.add_argument("--repetitions", type=int, default=200)
    parser.add_argument("--margin", type=float, default=0.5)
    args = parser.parse_args()
    print("| noise in common | as good: fails | a point worse: fails |\n| ---: | ---: | ---: |")
    for shared in (0.99, 0.95, 0.8):
        rates = [np.mean([_fails(args, shared, loss, seed) for seed in range(args.repetitions)]) for loss in (0.0, 1.0)]
        print(f"| {shared:.0%} | {rates[0]:.1%} | {rates[1]:.1%} |", flush=True)


def _fails(args: argparse.Namespace, shared: float, loss: float, seed: int) -> bool:
    rng = np.random.default_rng([seed, round(1000 * shared), round(loss)])
    gold, common = rng.normal(size=(2, args.pairs))
    names = [f"{number:05}" for number in range(args.pairs)]
    with tempfile.TemporaryDirectory() as folder:
        for name, score in (("baseline", SCORE), ("run", SCORE - loss / 100)):
            noise = np.sqrt(shared) * common + np.sqrt(1 - shared) * rng.normal(size=args.pairs)
            similarity = score * gold + np.sqrt(1 - score**2) * noise
            scores = ItemScores(name, "pairs", names, {"cosine": similarity.tolist()}, gold=gold.tolist())
            (Path(folder) / name).mkdir()
            write_run(Path(folder) / name / RUN, items_of_run([scores], name))
        checked = gate(
            f"{folder}/run", f"{folder}/baseline", margin=args.margin, metric="pearson", resamples=1000, seed=seed
        )
    return not checked.passed


if __name__ == "__main__":
    main()
