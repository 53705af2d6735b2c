"""The STS protocol: correlation of pair similarities with gold scores, by Spearman and Pearson, aggregated in three ways.

SentEval (Conneau & Kiela 2018) scores a year's subsets one by one and averages them, weighted or not; SBERT (Reimers &
Gurevych 2019) and SimCSE (Gao et al. 2021, appendix B) correlate over the concatenated subsets. No regressor is trained.
`sts:FILE` measures a user's own scored pairs in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from stsbench.data.own.sets import SCORED, read_scored_pairs
from stsbench.data.own.table import Form
from stsbench.data.sets.catalog import LANGUAGES
from stsbench.data.sets.sentences import (
    SENTENCES,
    Keys,
    has_numbers,
    known_sentences,
    pair_keys,
    sentence_arrays,
    shared_graph,
)
from stsbench.data.sets.sets import DataSet, PairSet, numbered
from stsbench.encoders.cache.embed import Embed
from stsbench.errors import ScoreError
from stsbench.evaluation.protocol import (
    Drawn,
    Influences,
    Observations,
    Protocol,
    grouped,
    item_numbers,
    other_subsets,
)
from stsbench.evaluation.records import Record, ScoreRow
from stsbench.evaluation.schema import (
    CORRELATION,
    REPEATED,
    SHARED,
    AnyOf,
    Array,
    Metric,
    Names,
    Settings,
    SettingsModel,
    Similarity,
    SomeOf,
    Text,
    Whole,
    setting,
)
from stsbench.metrics.aggregation import AGGREGATIONS, OF_PARTS, average_of_printed, combine
from stsbench.metrics.bootstrap import (
    BootstrapCorrelation,
    count_blocks,
    distinct,
    fisher_interval,
    interval,
)
from stsbench.metrics.shared_sentences import (
    TOO_FEW_SENTENCES,
    joined,
    stretched,
)
from stsbench.metrics.similarity import METRICS, correlation, fall_as_scores_rise

from .sts_pairs import (
    as_slice,
    draw_rows,
    equal_pairs,
    pair_counts,
    pair_graph,
    pair_influence,
    pair_items,
    stratum_numbers,
    subset_rows,
)

# The seven tasks of the literature's average, then MTEB's SICK-R, which is other data than SentEval's under the same name.
TASKS = {
    "STS12": "sts12/test", "STS13": "sts13/test", "STS14": "sts14/test", "STS15": "sts15/test", "STS16": "sts16/test",
    "STS-B": "stsb/test", "SICK-R": "sick-r/test", "SICK-R-MTEB": "sick-r/mteb",
}
AVERAGED = tuple(TASKS)[:7]
YEARS = tuple(TASKS.values())[:5]  # the sets made of subsets
FEW = 10  # a note warns of fewer pairs in a user's set: the interval of a correlation of .5 would reach below 0
LARGEST_COSINE = 1 + 1e-6  # cosines of float32 vectors can exceed 1 by rounding


class StsSettings(Settings):
    aggregations: SomeOf[Literal["all", "mean", "wmean"]] = setting(
        list(AGGREGATIONS),
        "how a year's subsets become one score: one correlation over all pairs, the mean of the subsets' correlations, or "
        "their mean weighted by pairs",
        "all: SimCSE (Gao et al. 2021), appendix B; mean, wmean: SentEval",
    )
    metrics: SomeOf[Literal["spearman", "pearson"]] = setting(
        list(METRICS), "the correlations reported", "Reimers & Gurevych 2019, section 4; SentEval prints both"
    )
    similarity: Similarity = setting(
        "cosine", "of the two vectors; distances are negated",
        "SentEval, senteval/sts.py; the distances: Reimers & Gurevych 2019, section 4",
    )
    resamples: Whole = setting(1000, "bootstrap resamples of each interval; 0: no intervals", "our choice")
    seed: Whole = setting(0, "of the bootstrap", "our choice")
    pearson_interval: Literal["fisher-z", "percentile"] = setting(
        "fisher-z", "Pearson's interval: the draws' distances from the score on Fisher's z, or the draws' percentiles, too "
        "narrow for fewer than some 200 pairs", "our choice",
    )
    without_overlap: AnyOf[Text] = setting(
        [], "ids of the sets whose sentences were taken out before scoring (`stsbench eval --without-overlap`)",
        "our choice", by="--without-overlap",
    )


class AverageSettings(StsSettings):
    average: SomeOf[Text] = setting(..., "the tasks whose mean is Avg", "the paper of the preset", by="--protocol zh")


class FileSettings(StsSettings):
    file: Text = setting(..., "the name of the user's file of scored pairs", "our choice", by="--protocol sts:FILE")
    columns: Text | None = setting(
        None, "which columns of the file hold what: sentence1=q1,sentence2=q2,score=s; null: by their names", "our choice",
        by="--columns",
    )
    condition: Text | None = setting(
        None, "what is encoded of pairs under a condition, which the column condition states: '{condition}: {text}'; null: "
        "the texts alone", "Deshpande et al. 2023, C-STS",
    )


class StsProtocol(Protocol):
    """Similarities of sentence pairs against human scores; nothing is trained."""

    Settings: ClassVar[SettingsModel] = StsSettings
    name: ClassVar[str] = "sts"
    version: ClassVar[int] = 1
    metrics: ClassVar[Mapping[str, Metric]] = {"spearman": CORRELATION, "pearson": CORRELATION}
    arrays: ClassVar[Mapping[str, Array]] = {
        "similarity": Array("float", rounded=True, per_item=True), "gold": Array("float", shared=True),
        "subset": Array("int", shared=True), "pair": Array("uint", shared=True), **REPEATED,
        **SHARED,
    }
    names: ClassVar[Mapping[str, Names]] = {"subsets": Names(shared=True)}
    resampling: ClassVar[str] = "pairs that share a sentence count as dependent"
    title: ClassVar[str] = "STS"
    about: ClassVar[str] = "Similarity of two sentences against human scores; nothing is trained."
    lead: str = "STS-B"
    text_type: ClassVar[str] = "STS"
    hub_task: ClassVar[str] = "sentence-similarity"
    position: ClassVar[int] = 0
    cosmetic: ClassVar[frozenset[str]] = frozenset(
        {"aggregations", "metrics", "resamples", "seed", "file", "columns", "condition", "pearson_interval", "average"}
    )
    on_request: ClassVar[frozenset[str]] = frozenset({"SICK-R-MTEB", *(item.task for item in LANGUAGES)})
    averaged: tuple[str, ...] = AVERAGED
    variants: ClassVar[dict[str, dict[str, Any]]] = {how: {"aggregations": [how]} for how in AGGREGATIONS}
    path_setting: ClassVar[str] = "file"
    form: ClassVar[Form | None] = SCORED

    def __init__(self, settings: Mapping[str, Any], label: str | None = None) -> None:
        super().__init__(settings, label)
        self.averaged = () if self.user_path else tuple(self.settings.get("average", AVERAGED))

    @classmethod
    def settings_model(cls, settings: Mapping[str, Any]) -> SettingsModel:
        return FileSettings if "file" in settings else AverageSettings if "average" in settings else StsSettings

    def tasks(self) -> dict[str, str]:
        return self.user_tasks or {**TASKS, **{item.task: item.id for item in LANGUAGES}}

    def load(self, set_id: str) -> DataSet | None:
        if not self.user_path or set_id != f"own:{self.user_path}":
            return None
        return read_scored_pairs(self.user_path, self.settings["columns"] or "", self.settings.get("condition") or "")

    def observe(self, embed: Embed, data: PairSet) -> Observations:
        """Return similarity float64 (n,), gold float64 (n,), subset int64 (n,) indexing the names of `subsets`, and pair
        uint64 (n,), equal for pairs of the same sentences. Where pairs share sentences that the package has not numbered,
        also sentence1 and sentence2, uint64 (n,) keys of each pair's sentences."""
        order, subset = numbered(data.subsets)
        similarity = embed.similarity(data.first, data.second, self.settings["similarity"])
        pair = pair_keys(data.first, data.second)
        arrays = {"similarity": similarity, "gold": data.gold, "subset": subset, "pair": pair}
        if self.user_path or not has_numbers(pair):
            arrays |= sentence_arrays(data.first, data.second, exact=bool(self.user_path))
        sizes = {name: distinct(data.items[subset == i]) for i, name in enumerate(order)} if self.user_path else {}
        few = [f"{count} pairs" + (f" in {name}" if len(order) > 1 else "") for name, count in sizes.items() if count < FEW]
        more = f" and {len(few) - 5} subsets more" if len(few) > 5 else ""
        says = f"a correlation over fewer than {FEW} says next to nothing, look at its interval"
        notes = [f"{', '.join(few[:5])}{more}: {says}"] if few else []
        if self.user_path and fall_as_scores_rise(similarity, data.gold):
            notes.append("the higher the score of a pair, the less similar its vectors: are the scores distances?")
        observations = Observations(arrays, {"subsets": order})
        if SENTENCES[0] in arrays and pair_graph(observations, self._sentences(observations)).hopeless:
            notes.append(f"no interval: {TOO_FEW_SENTENCES}")
        return Observations(arrays, {"subsets": order, **({"notes": notes} if notes else {})})

    def contradiction(self, observations: Observations, record: Record) -> str:
        if fault := other_subsets(observations, record):
            return fault
        largest = float(np.abs(observations.arrays["similarity"]).max(initial=0.0))
        if self.settings["similarity"] == "cosine" and largest > LARGEST_COSINE:
            return f"its observations hold a cosine of {largest:.6g}"
        return ""

    def hub_metric(self, metric: str) -> tuple[str, str]:
        measure = self.settings["similarity"]  # the Hub writes cos_sim_spearman
        return f"{'cos_sim' if measure == 'cosine' else measure} {metric}", f"{metric} of {measure} similarity"

    def score(self, observations: Observations, data_id: str, task: str) -> list[ScoreRow]:
        draws = self.drawn(observations, data_id, self.settings["resamples"], self.settings["seed"])
        rows = self._scored(observations, data_id, task)
        influences = self.influences(observations) if draws else {}
        groups = len(observations.names["subsets"])
        return [self._within(row, draws, influences, groups) for row in rows]

    def earlier_scores(self, observations: Observations, data_id: str, task: str) -> list[ScoreRow]:
        """Return the scores with intervals as earlier versions computed them, which took pairs that share a sentence for
        independent."""
        resamples, seed = self.settings["resamples"], self.settings["seed"]
        item = item_numbers(observations, len(observations.arrays["gold"]))
        blocks = draw_rows(observations, resamples, (seed, data_id), item)
        draws = self._weighted([observations], blocks)[0] if resamples else {}
        rows, groups = self._scored(observations, data_id, task), len(observations.names["subsets"])
        return [self._within(row, draws, {}, groups) for row in rows]

    def _scored(self, observations: Observations, data_id: str, task: str) -> list[ScoreRow]:
        """Return the scores without intervals."""
        similarity, gold = observations.arrays["similarity"], observations.arrays["gold"]
        groups, item = subset_rows(observations), item_numbers(observations, len(gold))
        rows = []
        for metric in self.settings["metrics"]:
            points: list[float] = []
            if len(groups) > 1:
                for name, members in groups.items():
                    n = distinct(item[members])
                    try:
                        points.append(correlation(similarity[members], gold[members], metric, n))
                    except ScoreError as error:
                        raise ScoreError(f"{task}, subset {name}: {error}") from error
                    rows.append(self.row(task, metric, 100 * points[-1], n, subset=name))
            try:
                pooled = correlation(similarity, gold, metric, distinct(item))
            except ScoreError as error:
                raise ScoreError(f"{task}: {error}") from error
            sizes = [len(members) for members in groups.values()]
            for how in self.settings["aggregations"]:
                if how != "all" and len(groups) == 1 and data_id in YEARS:
                    continue  # the Hub's raw text does not name a year's subsets, so there is no mean over them
                # A set without subsets (STS-B, SICK-R) has the same score under every aggregation.
                value = pooled if how == "all" or len(groups) == 1 else float(combine(points, sizes, how))
                rows.append(self.row(task, metric, 100 * value, distinct(item), aggregation=how))
        return rows

    def _within(self, row: ScoreRow, draws: Drawn, influences: Influences, groups: int) -> ScoreRow:
        """Return the row with its interval where there are draws of it. groups: the number of subsets in a mean."""
        key = row.subset, row.aggregation, row.metric
        if (drawn := draws.get(key)) is None:
            return row
        stretch = influences[key].stretch if key in influences else 1.0
        if row.metric == "pearson" and self.settings["pearson_interval"] == "fisher-z":
            pairs = row.n // groups if row.aggregation in OF_PARTS else row.n  # pairs of one correlation
            ends = fisher_interval(drawn / 100, row.value / 100, pairs, stretch=stretch)
            bounds = ends and (100 * ends[0], 100 * ends[1])
        else:
            ends = interval(stretched(drawn, row.value, stretch))
            bounds = ends and (max(ends[0], -100.0), min(ends[1], 100.0))
        low, high = bounds or (None, None)
        return row.model_copy(update={"low": low, "high": high})

    def influences(self, observations: Observations) -> Influences:
        return self._influences(observations) if pair_graph(observations, self._sentences(observations)).dependent else {}

    def average_influences(self, observed: Mapping[str, tuple[Observations, str]]) -> Influences:
        """Return the influences on the average; pairs that share a sentence are dependent across tasks, too."""
        if not self.averaged or not set(self.averaged) <= observed.keys():
            return {}
        tasks = [observed[task][0] for task in self.averaged]
        first, second = (np.concatenate(side) for side in zip(*map(self._sentences, tasks), strict=True))
        strata, ends = [stratum_numbers(task) for task in tasks], np.cumsum([len(task.arrays["gold"]) for task in tasks])
        before = np.cumsum([0, *(int(stratum.max()) + 1 for stratum in strata)])
        graph = shared_graph((first, second), np.concatenate([
            stratum + start for stratum, start in zip(strata, before.tolist(), strict=False)]))
        if not graph.dependent:
            return {}
        of_tasks, rows = [self._influences(task) for task in tasks], np.split(np.arange(ends[-1]), ends[:-1])
        shares = [1 / len(tasks)] * len(tasks)
        return {key: joined([(part[key], at) for part, at in zip(of_tasks, rows, strict=True)], graph, shares)
                for key in of_tasks[0] if key[0] is None and all(key in part for part in of_tasks)}

    def _influences(self, observations: Observations) -> Influences:
        """Return the influence of the pairs on every score, computed once for these observations."""
        memo = "influences", repr(self.settings)
        if memo not in observations.memo:
            observations.memo[memo] = self._computed_influences(observations)
        computed: Influences = observations.memo[memo]
        return computed

    def _computed_influences(self, observations: Observations) -> Influences:
        sentences, groups = self._sentences(observations), subset_rows(observations)
        graph, several = pair_graph(observations, sentences), len(groups) > 1
        similarity, gold = observations.arrays["similarity"], observations.arrays["gold"]
        sizes = np.array([len(members) for members in groups.values()])
        computed: Influences = {}
        for metric in self.settings["metrics"]:
            whole = pair_influence(similarity, gold, metric, graph)
            parts = {name: (pair_influence(similarity[at], gold[at], metric, pair_graph(observations, sentences, at)), at)
                     for name, at in groups.items()} if several else {}
            computed |= {(name, None, metric): part for name, (part, _) in parts.items()}
            for how in self.settings["aggregations"]:
                shares = sizes / sizes.sum() if how == "wmean" else np.full(len(sizes), 1 / len(sizes))
                mean = several and how in OF_PARTS
                computed[None, how, metric] = joined([*parts.values()], graph, shares.tolist()) if mean else whole
        return computed

    def _sentences(self, observations: Observations) -> tuple[Keys, Keys]:
        """Return the numbers of each pair's two sentences. Where a user's observations hold none, only equal pairs share
        sentences: either no two pairs did, or an older version wrote them."""
        first, second = (observations.arrays.get(name) for name in SENTENCES[:2])
        if first is not None and second is not None:
            return first, second
        pair = equal_pairs(observations)
        return (pair, ~pair) if self.user_path else known_sentences(pair)

    def draws(self, observations: Observations, data_id: str, resamples: int, seed: int) -> Drawn:
        """Redraw equal pairs together, within their subset; subsets of a user's file that share a pair form one stratum."""
        return self.draws_of_many([observations], data_id, resamples, seed)[0]

    def draws_of_many(self, observed: Sequence[Observations], data_id: str, resamples: int, seed: int) -> list[Drawn]:
        """Return each encoder's draws, computing the counts and the ranks of the gold scores once for all of them."""
        drawn: list[Drawn] = [{} for _ in observed]
        for indices in grouped(observed, ("gold", "subset", "pair"), ("subsets",)) if resamples else ():
            members = [observed[at] for at in indices]
            blocks = draw_rows(members[0], resamples, (seed, data_id), pair_items(members[0]))
            for at, draws in zip(indices, self._weighted(members, blocks), strict=True):
                drawn[at] = draws
        return drawn

    def _weighted(self, observed: Sequence[Observations], blocks: Iterable[NDArray[np.float64]]) -> list[Drawn]:
        """Return each encoder's scores under (resamples, n) counts of how often each pair was drawn.

        observed: of encoders with the same gold scores and subsets; blocks: the counts, some resamples at a time.
        """
        similarity, gold = np.stack([item.arrays["similarity"] for item in observed]), observed[0].arrays["gold"]
        groups = {name: as_slice(members) for name, members in subset_rows(observed[0]).items()}
        slices: dict[str | None, Any] = dict.fromkeys([None, *groups], slice(None))
        if len(groups) > 1:  # a single subset is the same as all pairs
            slices.update(groups)
        else:
            del slices[None]
        correlate = {(name, metric): BootstrapCorrelation(similarity[:, at], gold[at], metric)
                     for name, at in slices.items() for metric in self.settings["metrics"]}
        rows: dict[tuple[str | None, str], list[NDArray[np.float64]]] = {key: [] for key in correlate}
        for counts in blocks:
            weights = {name: counts[:, at] for name, at in slices.items()}
            for (name, metric), bootstrap in correlate.items():
                rows[name, metric].append(bootstrap(weights[name]))
        scores = {key: 100 * np.concatenate(parts, axis=1) for key, parts in rows.items()}
        sizes = [len(gold[at]) for at in groups.values()]
        return [self._combined({key: values[i] for key, values in scores.items()}, [*groups], sizes)
                for i in range(len(observed))]

    def _combined(
        self, scores: Mapping[tuple[str | None, str], NDArray[np.float64]], groups: Sequence[str], sizes: Sequence[int]
    ) -> Drawn:
        """Return one encoder's draws under every aggregation, from its draws over all pairs (None) and over each subset."""
        drawn: Drawn = {}
        for metric in self.settings["metrics"]:
            parts = [scores[name, metric] for name in groups]
            drawn |= {(name, None, metric): part for name, part in zip(groups, parts, strict=True)}
            for how in self.settings["aggregations"]:
                if len(groups) == 1:
                    drawn[None, how, metric] = parts[0]
                else:
                    drawn[None, how, metric] = scores[None, metric] if how == "all" else combine(parts, sizes, how)
        return drawn

    def average_draws(self, observed: Mapping[str, tuple[Observations, str]], resamples: int, seed: int) -> Drawn:
        """Redraw equal pairs of all tasks together, since STS-B is made of STS12-16's pairs, by a Poisson bootstrap (every
        distinct pair is drawn a Poisson(1) number of times; Chamandy et al. 2012)."""
        return self.average_draws_of_many([observed], resamples, seed)[0]

    def average_draws_of_many(
        self, observed: Sequence[Mapping[str, tuple[Observations, str]]], resamples: int, seed: int
    ) -> list[Drawn]:
        drawn: list[Drawn] = [{} for _ in observed]
        by_pairs: dict[tuple[bytes, ...], list[int]] = {}
        for at, tasks in enumerate(observed):
            if self.averaged and set(self.averaged) <= tasks.keys():
                keys = (tasks[task][0].arrays["pair"] for task in self.averaged)
                by_pairs.setdefault(tuple(key.astype("<u8").tobytes() for key in keys), []).append(at)
        for pairs, indices in by_pairs.items():
            counts = pair_counts(pairs, resamples, seed)
            members = [observed[at] for at in indices]
            for at, draws in zip(indices, self._averaged(members, counts), strict=True):
                drawn[at] = draws
        return drawn

    def _averaged(
        self, observed: Sequence[Mapping[str, tuple[Observations, str]]], counts: Sequence[NDArray[np.uint8]]
    ) -> list[Drawn]:
        """Return draws of the average for encoders with the same pairs; counts: (resamples, n) for each task."""
        parts: list[dict[Any, list[NDArray[np.float64]]]] = [{} for _ in observed]
        for task, weights in zip(self.averaged, counts, strict=True):
            of_task = [tasks[task][0] for tasks in observed]
            for indices in grouped(of_task, ("gold", "subset"), ("subsets",)):
                many = self._weighted([of_task[at] for at in indices], count_blocks(weights))
                for at, draws in zip(indices, many, strict=True):
                    for key, values in draws.items():
                        if key[0] is None:
                            parts[at].setdefault(key, []).append(values)
        return [{key: np.mean(values, axis=0) for key, values in part.items() if len(values) == len(self.averaged)}
                for part in parts]

    def summarise(self, records: Sequence[Record]) -> list[ScoreRow]:
        """Return the STS average twice: `Avg` of scores rounded to two decimals, as in papers, and `Avg-full` of unrounded
        scores; [] unless all seven tasks, or all of a preset, were scored: a mean over fewer is not comparable."""
        whole = (row for record in records for row in record.scores if row.subset is None)
        by_score = {(row.task, row.aggregation, row.metric): row for row in whole}
        rows = []
        for metric in self.settings["metrics"]:
            for how in self.settings["aggregations"]:
                all_of_them = [by_score.get((task, how, metric)) for task in self.averaged]
                chosen = [row for row in all_of_them if row is not None]
                if not chosen or len(chosen) < len(all_of_them):
                    continue
                values, n = [row.value for row in chosen], sum(row.n for row in chosen)
                rows.append(self.row("Avg", metric, average_of_printed(values), n, aggregation=how))
                rows.append(self.row("Avg-full", metric, float(np.mean(values)), n, aggregation=how))
        return rows
