"""The triplets protocol: the share of triplets whose anchor is nearer to the positive than to the negative.

It is the accuracy of sentence-transformers' TripletEvaluator, on a user's own file (`triplets:FILE`). In a row with several
negatives the positive must be nearer than all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from stsbench.data.own.sets import TRIPLETS, read_triplets
from stsbench.data.own.table import Form
from stsbench.data.sets.sentences import sentence_arrays, sentence_graph
from stsbench.data.sets.sets import DataSet, TripletSet, numbered
from stsbench.encoders.cache.embed import Embed
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
from stsbench.metrics.bootstrap import block_rows, distinct, resample_blocks, share_interval
from stsbench.metrics.shared_sentences import Influence, SharedSentences


class TripletsSettings(Settings):
    similarity: Similarity = setting(
        "cosine", "of two vectors; distances are negated", "sentence-transformers, TripletEvaluator"
    )
    columns: Text | None = setting(
        None, "which columns of the file hold what: anchor=a,positive=p,negative=n; null: by their names", "our choice",
        by="--columns",
    )
    resamples: Whole = setting(1000, "bootstrap resamples of a comparison of two encoders", "our choice")
    seed: Whole = setting(0, "of the bootstrap", "our choice")


class FileSettings(TripletsSettings):
    file: Text = setting(..., "the name of the user's file of triplets", "our choice", by="--protocol triplets:FILE")


class TripletsProtocol(Protocol):
    """The share of triplets whose anchor is more similar to the positive than to each negative; equal is not more."""

    Settings: ClassVar[SettingsModel] = TripletsSettings
    name: ClassVar[str] = "triplets"
    version: ClassVar[int] = 1
    metrics: ClassVar[Mapping[str, Metric]] = {"accuracy": SHARE}
    arrays: ClassVar[Mapping[str, Array]] = {
        "positive": Array("float", rounded=True, per_item=True), "negative": Array("float", rounded=True, per_item=True),
        "subset": Array("int", shared=True), **REPEATED, **SHARED,
    }
    names: ClassVar[Mapping[str, Names]] = {"subsets": Names(shared=True)}
    resampling: ClassVar[str] = "triplets that share a sentence count as dependent"
    title: ClassVar[str] = "Triplets"
    about: ClassVar[str] = "Is a text nearer to its positive than to its negative? Nothing is trained."
    lead: str = "accuracy"
    text_type: ClassVar[str] = "PairClassification"
    hub_task: ClassVar[str] = "sentence-similarity"
    position: ClassVar[int] = 4
    in_all: ClassVar[tuple[str, ...]] = ()
    cosmetic: ClassVar[frozenset[str]] = frozenset({"resamples", "seed", "file", "columns"})
    path_setting: ClassVar[str] = "file"
    PathSettings: ClassVar[SettingsModel | None] = FileSettings
    form: ClassVar[Form | None] = TRIPLETS

    def tasks(self) -> dict[str, str]:
        return self.user_tasks

    def load(self, set_id: str) -> DataSet | None:
        if self.user_path is None:
            return None
        return read_triplets(self.user_path, self.settings["columns"] or "")

    def observe(self, embed: Embed, data: TripletSet) -> Observations:
        """Return positive, negative float64 (n,), the similarity of the positive and of the nearest negative to the anchor;
        subset int64 (n,) indexing `subsets`."""
        order, subset = numbered(data.subsets)
        measure = self.settings["similarity"]
        negative = embed.similarity(data.anchor, data.negative, measure)
        row = np.repeat(np.arange(len(data)), list(map(len, data.further)))
        if len(row):  # of several negatives the nearest counts
            others = embed.similarity([data.anchor[at] for at in row], [*chain(*data.further)], measure)
            np.maximum.at(negative, row, others)
        arrays = {"positive": embed.similarity(data.anchor, data.positive, measure), "negative": negative, "subset": subset}
        return Observations(arrays | sentence_arrays(data.anchor, data.positive, data.negative), {"subsets": order})

    def contradiction(self, observations: Observations, record: Record) -> str:
        return other_subsets(observations, record)

    def score(self, observations: Observations, data_id: str, task: str) -> list[ScoreRow]:
        right, subset = _right(observations), observations.arrays["subset"]
        every, names = item_numbers(observations, len(right)), observations.names["subsets"]
        parts: dict[str | None, Any] = {None: slice(None)}
        if len(names) > 1:
            parts |= {name: subset == i for i, name in enumerate(names)}
        rows = []
        for name, some in parts.items():
            hits, item = right[some], every[some]
            influence = _influence(hits, sentence_graph(observations.arrays, some))
            low, high = share_interval(hits, item, influence.stretch if influence else 1.0)
            value, bounds = 100 * float(hits.mean()), (100 * low, 100 * high)
            rows.append(self.row(task, "accuracy", value, distinct(item), bounds, subset=name))
        return rows

    def influences(self, observations: Observations) -> Influences:
        influence = _influence(_right(observations), sentence_graph(observations.arrays))
        return {(None, None, "accuracy"): influence} if influence else {}

    def draws(self, observations: Observations, data_id: str, resamples: int, seed: int) -> Drawn:
        """Redraw triplets one by one; `influences` account for triplets that share a sentence."""
        right = _right(observations).astype(np.float64)
        if not resamples:
            return {}
        n, item = len(right), item_numbers(observations, len(right))
        blocks = resample_blocks(n, resamples, (seed, *data_id.encode()), block_rows(n), item)
        shares = [100 * (counts @ right) / counts.sum(axis=1) for counts in blocks]
        return {(None, None, "accuracy"): np.concatenate(shares)}


def _influence(hits: NDArray[np.bool_], graph: SharedSentences | None) -> Influence | None:
    """Return each triplet's influence on the share of hits, x 100; None where triplets are independent."""
    share = float(hits.mean())
    return None if graph is None else Influence(100 * share, 100 * (hits.astype(np.float64) - share), graph)


def _right(observations: Observations) -> NDArray[np.bool_]:
    return np.asarray(observations.arrays["positive"] > observations.arrays["negative"])
