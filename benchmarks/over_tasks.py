"""How often intervals over tasks cover, and how often an order survives another draw of tasks: docs/findings/statistics.md.

`python benchmarks/over_tasks.py [--rounds N] [--published FILE]`: N simulations a cell (2000 by default). A task's true
score, or difference, is drawn with sd 1; that of its items is the second column. --published: mteb's STS results, model by
task, for the share of orders of models that three of seven tasks predict for the other four.
"""

from __future__ import annotations

import argparse
import csv
import gzip
from collections.abc import Callable
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
from markdown_table import line
from scipy import stats

from stsbench.metrics.aggregation import chance_of_same_order, mean_over_tasks
from stsbench.metrics.bootstrap import interval

TASKS, NOISE, DRAWS = (3, 5, 7, 12), (0.2, 1.0, 3.0), 400
SHAPES: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {  # of the tasks' true scores: mean 0, sd 1
    "normal": lambda rng, t: rng.standard_normal(t),
    "heavy tails (t, 5)": lambda rng, t: rng.standard_t(5, t) / (5 / 3) ** 0.5,
    "skewed (exponential)": lambda rng, t: rng.exponential(1.0, t) - 1,
}
SPREADS = (0.0, 0.3, 1.0, 3.0)  # of the true mean differences of pairs of encoders, in sds over tasks
BINS = (0.5, 0.7, 0.9, 0.99, 1.0001)
GAPS = ((0, 100), (0, 0.5), (0.5, 1), (1, 2), (2, 100))  # the mean difference on the known tasks, in points
SEVEN = ("STS12", "STS13", "STS14", "STS15", "STS16", "STSBenchmark", "SICK-R")


def hierarchical_draws(draws: np.ndarray, resamples: int, seed: int) -> np.ndarray:
    """(resamples,) means over tasks and items: t tasks are drawn with replacement, and of each one draw over its items.

    draws: (t, b), of each task's score. Davison & Hinkley (1997), Bootstrap Methods and their Application, section 3.8.
    """
    rng = np.random.default_rng(seed)
    tasks, many = draws.shape
    task = rng.integers(0, tasks, size=(resamples, tasks))
    return draws[task, rng.integers(0, many, size=(resamples, tasks))].mean(axis=1)


def coverage(shape: str, tasks: int, noise: float, rounds: int) -> list[float]:
    """Percent covered by Student's interval and by the hierarchical bootstrap's percentiles, and their median widths."""
    rng = np.random.default_rng([tasks, int(10 * noise), len(shape)])
    hits, widths = np.zeros(2), np.zeros((rounds, 2))
    for number in range(rounds):
        observed = SHAPES[shape](rng, tasks) + noise * rng.standard_normal(tasks)
        draws = observed[:, None] + noise * rng.standard_normal((tasks, DRAWS))
        student = mean_over_tasks(observed)
        both = [(student.low, student.high), interval(hierarchical_draws(draws, DRAWS, number))]
        hits += [low <= 0 <= high for low, high in both]
        widths[number] = [high - low for low, high in both]
    return [*(100 * hits / rounds), *np.median(widths, axis=0)]


def survival(spread: float, tasks: int, noise: float, rounds: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(rounds,): the predicted share, the hierarchical bootstrap's, and whether another draw of tasks kept the order."""
    rng = np.random.default_rng([tasks, int(10 * spread), int(10 * noise)])
    sd = (1 + noise**2) ** 0.5
    truth = spread * sd * rng.standard_normal((rounds, 1))
    first, second = (truth + sd * rng.standard_normal((rounds, tasks)) for _ in range(2))
    predicted = np.array([chance_of_same_order(row) for row in first])
    shares = np.empty(rounds)
    for number, row in enumerate(first):
        drawn = hierarchical_draws(row[:, None] + noise * rng.standard_normal((tasks, DRAWS)), DRAWS, number)
        shares[number] = np.mean(np.sign(drawn) == np.sign(row.mean()))
    return predicted, shares, np.sign(first.mean(axis=1)) == np.sign(second.mean(axis=1))


def by_bin(predicted: np.ndarray, kept: np.ndarray) -> list[str]:
    """Of each bin of predictions their mean and what came true, in percent."""
    cells = []
    for low, high in pairwise(BINS):
        inside = (predicted >= low) & (predicted < high)
        cells.append(f"{100 * predicted[inside].mean():.0f} → {100 * kept[inside].mean():.0f}" if inside.sum() >= 50 else "")
    return cells


def published(file: Path) -> np.ndarray:
    """(models, 7): cosine Spearman, x 100, of the models that have all seven tasks."""
    scores: dict[tuple[str, str], dict[str, float]] = {}
    with gzip.open(file, "rt", encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream, delimiter="\t"):
            if row["task"] in SEVEN and row["split"] == "test" and row["metric"] in ("cosine_spearman", "cos_sim_spearman"):
                scores.setdefault((row["model"], row["revision"]), {})[row["task"]] = 100 * float(row["value"])
    return np.array([[its[task] for task in SEVEN] for its in scores.values() if len(its) == len(SEVEN)])


def real(scores: np.ndarray, known: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Every pair of models, every choice of `known` tasks: the predicted share for the other tasks, whether these kept the
    order, and the size of the mean difference on the known ones, in points."""
    one, other = np.triu_indices(len(scores), 1)
    gaps = scores[one] - scores[other]
    predictions, kept, sizes, tasks = [], [], [], gaps.shape[1]
    for some in combinations(range(tasks), known):
        first, rest = gaps[:, some], np.delete(gaps, some, axis=1)
        scale = first.std(axis=1, ddof=1) * (1 / known + 1 / (tasks - known)) ** 0.5
        ratio = np.divide(np.abs(first.mean(axis=1)), scale, out=np.full(len(gaps), np.nan), where=scale > 0)
        predictions.append(stats.t.cdf(ratio, known - 1))  # `chance_of_same_order`, of all pairs at a time
        kept.append(np.sign(first.mean(axis=1)) == np.sign(rest.mean(axis=1)))
        sizes.append(np.abs(first.mean(axis=1)))
    usable = np.isfinite(np.concatenate(predictions))
    return np.concatenate(predictions)[usable], np.concatenate(kept)[usable], np.concatenate(sizes)[usable]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--published", type=Path)
    options = parser.parse_args()
    line("tasks' true scores", "items' sd", *(f"{tasks} tasks" for tasks in TASKS))
    line("---", *["---:"] * 5)
    for shape in SHAPES:
        for noise in NOISE:
            cells = [coverage(shape, tasks, noise, options.rounds) for tasks in TASKS]
            line(shape, noise, *(f"{one:.1f}; {other:.1f} ({wide / narrow:.2f})" for one, other, wide, narrow in cells))
    line()
    line("spread of true differences", "share", *BINS[:-1], "all")
    for spread in SPREADS:
        predicted, shares, kept = survival(spread, 7, 0.2, options.rounds)
        for name, values in (("predicted", predicted), ("hierarchical", shares)):
            line(spread, name, *by_bin(values, kept), f"{100 * values.mean():.0f} → {100 * kept.mean():.0f}")
    if options.published:
        line()
        scores = published(options.published)
        line(f"{len(scores)} published models", *BINS[:-1], "all")
        for known in (3, 4):
            predicted, kept, sizes = real(scores, known)
            for low, high in GAPS:
                near = (sizes >= low) & (sizes < high)
                line(f"{known} tasks, {low:g} to {high:g} points", *by_bin(predicted[near], kept[near]),
                     f"{100 * predicted[near].mean():.0f} → {100 * kept[near].mean():.0f}")


if __name__ == "__main__":
    main()
