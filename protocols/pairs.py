"""The pairs protocol: binary classification of text pairs by a threshold on their similarity.

Like mteb's PairClassification and sentence-transformers' BinaryClassificationEvaluator it reports average precision and the
best F1 and accuracy over all thresholds, and also ROC AUC, the thresholds, and an interval of each, on a user's own
labelled pairs (`pairs:FILE`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator

from stsbench.data.own.sets import LABELLED, read_labelled_pairs
from stsbench.data.own.table import Form
from stsbench.data.sets.sentences import sentence_arrays, sentence_graph
from stsbench.data.sets.sets import DataSet, PairSet, numbered
from stsbench.encoders.cache.embed import Embed
from stsbench.errors import ScoreError
from stsbench.evaluation.protocol import Drawn, Influences, Observations, Protocol, item_numbers, other_subsets
from stsbench.evaluation.records import Record, ScoreRow
from stsbench.evaluation.schema import (
    REPEATED,
    SHARE,
    SHARED,
    Array,
    Metric,
    Names,
    Settings,
    SettingsModel,
    Similarity,
    Text,
    Whole,
    setting,
)
from stsbench.metrics.bootstrap import block_rows, distinct, interval, resample_blocks
from stsbench.metrics.matching import (
    CRITERIA,
    MatchingDraws,
    matching_draws,
    matching_influences,
    matching_scores,
    threshold_interval,
)
from stsbench.metrics.shared_sentences import Influence, stretched
from stsbench.metrics.similarity import fall_as_scores_rise

_THRESHOLD = Metric("neither", 1, 4, shows_interval=True)
# --set reads 1 as a number, but labels are texts.
Label = Annotated[Text, BeforeValidator(lambda label: str(label) if type(label) in (int, float) else label)]
_SCORES = {"ap": "ap", "auc": "auc", "f1": "f1", "accuracy": "accuracy"}  # metric -> attribute of Matching, MatchingDraws


class PairsSettings(Settings):
    similarity: Similarity = setting(
        "cosine", "of the two vectors; distances are negated", "mteb, PairClassification: the cosine's scores lead"
    )
    positive: Label | None = setting(
        None, "the label of pairs that match, where labels are names; null: 1, true or yes", "our choice"
    )
    columns: Text | None = setting(
        None, "which columns of the file hold what: sentence1=q1,sentence2=q2,label=same; null: by their names",
        "our choice", by="--columns",
    )
    resamples: Whole = setting(1000, "bootstrap resamples of each interval; 0: no intervals", "our choice")
    seed: Whole = setting(0, "of the bootstrap", "our choice")


class FileSettings(PairsSettings):
    file: Text = setting(..., "the name of the user's file of labelled pairs", "our choice", by="--protocol pairs:FILE")


class PairsProtocol(Protocol):
    """Similarities of pairs that match or do not; nothing is trained, the thresholds are chosen on the pairs themselves."""

    Settings: ClassVar[SettingsModel] = PairsSettings
    name: ClassVar[str] = "pairs"
    version: ClassVar[int] = 1
    metrics: ClassVar[Mapping[str, Metric]] = {
        "ap": Metric(range=SHARE.range, title="AP"), "auc": Metric(range=SHARE.range, title="ROC AUC"),
        "f1": Metric(range=SHARE.range, title="best F1"), "accuracy": Metric(range=SHARE.range, title="best accuracy"),
        "f1-threshold": _THRESHOLD, "accuracy-threshold": _THRESHOLD,
    }
    arrays: ClassVar[Mapping[str, Array]] = {
        "similarity": Array("float", rounded=True, per_item=True), "label": Array("int", shared=True),
        "subset": Array("int", shared=True), **REPEATED, **SHARED,
    }
    names: ClassVar[Mapping[str, Names]] = {"subsets": Names(shared=True)}
    resampling: ClassVar[str] = "pairs that share a sentence count as dependent"
    title: ClassVar[str] = "Pairs"
    about: ClassVar[str] = (
        "Does the similarity tell pairs that match from those that do not? Thresholds are chosen on the pairs themselves."
    )
    lead: str = "ap"
    text_type: ClassVar[str] = "PairClassification"
    hub_task: ClassVar[str] = "sentence-similarity"
    position: ClassVar[int] = 4
    in_all: ClassVar[tuple[str, ...]] = ()
    metrics_across: ClassVar[bool] = True
    cosmetic: ClassVar[frozenset[str]] = frozenset({"resamples", "seed", "file", "columns", "positive"})
    path_setting: ClassVar[str] = "file"
    PathSettings: ClassVar[SettingsModel | None] = FileSettings
    form: ClassVar[Form | None] = LABELLED

    def tasks(self) -> dict[str, str]:
        return self.user_tasks

    def load(self, set_id: str) -> DataSet | None:
        if self.user_path is None:
            return None
        return read_labelled_pairs(self.user_path, self.settings["columns"] or "", self.settings["positive"] or "")

    def observe(self, embed: Embed, data: PairSet) -> Observations:
        """Return similarity float64 (n,), label int64 (n,), 1 for a match, subset int64 (n,) indexing the names of
        `subsets`."""
        order, subset = numbered(data.subsets)
        similarity = embed.similarity(data.first, data.second, self.settings["similarity"])
        arrays = {"similarity": similarity, "label": data.gold.astype(np.int64), "subset": subset}
        names = {"subsets": order}
        if fall_as_scores_rise(similarity, arrays["label"]):
            names["notes"] = ["pairs that match are less similar than the others: does the other label mean a match? --set "
                              "pairs.positive names it"]
        return Observations(arrays | sentence_arrays(data.first, data.second), names)

    def contradiction(self, observations: Observations, record: Record) -> str:
        return other_subsets(observations, record)

    def score(self, observations: Observations, data_id: str, task: str) -> list[ScoreRow]:
        subset, names = observations.arrays["subset"], observations.names["subsets"]
        rows = self._rows(observations, slice(None), data_id, task, None)
        for i, name in enumerate(names) if len(names) > 1 else ():
            rows += self._rows(observations, subset == i, data_id, task, name)
        return rows

    def _rows(
        self, observations: Observations, some: Any, data_id: str, task: str, subset: str | None
    ) -> list[ScoreRow]:
        similarity, label = observations.arrays["similarity"][some], observations.arrays["label"][some]
        try:
            scores = matching_scores(similarity, label)
        except ScoreError as error:
            raise ScoreError(f"{task}{'' if subset is None else f', subset {subset}'}: {error}") from error
        draws = self._draws(observations, some, subset, data_id, self.settings["resamples"], self.settings["seed"])
        n = distinct(_items(observations)[some])
        stretch = {metric: one.stretch for metric, one in _influences(observations, some, subset).items()}

        rows = []
        for metric, attribute in _SCORES.items():
            value = getattr(scores, attribute)
            ends = interval(stretched(getattr(draws, attribute), value, stretch.get(metric, 1.0)))
            bounds = ends and (100 * max(0.0, ends[0]), 100 * min(1.0, ends[1]))
            rows.append(self.row(task, metric, 100 * value, n, bounds, subset=subset))
        for name in CRITERIA:
            value = getattr(scores, f"{name}_threshold")
            shifts = draws.shifts.get(name)
            # A threshold is an argmax with cube-root convergence: its scale is that of the noise to the power of 2/3.
            ends = None if shifts is None else threshold_interval(value, shifts * stretch.get(name, 1.0) ** (2 / 3))
            if ends and self.settings["similarity"] == "cosine":  # cosines lie in [-1, 1]
                ends = max(-1.0, ends[0]), min(1.0, ends[1])
            rows.append(self.row(task, f"{name}-threshold", value, n, ends, subset=subset))
        return rows

    @staticmethod
    def _draws(
        observations: Observations, some: Any, subset: str | None, data_id: str, resamples: int, seed: int
    ) -> MatchingDraws:
        """Return the draws of these pairs, cached in the observations, as intervals and comparisons both use them."""
        key = ("matching", subset, resamples, seed, data_id)
        if key not in observations.memo:
            similarity, label = observations.arrays["similarity"][some], observations.arrays["label"][some]
            n, item = len(label), _items(observations)[some]
            blocks = resample_blocks(n, resamples, (seed, *data_id.encode()), block_rows(n), item)
            observations.memo[key] = matching_draws(similarity, label, blocks, distinct(item))
        drawn: MatchingDraws = observations.memo[key]
        return drawn

    def draws(self, observations: Observations, data_id: str, resamples: int, seed: int) -> Drawn:
        """Redraw pairs one by one, whatever their label; `influences` account for pairs that share a sentence."""
        if not resamples:
            return {}
        drawn = self._draws(observations, slice(None), None, data_id, resamples, seed)
        return {(None, None, metric): 100 * getattr(drawn, attribute) for metric, attribute in _SCORES.items()}

    def influences(self, observations: Observations) -> Influences:
        influences = _influences(observations, slice(None), None)
        return {(None, None, metric): replace(one, score=100 * one.score, values=100 * one.values)
                for metric, one in influences.items()}


def _influences(observations: Observations, some: Any, subset: str | None) -> dict[str, Influence]:
    """Return metric -> the pairs' influence on it, unit 1, computed once; {} where the pairs are independent."""
    key = ("influences", subset)
    if key not in observations.memo:
        graph, influences = sentence_graph(observations.arrays, some), {}
        if graph is not None:
            similarity, label = observations.arrays["similarity"][some], observations.arrays["label"][some]
            scores = matching_scores(similarity, label)
            influences = {metric: Influence(getattr(scores, metric), values, graph)
                          for metric, values in matching_influences(similarity, label).items()}
        observations.memo[key] = influences
    computed: dict[str, Influence] = observations.memo[key]
    return computed


def _items(observations: Observations) -> NDArray[np.int64]:
    return item_numbers(observations, len(observations.arrays["label"]))
