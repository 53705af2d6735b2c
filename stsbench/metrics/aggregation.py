"""Averages of scores: over the subsets of a year, in the three ways of papers (SimCSE, appendix B); over tasks, taken as a
sample; and over prompts, with their spread and a standard error over the prompts' authors.

Scores of prompts are higher-is-better: negate those where lower is better. A prompt that was not run is NaN. Kostiuk and
Enevoldsen 2026 (arXiv 2605.22544) vary prompts; each function here states how it summarises their scores.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stsbench.errors import StsbenchError
from stsbench.metrics.bootstrap import ROUNDING, interval, resample_counts
from stsbench.metrics.paired import LEVEL

AGGREGATIONS = ("all", "mean", "wmean")
OF_PARTS = ("mean", "wmean")  # aggregations that average the scores of parts
FEWEST_ITEMS = 50  # of a part to rank by: with fewer, the 95 % interval of a correlation of .8 is +-.12 or wider
Floats = NDArray[np.float64]
FEWEST_TASKS = 3
_CLOSE, _SURE = 1.0, 0.7  # the points and the chance of `overstated` (docs/findings/statistics.md)


def combine(scores: Sequence[NDArray[np.float64] | float], sizes: Sequence[int], how: str) -> NDArray[np.float64]:
    """Return the mean of subsets' scores, a number or (resamples,), unweighted (`mean`) or weighted by `sizes` (`wmean`).

    scores: one number or one (resamples,) array per subset; sizes: numbers of scored pairs. Raises ValueError for `all`,
    which is not a combination of subset scores, but one correlation over the concatenated pairs.
    """
    if how == "mean":
        return np.asarray(np.mean(np.asarray(scores, np.float64), axis=0))
    if how == "wmean":
        return np.asarray(np.average(np.asarray(scores, np.float64), axis=0, weights=np.asarray(sizes, np.float64)))
    raise ValueError(f"'{how}' does not combine subset scores")


def small_parts(sizes: Mapping[str, int]) -> dict[str, int]:
    """Return part -> number of items, of the parts of an average with too few items (under 50) to rank by.

    sizes: part -> number of items. In an unweighted average, the score of a small part counts as much as that of a large
    one; the average still includes it, as published averages do.

    >>> from stsbench.metrics.aggregation import small_parts
    >>> small_parts({"en": 197, "fr-pl": 8})
    {'fr-pl': 8}
    """
    return {part: n for part, n in sizes.items() if n < FEWEST_ITEMS}


def average_of_printed(scores: Sequence[float]) -> float:
    """Return the average as papers print it: of the scores rounded to two decimals, rounded again (SentEval, SimCSE)."""
    return round(sum(round(score, 2) for score in scores) / len(scores), 2)


@dataclass(frozen=True)
class OverTasks:
    """The mean of scores, or of differences between scores, over t tasks that are a sample from all tasks of their kind.

    tasks: t; value: the mean; sd: over the tasks, by t - 1; low, high: the mean's 95 % interval. All in the scores' unit.
    same_order: for a difference, the probability that the mean over t other tasks has its sign (`chance_of_same_order`);
    None for a score, and where the difference is 0. why: the reason why there is no interval, "" where there is one.
    """

    tasks: int
    value: float
    sd: float | None = None
    low: float | None = None
    high: float | None = None
    same_order: float | None = None
    why: str = ""


def mean_over_tasks(scores: ArrayLike, level: float = LEVEL) -> OverTasks:
    """Return the mean of scores (t,), one a task, with Student's interval at t - 1 degrees of freedom.

    The scores' variance over the tasks includes the noise of their items, so that it need not be known. The interval covers
    95 % where the tasks' true scores are normal, however noisy the items are; a hierarchical bootstrap of so few tasks
    covers less or more (docs/findings/statistics.md). Raises StsbenchError for scores of another shape, and for NaN or
    infinite scores.

    >>> import numpy as np
    >>> from stsbench.metrics.aggregation import mean_over_tasks
    >>> over = mean_over_tasks(np.array([70.0, 74, 72, 80]))
    >>> over.value, round(over.low, 2), round(over.high, 2)
    (74.0, 67.13, 80.87)
    """
    scores = _checked(scores)
    count, value = len(scores), float(np.mean(scores))
    if count < FEWEST_TASKS:
        tasks = "task" if count == 1 else "tasks"
        return OverTasks(count, value, why=f"{count} {tasks} cannot show how much tasks differ: {FEWEST_TASKS} are needed")
    from scipy.special import stdtrit

    sd = float(np.std(scores, ddof=1))
    half = float(stdtrit(count - 1, (1 + level) / 2)) * sd / count**0.5
    return OverTasks(count, value, sd, value - half, value + half)


def difference_over_tasks(a: ArrayLike, b: ArrayLike, level: float = LEVEL) -> OverTasks:
    """Return the mean of a less b, scores (t,) of two encoders on the same tasks in the same order, paired by task.

    Raises StsbenchError as `mean_over_tasks` does.

    >>> import numpy as np
    >>> from stsbench.metrics.aggregation import difference_over_tasks
    >>> over = difference_over_tasks(np.array([70.0, 74, 72, 80]), np.array([69.0, 70, 73, 76]))
    >>> over.value, round(over.low, 2), round(over.high, 2), round(over.same_order, 2)
    (2.0, -1.9, 5.9, 0.83)
    """
    a, b = _checked(a), _checked(b)
    if len(a) != len(b):
        raise StsbenchError(f"the scores are of {len(a)} and of {len(b)} tasks: a difference needs the same ones")
    # A difference that is only rounding would keep its sign in every draw and look certain.
    size = ROUNDING * max(float(np.abs(a).max()), float(np.abs(b).max()))
    differences = np.where(np.abs(a - b) <= size, 0.0, a - b)
    over = mean_over_tasks(differences, level)
    same = None if over.why or abs(over.value) <= size else chance_of_same_order(differences)
    return replace(over, same_order=same)


def chance_of_same_order(differences: ArrayLike, new: int | None = None) -> float:
    """Return the probability, 0.5 to 1, that the mean difference over `new` other tasks (default: t) has the sign of the
    mean of `differences` (t,).

    The predictive probability of a normal sample whose mean and variance are unknown (Geisser 1993, Predictive Inference):
    Student's distribution function with t - 1 degrees of freedom at |mean| / (sd * sqrt(1 / t + 1 / new)), without prior
    knowledge of the difference. Over all pairs of 187 published models, orders held as often as it says; between models
    less than a point apart less often, in 66 to 80 % of what it called 94 % (docs/findings/statistics.md). Raises
    StsbenchError for fewer than 3 tasks, and where the mean is 0, which has no sign.

    >>> import numpy as np
    >>> from stsbench.metrics.aggregation import chance_of_same_order
    >>> round(chance_of_same_order(np.array([1.0, 4, -1, 4])), 3)
    0.834
    """
    differences = _checked(differences)
    count, mean = len(differences), abs(float(np.mean(differences)))
    if count < FEWEST_TASKS or not mean:
        raise StsbenchError(f"differences on {FEWEST_TASKS} tasks or more are needed, and a mean that is not 0")
    from scipy.special import stdtr

    scale = float(np.std(differences, ddof=1)) * (1 / count + 1 / (new or count)) ** 0.5
    return float(stdtr(count - 1, mean / scale)) if scale > 0 else 1.0


def overstated(points: float, same_order: float) -> bool:
    """Return whether a `chance_of_same_order` is likely too high: between published models less than a point apart on
    average, chances of 70 % or more held less often than they say (docs/findings/statistics.md).

    >>> from stsbench.metrics.aggregation import overstated
    >>> overstated(0.4, 0.93), overstated(0.4, 0.6), overstated(-3.2, 0.93)
    (True, False, False)
    """
    return abs(points) < _CLOSE and same_order >= _SURE


def _checked(scores: ArrayLike) -> Floats:
    scores = np.asarray(scores, dtype=np.float64)
    if scores.ndim != 1 or not len(scores) or not np.isfinite(scores).all():
        raise StsbenchError(f"one finite score a task is needed, not an array of shape {scores.shape}"
                            + (" with NaN or infinite ones" if scores.ndim == 1 and len(scores) else ""))
    return scores


@dataclass(frozen=True)
class Spread:
    """One model's scores on one set over n prompts, in the scores' unit; sd divides by n - 1 and is NaN for one prompt.

    default: the score with the prompt stored in the model, NaN where it is not known; percentile: the share of prompts with
    a lower score, 0 to 1, equal scores counting half; headroom: max - default.
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
    """Return the `Spread` of (p,) scores, NaN for a prompt that was not run. Raises StsbenchError where none was run."""
    scores = measured_scores(scores)
    low, lower, median, upper, high = (float(value) for value in np.quantile(scores, [0, 0.25, 0.5, 0.75, 1]))
    below = float((scores < default).mean() + (scores == default).mean() / 2) if np.isfinite(default) else np.nan
    sd = float(scores.std(ddof=1)) if len(scores) > 1 else np.nan
    return Spread(
        len(scores), float(scores.mean()), sd, low, lower, median, upper, high, float(default), below, high - default
    )


@dataclass(frozen=True)
class MeanOverPrompts:
    """A mean over prompts, its standard error over other prompts of the kind, and its 95 % interval, None for fewer than two
    clusters or too few resamples."""

    mean: float
    error: float
    interval: tuple[float, float] | None


def mean_over_prompts(
    scores: Floats, clusters: Sequence[Hashable] | None = None, resamples: int = 1000, seed: tuple[int, ...] = (0,)
) -> MeanOverPrompts:
    """Return the mean of (p,) scores, with a bootstrap over clusters of prompts, as prompts of one author are alike.

    clusters: (p,) labels, e.g. of generator and context; by default each prompt is a cluster. Clusters are drawn whole, with
    replacement, and the mean is over all prompts drawn. The error is NaN for one cluster. Raises StsbenchError where labels
    and scores differ in number, and where no prompt was run.
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
    """Return those of (p,) scores that are finite, of the prompts that were run. Raises StsbenchError where none was."""
    run: Floats = np.asarray(scores, dtype=np.float64)
    run = run[np.isfinite(run)]
    if not len(run):
        raise StsbenchError("no prompt was run: there is no score")
    return run
