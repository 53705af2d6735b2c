"""Invented STS observations that hit given scores: pooled Spearman and pair-weighted mean of subset Spearmans at once.

Two knobs a year. Noise inside the subsets sets the weighted mean. An offset a subset, along its mean gold score or against
it, moves the pooled correlation only, since no subset's own ranks change."""

from functools import cache

import numpy as np
import pytest
from scipy.stats import spearmanr

from stsbench.data.sets.sets import PairSet
from stsbench.encoders.cache.embed import Embed
from stsbench.encoders.light.callable import CallableEncoder
from stsbench.evaluation.measure import measure
from stsbench.evaluation.protocol import Observations
from stsbench.evaluation.result import Result
from stsbench.protocols.sts import TASKS, StsProtocol

SIZES = {  # of a year's invented subsets, as unequal as real ones
    "STS12": (235, 100, 165), "STS13": (50, 250, 200), "STS14": (150, 100, 250), "STS15": (100, 235, 165),
    "STS16": (200, 85, 215)}
SPREAD = (0.6, 1.6, 0.9)  # a subset's noise beside another's: mean and wmean differ
CLOSE = 0.004  # points: closer than the second decimal

# SimCSE (Gao et al. 2021), table B.2: what a paper reports, and what Gao et al. got under both settings.
B2 = {
    "sbert": {
        "all": (70.97, 76.53, 73.19, 79.09, 74.30, 76.98, 72.91), "wmean": (66.35, 73.76, 73.88, 77.33, 73.62, 76.98, 72.91),
        "reported": (70.97, 76.53, 73.19, 79.09, 74.30, 77.03, 72.91), "is": "all", "exact": 6},
    "whitening-nli": {
        "all": (57.83, 66.90, 60.89, 75.08, 71.30, 68.23, 63.73), "wmean": (61.43, 65.90, 65.96, 74.80, 73.10, 68.23, 63.73),
        "reported": (61.69, 65.70, 66.02, 75.11, 73.11, 68.19, 63.60), "is": "wmean", "exact": 0}}


def said(numbers):
    return ",".join(f"{number:.2f}" for number in numbers)


def bisected(score, low, high, target):
    """The knob between `low` and `high` at which `score(knob)`, in points, is `target`."""
    sign = 1 if score(high) > score(low) else -1
    for _ in range(60):
        middle = (low + high) / 2
        if abs(gap := score(middle) - target) < CLOSE:
            return middle
        low, high = (low, middle) if sign * gap > 0 else (middle, high)
    raise AssertionError(f"no knob gives {target}: {score(middle)} is the nearest")


def year(task, pooled, weighted):
    """similarity and gold float64 (n,), subset int64 (n,): all = `pooled`, wmean = `weighted`, in points, to 0.01."""
    generator, sizes = np.random.default_rng(list(task.encode())), SIZES[task]
    subset = np.repeat(np.arange(len(sizes)), sizes)
    tilt = np.array([-1.0, 0.0, 1.0])[subset]
    gold = np.round(np.clip(generator.normal(2.5 + 0.9 * tilt, 1.1), 0, 5), 1)
    noise = generator.normal(size=len(gold)) * np.array(SPREAD)[subset]

    def wmean(amount):
        made = gold + amount * noise
        parts = [spearmanr(made[subset == i], gold[subset == i]).statistic for i in range(len(sizes))]
        return 100 * np.average(parts, weights=sizes)

    made = gold + bisected(wmean, 0, 50, weighted) * noise

    def all_(offset):
        return 100 * spearmanr(made + offset * tilt, gold).statistic

    offsets = np.linspace(-12, 12, 49)
    reached = np.array([all_(offset) for offset in offsets])
    at = int(np.flatnonzero((reached[:-1] <= pooled) & (pooled <= reached[1:]))[0])
    made = made + bisected(all_, offsets[at], offsets[at + 1], pooled) * tilt
    return squeezed(made), gold, subset


def single(task, target, n=500):
    """similarity and gold float64 (n,) with the Spearman `target`, in points, to 0.01."""
    generator = np.random.default_rng(list(task.encode()))
    gold = np.round(generator.uniform(0, 5, n), 1)
    noise = generator.normal(size=n)
    amount = bisected(lambda knob: 100 * spearmanr(gold + knob * noise, gold).statistic, 0, 50, target)
    return squeezed(gold + amount * noise), gold


def squeezed(values):
    """The same ranks, bent: a Pearson that is not the Spearman."""
    return np.expm1((values - values.min()) / np.ptp(values) * 3) / np.expm1(3)


@cache
def observations(pooled, weighted):
    """Task -> Observations in which `sts:all` gives the seven scores `pooled` and `sts:wmean` those of `weighted`."""
    actual = {}
    for task, one, other in zip((*SIZES, "STS-B", "SICK-R"), pooled, weighted, strict=True):
        if task in SIZES:
            similarity, gold, subset = year(task, one, other)
            names = [f"part {i}" for i in range(len(SIZES[task]))]
        else:
            assert one == other  # one set without subsets has one score
            similarity, gold = single(task, one)
            subset, names = np.zeros(len(gold), dtype=np.int64), [task]
        pair = np.arange(len(gold), dtype=np.uint64) + np.uint64(10**6 * len(actual))
        arrays = {"similarity": similarity, "gold": gold, "subset": subset, "pair": pair}
        actual[task] = Observations(arrays, {"subsets": names})
    return actual


def write_run(folder, made, settings=None):
    """A run folder of the observations `made`, written as `stsbench eval` writes one."""

    class Made(StsProtocol):
        def observe(self, embed, data):
            return made[data.task]

    sets = {}
    for task, seen in made.items():
        n = len(seen.arrays["gold"])
        subsets = tuple(seen.names["subsets"][i] for i in seen.arrays["subset"])
        first, second = (tuple(f"{side} {i}" for i in range(n)) for side in ("one", "other"))
        sets[task] = PairSet(TASKS[task], task, "own", first, second, seen.arrays["gold"], subsets, known=False)
    result = Result(folder)
    encoder = CallableEncoder(lambda texts: np.ones((len(texts), 1)), name=f"python:made_for_{folder.name}", fingerprint="1")
    measure(result, Embed(encoder), Made(settings or {"resamples": 0}), sets)
    assert not result.failures
    result.write()
    return result.folder


@cache
def _b2_runs(folder):
    return {name: write_run(folder / name, observations(row["all"], row["wmean"])) for name, row in B2.items()}


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """Name -> run folder whose observations score as that model of table B.2 did."""
    return _b2_runs(tmp_path_factory.getbasetemp() / "b2")
