"""How much scores depend on the prompt: their distribution, and their mean with an error over those who wrote prompts.

Scores are higher-is-better: negate those of which lower is. A prompt that was not run is NaN. Kostiuk and Enevoldsen 2026
(arXiv 2605.22544) vary prompts; how their scores are summed up here is stated at each function.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stsbench.errors import StsbenchError
from stsbench.metrics.bootstrap import interval, resample_counts

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Spread:
    """One model's scores on one set over n prompts, in the scores' unit; sd divides by n - 1 and is NaN for one prompt.

    default: the score with the prompt that the model's author stores, NaN where it is not known; percentile: the share of
    prompts below it, those equal to it counted half, 0 to 1; headroom: max - default.
    """

    n: int
    mean: float
    sd: float
    min: float
    lower: float  # the quartiles, by linear interpolation
    median: float
    upper: float
    max: float
    default: float
    percentile: float
    headroom: float


def spread(scores: Floats, default: float = np.nan) -> Spread:
    """Of (p,) scores. StsbenchError: there is none."""
    scores = measured_scores(scores)
    low, lower, median, upper, high = (float(value) for value in np.quantile(scores, [0, 0.25, 0.5, 0.75, 1]))
    below = float((scores < default).mean() + (scores == default).mean() / 2) if np.isfinite(default) else np.nan
    sd = float(scores.std(ddof=1)) if len(scores) > 1 else np.nan
    return Spread(
        len(scores), float(scores.mean()), sd, low, lower, median, upper, high, float(default), below, high - default
    )


@dataclass(frozen=True)
class MeanOverPrompts:
    """A mean over prompts, how far it may be off where other prompts had been written (standard error), and its 95 %
    interval, None where fewer than two clusters or too few resamples tell none."""

    mean: float
    error: float
    interval: tuple[float, float] | None


def mean_over_prompts(
    scores: Floats, clusters: Sequence[Hashable] | None = None, resamples: int = 1000, seed: tuple[int, ...] = (0,)
) -> MeanOverPrompts:
    """Return the mean of (p,) scores, with a bootstrap over clusters: those who wrote prompts wrote several, and these are
    alike.

    clusters: (p,) labels, e.g. of generator and context; by default each prompt is one. Clusters are drawn whole, with
    replacement, and the mean is over all prompts drawn. The error is NaN for one cluster.
    """
    labels = list(range(len(scores)) if clusters is None else clusters)
    if len(labels) != len(scores):
        raise StsbenchError(f"{len(labels)} clusters for {len(scores)} prompts: each prompt needs one")
    there = np.isfinite(np.asarray(scores, dtype=np.float64))
    kept, names = measured_scores(scores), [label for label, run in zip(labels, there, strict=True) if run]
    at = {name: number for number, name in enumerate(dict.fromkeys(names))}
    which = np.array([at[name] for name in names])
    counts = resample_counts(len(at), resamples, seed)
    sums, sizes = np.bincount(which, kept, len(at)), np.bincount(which, minlength=len(at))
    draws = (counts @ sums) / (counts @ sizes)
    told = len(at) > 1 and resamples > 1
    error = float(draws.std(ddof=1)) if told else np.nan
    return MeanOverPrompts(float(kept.mean()), error, interval(draws) if told else None)


def measured_scores(scores: Floats) -> Floats:
    """Return the scores of prompts that were run, of (p,). Raises StsbenchError where there is none."""
    run: Floats = np.asarray(scores, dtype=np.float64)
    run = run[np.isfinite(run)]
    if not len(run):
        raise StsbenchError("no prompt was run: there is no score")
    return run
