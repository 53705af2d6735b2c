"""The protocol of other tools' scores of single items: their means, or correlations of predictions with labels."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from stsbench.encoders.cache.embed import Embed
from stsbench.errors import ScoreError
from stsbench.evaluation.protocol import Drawn, Influences, Observations, Protocol, item_numbers
from stsbench.evaluation.records import ScoreRow
from stsbench.evaluation.schema import (
    CORRELATION,
    REPEATED,
    Array,
    Metric,
    Names,
    Settings,
    SettingsModel,
    Text,
    Whole,
    setting,
)
from stsbench.metrics.bootstrap import (
    BootstrapCorrelation,
    block_rows,
    distinct,
    fisher_interval,
    interval,
    resample_blocks,
    share_interval,
)
from stsbench.metrics.shared_sentences import (
    INFLUENCE,
    Dependence,
    Influence,
    SharedSentences,
    stretched,
)
from stsbench.metrics.similarity import correlation

CORRELATIONS = ("spearman", "pearson")
FEW = 50  # items below which a test of a difference uses Student's t
SENTENCES = ("first", "second")  # names of the arrays with the numbers of each item's two texts
MEAN = "mean"  # metric for numbers in a unit of their own; proportions keep the names of their tool
NAME = "item-scores"


class FewItems:
    """Few independent items, for which a bootstrap of a mean is too narrow: its deviations are stretched to Student's t."""

    def __init__(self, items: int) -> None:
        self._items = items

    def stretch(self, values: NDArray[np.float64], weight: NDArray[np.float64] | None = None) -> float:
        """Return sqrt(m / (m - 1)) times the ratio of Student's quantile to the normal one, for m items."""
        from scipy.special import ndtri, stdtrit

        many = self._items
        return float(np.sqrt(many / (many - 1)) * stdtrit(many - 1, 0.975) / ndtri(0.975)) if many > 1 else inf


class ItemSettings(Settings):
    score: Text = setting("score", "what the numbers are, as the column or the tool calls them", "our choice")
    resamples: Whole = setting(1000, "bootstrap resamples", "our choice")
    seed: Whole = setting(0, "of the bootstrap", "our choice")


class ItemScoresProtocol(Protocol):
    """Another tool's scores of single items, as read by `stsbench import` and `stsbench compare FILE FILE`."""

    Settings: ClassVar[SettingsModel] = ItemSettings
    name: ClassVar[str] = NAME
    version: ClassVar[int] = 1
    metrics: ClassVar[Mapping[str, Metric]] = {
        **dict.fromkeys(CORRELATIONS, CORRELATION), MEAN: Metric(scale=1, digits=4), "*": Metric(),
    }
    arrays: ClassVar[Mapping[str, Array]] = {
        "values": Array("float", "kn"), "gold": Array("float", optional=True, shared=True), **REPEATED,
        **dict.fromkeys(SENTENCES, Array("int", optional=True, shared=True)),
    }
    names: ClassVar[Mapping[str, Names]] = {"metrics": Names()}
    title: ClassVar[str] = "Item scores"
    about: ClassVar[str] = "those of scores that another tool wrote (stsbench import)"
    position: ClassVar[int] = 90
    in_all: ClassVar[tuple[str, ...]] = ()
    cosmetic: ClassVar[frozenset[str]] = frozenset({"resamples", "seed"})

    def tasks(self) -> dict[str, str]:
        return {}

    def observe(self, embed: Embed, data: Any) -> Observations:
        raise ScoreError("the scores are another tool's: stsbench import FILE reads them")

    def score(self, observations: Observations, data_id: str, task: str) -> list[ScoreRow]:
        """Return a row for each metric: means have Student's interval over the items, proportions Wilson's, and correlations
        a bootstrap interval on Fisher's scale."""
        values = observations.arrays["values"]
        item = item_numbers(observations, values.shape[1])
        drawn = self.draws(observations, data_id, self.settings["resamples"], self.settings["seed"])
        influences = self.influences(observations)
        rows = []
        for number, (metric, value) in enumerate(self._values(observations).items()):
            key, scale = (None, None, metric), self.metric(metric).scale
            draws, stretch = drawn.get(key, np.zeros(0)) / scale, influences[key].stretch if key in influences else 1.0
            bounds: tuple[float | None, float | None]
            if metric in CORRELATIONS:
                bounds = fisher_interval(draws, value, distinct(item), stretch=stretch) or (None, None)
            elif "first" in observations.arrays:
                bounds = interval(stretched(draws, value, stretch)) or (None, None)
            else:
                bounds = mean_interval(values[number], item)
            low, high = (None if bound is None else scale * bound for bound in bounds)
            rows.append(ScoreRow(protocol=self.label, task=task, metric=metric, value=scale * value, low=low, high=high,
                                 n=distinct(item)))
        return rows

    def _values(self, observations: Observations) -> dict[str, float]:
        """Return metric -> score, not yet multiplied by the metric's scale."""
        values, gold = observations.arrays["values"], observations.arrays.get("gold")
        metrics, items = observations.names["metrics"], distinct(item_numbers(observations, values.shape[1]))
        if gold is not None:
            return {metric: correlation(values[0], gold, metric, items) for metric in metrics}
        return dict(zip(metrics, values.mean(axis=1).tolist(), strict=True))

    def draws(self, observations: Observations, data_id: str, resamples: int, seed: int) -> Drawn:
        """Return bootstrap draws of each metric, with items of one cluster drawn together."""
        values, gold = observations.arrays["values"], observations.arrays.get("gold")
        metrics, n = observations.names["metrics"], values.shape[1]
        if not resamples:
            return {}
        score = {metric: BootstrapCorrelation(values, gold, metric) for metric in metrics if gold is not None}
        parts: dict[str, list[NDArray[np.float64]]] = {metric: [] for metric in metrics}
        item = item_numbers(observations, n)
        for counts in resample_blocks(n, resamples, (seed, *data_id.encode()), block_rows(n), item):
            for number, metric in enumerate(metrics):
                parts[metric].append(score[metric](counts)[0] if score else counts @ values[number] / counts.sum(axis=1))
        return {(None, None, metric): self.metric(metric).scale * np.concatenate(its) for metric, its in parts.items()}

    def influences(self, observations: Observations) -> Influences:
        """Return influences by which the test of a difference uses Student's t for few items or clusters, and is wider where
        items share sentences; {} for many independent items."""
        values, arrays = observations.arrays["values"], observations.arrays
        graph: Dependence | None = None
        if "first" in arrays:
            shared = SharedSentences(arrays["first"], arrays["second"])
            graph = shared if shared.dependent else None
        if graph is None and (many := distinct(item_numbers(observations, values.shape[1]))) < FEW:
            graph = FewItems(many)
        if graph is None:
            return {}
        made: Influences = {}
        for number, (metric, value) in enumerate(self._values(observations).items()):
            scale = self.metric(metric).scale
            of_items = values[number] - value if metric not in CORRELATIONS else (
                INFLUENCE[metric](values[0], arrays["gold"])[1])
            made[None, None, metric] = Influence(scale * value, scale * of_items, graph)
        return made


def mean_interval(values: NDArray[np.float64], item: NDArray[np.int64]) -> tuple[float | None, float | None]:
    """Return the 95 % interval of the mean of (n,) values, of which rows of one item are dependent: Wilson's for independent
    values of 0 and 1, else Student's from the items' sums of deviations; (None, None) for one item or equal values."""
    from scipy.special import stdtrit

    if np.isin(values, (0.0, 1.0)).all() and distinct(item) == len(item):
        return share_interval(values == 1.0, item)
    sums = np.bincount(np.unique(item, return_inverse=True)[1], values - values.mean())
    many = len(sums)
    if many < 2 or np.ptp(values) == 0:
        return None, None
    reach = float(stdtrit(many - 1, 0.975) * np.sqrt(many / (many - 1) * np.sum(sums**2)) / len(values))
    return float(values.mean()) - reach, float(values.mean()) + reach
