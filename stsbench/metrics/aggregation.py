"""Averages: over the subsets of a year, in the three ways of papers (SimCSE, appendix B); over tasks as a sample; and over
prompts, with how much scores depend on these and an error over those who wrote them.

Scores of prompts are higher-is-better: negate those of which lower is. A prompt that was not run is NaN. Kostiuk and
Enevoldsen 2026 (arXiv 2605.22544) vary prompts; how their scores are summed up here is stated at each function.
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
OF_PARTS = ("mean", "wmean")  # those that average the scores of parts
FEWEST_ITEMS = 50  # a part that one may rank by: with fewer items a correlation of .8 is known to +-.12 or worse
Floats = NDArray[np.float64]
FEWEST_TASKS = 3
_CLOSE, _SURE = 1.0, 0.7  # points, and a share: docs/findings/statistics.md


def combine(scores: Sequence[NDArray[np.float64] | float], sizes: Sequence[int], how: str) -> NDArray[np.float64]:
    """`mean`: unweighted mean of the subsets' scores; `wmean`: weighted by their numbers of scored pairs.

    scores: one number or one (resamples,) array per subset. `all` is not a combination of subset scores (it is one
    correlation over the concatenated pairs), so it is refused here.
    """
    if how == "mean":
        return np.asarray(np.mean(np.asarray(scores, np.float64), axis=0))
    if how == "wmean":
        return np.asarray(np.average(np.asarray(scores, np.float64), axis=0, weights=np.asarray(sizes, np.float64)))
    raise ValueError(f"'{how}' does not combine subset scores")


def small_parts(sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the parts of an average that have too few items to rank by: one score of theirs counts as much as one of
    thousands.

    sizes: part -> its items. Fewer than 50 are too few; the average keeps them, for it is the published one.

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
    """The mean of the scores of t tasks, or of their differences, where the tasks are a sample from those one cares about.

    tasks: t; value: the mean; sd: over the tasks, by t - 1; low, high: the mean's 95 % interval. All in the scores' unit.
    same_order: of a difference, the share of other draws of t tasks whose mean has its sign (`chance_of_same_order`); None
    for a score, and where there is no difference. why: why there is no interval, "" where there is one.
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

    The scores' variance over the tasks holds the noise of their items, too, so that nothing has to be known of it. The
    interval covers 95 % where the tasks' true scores are normal, however noisy the items are; a hierarchical bootstrap of so
    few tasks covers less or more (docs/findings/statistics.md). Raises StsbenchError for scores of another shape, NaN or
    infinite.

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
    # What is only rounding would have a sign in every draw.
    size = ROUNDING * max(float(np.abs(a).max()), float(np.abs(b).max()))
    differences = np.where(np.abs(a - b) <= size, 0.0, a - b)
    over = mean_over_tasks(differences, level)
    same = None if over.why or abs(over.value) <= size else chance_of_same_order(differences)
    return replace(over, same_order=same)


def chance_of_same_order(differences: ArrayLike, new: int | None = None) -> float:
    """Return how likely the mean difference of `new` other tasks, by default as many, has the sign of that of these (t,),
    0.5 to 1.

    The predictive probability of a normal sample whose mean and variance are unknown (Geisser 1993, Predictive Inference):
    Student's distribution function with t - 1 degrees of freedom at |mean| / (sd * sqrt(1 / t + 1 / new)). It supposes
    nothing of the difference beforehand. Over all pairs of 187 published models it came true as often as it says; between
    models less than a point apart less often, in 66 to 80 % of what it called 94 % (docs/findings/statistics.md). Raises
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
    """Return whether such a chance of the same order came true less often than it says: one of 70 % or more, between
    published models whose averages are less than a point apart (docs/findings/statistics.md).

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
