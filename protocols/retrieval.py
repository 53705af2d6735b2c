"""The retrieval protocol: ranks of relevant texts among all texts of a corpus, by cosine.

As in DiffCSE (Chuang et al. 2022, table 10), each sentence of STS-B test's 97 pairs with gold 5 is a query for its partner
among the 2,758 test sentences. `retrieval:FOLDER` takes a user's own queries, corpus and relevance judgements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from stsbench.data.own.relevance import read_relevance
from stsbench.data.sets.sets import DataSet, PairSet, RetrievalSet
from stsbench.encoders.cache.embed import Embed
from stsbench.encoders.traits import TextTask
from stsbench.errors import ScoreError, StsbenchError
from stsbench.evaluation.protocol import Drawn, Observations, Protocol
from stsbench.evaluation.records import ScoreRow
from stsbench.evaluation.schema import SHARE, Array, Count, Metric, Settings, SettingsModel, SomeOf, Text, Whole, setting
from stsbench.metrics.bootstrap import distinct, interval, resample_counts
from stsbench.metrics.ranking import average_precision, hit, ndcg, precision, recall, reciprocal_rank, relevant_ranks

GOLD = 5.0  # gold score of pairs with the same meaning


class RetrievalSettings(Settings):
    duplicates: Literal["merge", "keep", "drop"] = setting(
        "merge", "equal sentences: merge, they are one text; keep, copies are distractors; drop, copies of the query do "
        "not count", "our choice: it fits the figures of DiffCSE (Chuang et al. 2022), table 10",
    )
    ties: Literal["worst", "mid"] = setting(
        "worst", "the rank of a relevant text among texts of equal cosine: behind them, or in their middle", "our choice"
    )
    ks: SomeOf[Count] = setting([1, 5, 10], "the ranks that recall is reported at", "DiffCSE, table 10")
    resamples: Whole = setting(1000, "bootstrap resamples of each interval; 0: no intervals", "our choice")
    seed: Whole = setting(0, "of the bootstrap", "our choice")


class FolderSettings(RetrievalSettings):
    folder: Text = setting(
        ..., "the name of the user's folder of queries, corpus and relevance judgements", "our choice",
        by="--protocol retrieval:FOLDER",
    )


class RetrievalProtocol(Protocol):
    """Ranks of the relevant texts by cosine. A query itself is never counted."""

    Settings: ClassVar[SettingsModel] = RetrievalSettings
    name: ClassVar[str] = "retrieval"
    version: ClassVar[int] = 1
    metrics: ClassVar[Mapping[str, Metric]] = {
        "recall": SHARE, "hit": SHARE, "mrr": Metric(range=SHARE.range, title="MRR"),
        "ndcg": Metric(range=SHARE.range, title="nDCG"), "precision": SHARE, "map": Metric(range=SHARE.range, title="MAP"),
    }
    arrays: ClassVar[Mapping[str, Array]] = {
        "rank": Array("float", "p"), "gain": Array("float", "p", optional=True, shared=True),
        "query": Array("int", "p", shared=("duplicates",)), "group": Array("int", "q", shared=("duplicates",)),
        "corpus": Array("int", "1", shared=("duplicates",)),
    }
    title: ClassVar[str] = "Retrieval"
    about: ClassVar[str] = (
        "Is what belongs to a sentence among its nearest neighbours? On STS-B: the 97 test pairs rated highest."
    )
    lead: str = "recall@1"
    text_type: ClassVar[str] = "Retrieval"
    hub_task: ClassVar[str] = "text-retrieval"
    position: ClassVar[int] = 3
    metrics_across: ClassVar[bool] = True
    cosmetic: ClassVar[frozenset[str]] = frozenset({"ks", "resamples", "seed", "folder"})
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {"keep": {"duplicates": "keep"}, "drop": {"duplicates": "drop"}}
    labels_variants: ClassVar[bool] = True
    path_setting: ClassVar[str] = "folder"
    PathSettings: ClassVar[SettingsModel | None] = FolderSettings

    def __init__(self, settings: Mapping[str, Any], label: str | None = None) -> None:
        super().__init__(settings, label)
        form = {} if self.user_path else self.variants.get(self.label.partition(":")[2], {})
        if (duplicates := self.settings["duplicates"]) != form.get("duplicates", duplicates):
            raise StsbenchError(f"retrieval: duplicates must be {form['duplicates']} in {self.label}, not {duplicates!r}")
        if self.user_path:  # recall@1 can be no more than 1 / 8 where eight texts are relevant
            ks = self.settings["ks"]
            self.lead = f"ndcg@{10 if 10 in ks else max(ks)}"
        if self.user_path and duplicates != "keep":
            raise StsbenchError(
                f"retrieval: duplicates must be keep, not {duplicates!r}: each id of your folder is another text"
            )

    @classmethod
    def variant(cls, word: str) -> dict[str, Any]:
        chosen = super().variant(word)
        return {**chosen, "duplicates": "keep"} if "folder" in chosen else chosen

    def tasks(self) -> dict[str, str]:
        return self.user_tasks or {"STS-B": "stsb/test"}

    def load(self, set_id: str) -> DataSet | None:
        return read_relevance(self.user_path) if self.user_path and set_id == f"own:{self.user_path}" else None

    def text_task(self, task: str, data: PairSet | RetrievalSet) -> TextTask:
        """Return the task, of type STS for pairs: both sentences get one prompt, as e5's card asks for paraphrases."""
        named = super().text_task(task, data)
        return replace(named, type="STS") if isinstance(data, PairSet) else named

    def texts_by_role(self, data: PairSet | RetrievalSet) -> Mapping[str | None, Sequence[str]]:
        return {None: data.texts} if isinstance(data, PairSet) else {"query": data.queries, "document": data.corpus}

    def observe(self, embed: Embed, data: PairSet | RetrievalSet) -> Observations:
        """Return, for each of m relevant texts, rank float64 (m,), infinite for a text outside the corpus, query int64 (m,)
        and, where not all grades are 1, gain float64 (m,); group int64 (q,), equal for queries that are redrawn together
        (the two of a pair, equal queries of a user's folder); corpus int64 (1,), its size."""
        if isinstance(data, PairSet):
            task = from_pairs(data, self.settings["duplicates"])
            group = np.tile(np.arange(len(task) // 2), 2)
        else:
            task, group = data, data.items
        hidden = task.hidden
        if self.settings["duplicates"] == "drop":
            copies = _positions(task.corpus)
            hidden = tuple(copies[text] for text in task.queries)
        queries = corpus = embed
        notes = list(task.notes)
        if not isinstance(data, PairSet):
            queries, corpus = embed.for_role("query"), embed.for_role("document")
            sides = {"queries": queries.spec.prefix, "documents": corpus.spec.prefix}
            cut = {"queries": queries.truncated(task.queries), "documents": corpus.truncated(task.corpus)}
            notes += [f"{side} are read behind the stored prompt {prompt!r}" for side, prompt in sides.items() if prompt]
            notes += [f"{int(cut[side].sum())} {side} were truncated behind their prompt"
                      for side, prompt in sides.items() if prompt and cut[side].any()]
        rank, query = relevant_ranks(
            queries(task.queries), corpus(task.corpus), task.relevant, hidden, ties=self.settings["ties"]
        )
        size = np.array([len(task.corpus)], dtype=np.int64)
        arrays = {"rank": rank, "query": query, "group": group, "corpus": size}
        if task.grades:
            arrays["gain"] = np.array([grade for grades in task.grades for grade in grades], dtype=np.float64)
        return Observations(arrays, {"notes": notes} if notes else {})

    def score(self, observations: Observations, data_id: str, task: str) -> list[ScoreRow]:
        values, group = self._values(observations), observations.arrays["group"]
        drawn = _means(values, group, data_id, self.settings["resamples"], self.settings["seed"])
        rows, n = [], distinct(group) if self.user_path else len(group)
        for metric, per_query in values.items():
            ends = interval(drawn[metric])
            bounds = ends and (100 * ends[0], 100 * ends[1])
            rows.append(self.row(task, metric, 100 * float(np.mean(per_query)), n, bounds))
        return rows

    def draws(self, observations: Observations, data_id: str, resamples: int, seed: int) -> Drawn:
        """Redraw groups of queries: the two of a pair together, and equal queries of a user's own folder together."""
        if not resamples:
            return {}
        means = _means(self._values(observations), observations.arrays["group"], data_id, resamples, seed)
        return {(None, None, metric): 100 * draws for metric, draws in means.items()}

    def _values(self, observations: Observations) -> dict[str, NDArray[np.float64]]:
        """Return metric -> float64 (q,), its value for each query, unit 1."""
        rank, query, group = (observations.arrays[name] for name in ("rank", "query", "group"))
        ks = self.settings["ks"]
        values = {f"recall@{k}": recall(rank, query, k) for k in ks}
        if len(query) > len(group):  # with one relevant text per query, hit equals recall
            values |= {f"hit@{k}": hit(rank, query, k) for k in ks}
        if self.user_path:  # with one relevant text per query, as in DiffCSE's task, these add nothing
            gain = observations.arrays.get("gain", np.ones(len(rank)))
            values |= {f"ndcg@{k}": ndcg(rank, query, gain, k) for k in ks}
            values |= {f"precision@{k}": precision(rank, query, k) for k in ks} | {"map": average_precision(rank, query)}
        values["mrr"] = reciprocal_rank(rank, query)
        if not self.user_path:
            return values
        return {self.lead: values.pop(self.lead), **values}


def _means(
    values: Mapping[str, NDArray[np.float64]], group: NDArray[np.int64], data_id: str, resamples: int, seed: int
) -> dict[str, NDArray[np.float64]]:
    """Return metric -> (resamples,) means of (q,) values over redrawn groups of queries."""
    groups = int(group.max()) + 1
    sums = np.stack([np.bincount(group, per_query) for per_query in values.values()])
    sizes = np.bincount(group).astype(np.float64)
    out = np.empty((len(values), resamples))
    step = max(1, 2**22 // groups)  # 32 MB of counts at a time
    for start in range(0, resamples, step):
        many = min(step, resamples - start)
        # The seed depends on the data, not on the encoder, so that two encoders have the same resamples.
        counts = resample_counts(groups, many, (seed, start, *data_id.encode()))
        out[:, start : start + many] = (sums @ counts.T) / (counts @ sizes)
    return dict(zip(values, out, strict=True))


def from_pairs(data: PairSet, duplicates: str) -> RetrievalSet:
    """Return the retrieval task of a set's pairs with gold 5: each sentence is a query for its partner, first all first
    sentences, then all second ones. The corpus is every sentence (`merge`: every distinct sentence) of the set.

    Raises ScoreError where no pair has gold 5, or where such a pair consists of the same sentence twice.
    """
    chosen = np.flatnonzero(data.gold == GOLD).tolist()
    if not chosen:
        raise ScoreError(f"{data.id} has no pair with gold {GOLD:g}: there is nothing to look for")
    for i in chosen:
        if data.first[i] == data.second[i]:
            raise ScoreError(f"{data.id}, pair {i + 1}: the two sentences are the same: there is nothing to look for")
    corpus = data.texts if duplicates == "merge" else (*data.first, *data.second)
    if duplicates == "merge":
        row_of = {text: position for position, text in enumerate(corpus)}
        one, other = [row_of[data.first[i]] for i in chosen], [row_of[data.second[i]] for i in chosen]
    else:
        one, other = chosen, [i + len(data) for i in chosen]
    positions = (*one, *other)
    return RetrievalSet(
        id=data.id, task=data.task, text_version=data.text_version, origin=data.origin, known=data.known,
        queries=tuple(corpus[i] for i in positions), corpus=corpus, relevant=tuple((i,) for i in (*other, *one)),
        hidden=tuple((position,) for position in positions),
    )


def _positions(texts: tuple[str, ...]) -> dict[str, tuple[int, ...]]:
    positions: dict[str, list[int]] = {}
    for position, text in enumerate(texts):
        positions.setdefault(text, []).append(position)
    return {text: tuple(copies) for text, copies in positions.items()}
