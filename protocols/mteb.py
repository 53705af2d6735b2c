"""The MTEB protocol: tasks of the package mteb, run by its own evaluators (Muennighoff et al. 2023; Enevoldsen et al. 2025).

`mteb` runs MTEB's STS tasks on the catalog's data; `mteb:TASK` and `mteb:BENCHMARK` run any other task, on the data that
mteb loads from the Hub. Each record names its data: a score on SentEval's text is not MTEB's score.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import BeforeValidator

from stsbench.data.fetch.mteb import undisturbed
from stsbench.data.sets import FROM_MTEB
from stsbench.data.sets.catalog import hub_revision
from stsbench.data.sets.sets import DataSet, PairSet
from stsbench.encoders.cache.embed import Embed
from stsbench.encoders.cache.mteb import MtebEncoder
from stsbench.encoders.traits import TextTask
from stsbench.errors import DataError, ScoreError, StsbenchError
from stsbench.evaluation.protocol import Observations, Protocol
from stsbench.evaluation.records import Record, ScoreRow
from stsbench.evaluation.schema import CORRELATION, Array, Metric, Names, Settings, SettingsModel, Text, requirement, setting
from stsbench.metrics.similarity import correlation
from stsbench.registry import did_you_mean

TASKS = {
    "STS12": "sts12/test", "STS13": "sts13/test", "STS14": "sts14/test", "STS15": "sts15/test", "STS16": "sts16/test",
    "STS-B": "stsb/test", "SICK-R": "sick-r/test", "SICK-R-MTEB": "sick-r/mteb",
}
RENAMED = {"STSBenchmark": "STS-B", "SICK-R": "SICK-R-MTEB"}  # mteb's name -> stsbench's, where they differ
# The scores kept of a pair task, beside its main score. Of other tasks, with dozens of figures, only the main one is kept.
STS_METRICS = (
    "cosine_spearman", "cosine_pearson", "spearman", "pearson", "manhattan_spearman", "manhattan_pearson",
    "euclidean_spearman", "euclidean_pearson",
)


@dataclass(frozen=True)
class HubData(DataSet):
    """Data that mteb loads from the Hub while it runs a task, identified by their revision instead of their texts."""

    parts: tuple[tuple[str, ...], ...]  # for each Hub data set its path and revision, then splits and subsets

    def __len__(self) -> int:
        return 0

    @property
    def texts(self) -> tuple[str, ...]:
        return ()

    @property
    def counts(self) -> dict[str, int]:
        return {}

    def rows(self) -> Iterable[Any]:
        return self.parts


def _known_sets(tasks: Any) -> Any:
    ids = list(tasks.values()) if isinstance(tasks, dict) else []
    if not ids or not all(isinstance(id, str) and (id in TASKS.values() or id.startswith(FROM_MTEB)) for id in ids):
        raise requirement("must be tasks with their set ids, as mteb:NAME sets them")
    return tasks


class MtebSettings(Settings):
    """Settings of the MTEB protocol, both set by `mteb:NAME`."""

    tasks: Annotated[dict[str, str], BeforeValidator(_known_sets)] = setting(
        TASKS, "task -> id of the set it is measured on", "the STS tasks of Muennighoff et al. 2023, on the data held here",
        by="--protocol mteb:NAME",
    )
    benchmark: Text | None = setting(
        None, "mteb's name of the benchmark that the tasks belong to; it decides the languages of a task",
        "mteb, benchmarks", by="--protocol mteb:NAME",
    )


class MtebProtocol(Protocol):
    """mteb's own evaluators, on the data held here or on those that mteb loads."""

    Settings: ClassVar[SettingsModel] = MtebSettings
    name: ClassVar[str] = "mteb"
    version: ClassVar[int] = 1
    # "*" stands for the main score of any other task of mteb; not all of them are shares.
    metrics: ClassVar[Mapping[str, Metric]] = {
        **dict.fromkeys(STS_METRICS, CORRELATION), "cosine_spearman": replace(CORRELATION, title="Spearman of cosines"),
        "*": Metric(),
    }
    arrays: ClassVar[Mapping[str, Array]] = {"value": Array("float", "k"), "items": Array("int", "k")}
    names: ClassVar[Mapping[str, Names]] = {
        "metric": Names("k"), "split": Names("k"), "subset": Names("k"), "mteb_task": Names("1"), "task_result": Names("1"),
    }
    title: ClassVar[str] = "MTEB"
    about: ClassVar[str] = "Scored by mteb's own evaluators. On SentEval's text these are not MTEB's leaderboard scores."
    unranked: ClassVar[str] = "mteb keeps no score per item, so differences cannot be tested"
    lead: str = "STS-B"
    main_metric: ClassVar[bool] = True
    text_notes: ClassVar[Mapping[str, str]] = {
        **Protocol.text_notes, "senteval": "on SentEval's text: not MTEB's own scores; MTEB's SICK-R is SICK-R-MTEB",
    }
    hub_task: ClassVar[str] = "sentence-similarity"
    position: ClassVar[int] = 5
    # A benchmark chooses a task's splits and subsets, which are part of the data's digest already (HubData.parts).
    cosmetic: ClassVar[frozenset[str]] = frozenset({"tasks", "benchmark"})

    def __init__(self, settings: Mapping[str, Any], label: str | None = None) -> None:
        super().__init__(settings, label)
        benchmark = self.settings["benchmark"]
        if benchmark and self.label == self.name:  # a benchmark's STS12 has other data than `mteb`'s
            self.label = f"{self.name}:{benchmark}"

    @classmethod
    def variant(cls, word: str) -> dict[str, Any]:
        """Return the settings for mteb's task or benchmark `word`. mteb is not imported for the tasks of TASKS. Raises
        StsbenchError for an unknown name."""
        renamed = RENAMED.get(word, word)
        if renamed in TASKS:
            return {"tasks": {renamed: TASKS[renamed]}}
        with undisturbed() as mteb:
            try:
                return {"tasks": _hub_tasks([mteb.get_task(word)])}
            except KeyError:
                pass  # `word` is not a task, but may be a benchmark
            try:
                benchmark = mteb.get_benchmark(word)
            except KeyError:
                from mteb.get_tasks import TASK_LIST

                names = [entry.metadata.name for entry in TASK_LIST] + [entry.name for entry in mteb.get_benchmarks()]
                hint = did_you_mean(word, names)
                hint = hint if hint.startswith("; did") else "; mteb.get_tasks() and mteb.get_benchmarks() list them"
                raise StsbenchError(f"mteb has no task or benchmark '{word}'{hint}") from None
            return {"tasks": _hub_tasks(benchmark.tasks), "benchmark": benchmark.name}

    def tasks(self) -> dict[str, str]:
        return dict(self.settings["tasks"])

    def load(self, set_id: str) -> DataSet | None:
        """Return mteb's description of the data of `mteb:TASK`; the data are loaded when the task runs."""
        if not set_id.startswith(FROM_MTEB):
            return None
        with undisturbed() as mteb:
            task = self._task(mteb, set_id.removeprefix(FROM_MTEB))
            parts = tuple(_described(leaf) for leaf in _leaves(task))
        return HubData(set_id, task.metadata.name, "own", parts, origin="the Hub, through mteb", known=False)

    def text_task(self, task: str, data: PairSet | HubData) -> TextTask:
        """Return the name and type that mteb gives the task."""
        if isinstance(data, PairSet):
            return TextTask(_mteb_name(data.id), "STS")
        with undisturbed() as mteb:
            metadata = self._task(mteb, _mteb_name(data.id)).metadata
        return TextTask(metadata.name, metadata.type)

    def texts_by_role(self, data: PairSet | HubData) -> Mapping[str | None, Sequence[str]]:
        if isinstance(data, PairSet):
            return {None: data.texts}
        with undisturbed() as mteb:
            leaves = _leaves(self._task(mteb, _mteb_name(data.id)))
            from mteb.abstasks import AbsTaskRetrieval

            searches = any(isinstance(leaf, AbsTaskRetrieval) for leaf in leaves)
        return {"query": (), "document": ()} if searches else {None: ()}

    def observe(self, embed: Embed, data: PairSet | HubData) -> Observations:
        """Return value float64 (k,), the scores in the order of the names `metric`, `split` and `subset`, the main score of
        each split and subset first; items int64 (k,). Names also hold mteb's name of the task and its result as JSON."""
        if isinstance(data, PairSet):  # refuse constant similarities, of which mteb would correlate rounding errors
            correlation(embed.similarity(data.first, data.second), data.gold, "spearman")
        with undisturbed() as mteb:
            encoder = MtebEncoder(embed)
            task = self._task(mteb, _mteb_name(data.id))
            _fill(task, data)
            try:
                result = _evaluated(mteb, encoder, task)
                items = {(split, entry["hf_subset"]): _items(task, split, entry["hf_subset"])
                         for split, scores in result.scores.items() for entry in scores}
            finally:
                for leaf in _leaves(task):
                    leaf.unload_data()
            main = task.metadata.main_score
        if isinstance(data, PairSet) and hub_revision(data.id, data.text_version, data.known, len(data)) is None:
            # mteb's result would name the Hub's revision, and these are other texts.
            result.dataset_revision = f"stsbench {data.id} {data.text_version} {data.digest}"
        scored = [
            (metric, split, entry["hf_subset"], entry["main_score" if metric == main else metric])
            for split, scores in result.scores.items() for entry in scores
            for metric in dict.fromkeys([main, *(name for name in STS_METRICS if name in entry)])
        ]
        metrics, splits, subsets, values = (list(column) for column in zip(*scored, strict=True))
        arrays = {"value": np.array(values, dtype=np.float64),
                  "items": np.array([items[key] for key in zip(splits, subsets, strict=True)], dtype=np.int64)}
        names = {"metric": metrics, "split": splits, "subset": subsets, "mteb_task": [task.metadata.name],
                 "task_result": [result.model_dump_json()]}
        names["notes"] = [
            *(f"{role} read behind the stored prompt {prompt!r}" for role, prompt in sorted(encoder.prompted.items())),
            *_notes({role: list(texts) for role, texts in encoder.texts.items()}, isinstance(data, HubData)),
        ]
        return Observations(arrays, names)

    def contradiction(self, observations: Observations, record: Record) -> str:
        if record.data.text_version != "own" and (observations.arrays["items"] != record.data.n).any():
            return f"its observations are not of {record.data.n} items, as its data are"
        return ""

    def cautions(self, records: Sequence[Record]) -> list[str]:
        if all(record.data.text_version == "raw" or record.data.id.startswith(FROM_MTEB) for record in records):
            return []
        return ["MTEB's own scores: the protocol mteb computes as MTEB does, but here not on MTEB's text."]

    def score(self, observations: Observations, data_id: str, task: str) -> list[ScoreRow]:
        names, values = observations.names, observations.arrays["value"]
        parts = list(zip(names["split"], names["subset"], strict=True))
        main = names["metric"][0]
        mains = [row for row, metric in enumerate(names["metric"]) if metric == main]
        if not np.isfinite(values[mains]).all():
            raise ScoreError(f"{task}: mteb computes no {main} (constant predictions, or nothing to compare)")
        rows = []
        several = len(mains) > 1
        if several:  # mteb averages a task over its splits and subsets with equal weights
            total = int(observations.arrays["items"][mains].sum())
            rows.append(self.row(task, main, 100 * float(values[mains].mean()), total, aggregation="mean"))
        for row, (split, subset) in enumerate(parts):
            if np.isfinite(values[row]):
                part = (f"{split}/{subset}" if len(set(names["split"])) > 1 else subset) if several else None
                items = int(observations.arrays["items"][row])
                rows.append(self.row(task, names["metric"][row], 100 * float(values[row]), items, subset=part))
        return rows

    def _task(self, mteb: Any, name: str) -> Any:
        """Return mteb's task, in the languages of the benchmark if there is one. Raises DataError for an unknown task."""
        try:
            if benchmark := self.settings["benchmark"]:
                return next(task for task in mteb.get_benchmark(benchmark).tasks if task.metadata.name == name)
            return mteb.get_task(name)
        except (KeyError, StopIteration) as error:
            raise DataError(f"this version of mteb has no task {name}: {error}") from error


def _hub_tasks(tasks: Iterable[Any]) -> dict[str, str]:
    names = [task.metadata.name for task in tasks]
    return {RENAMED.get(name, name): FROM_MTEB + name for name in names}


def _mteb_name(set_id: str) -> str:
    """Return mteb's name of the task that a set belongs to."""
    if set_id.startswith(FROM_MTEB):
        return set_id.removeprefix(FROM_MTEB)
    task_name = next(task for task, id in TASKS.items() if id == set_id)
    return next((name for name, renamed in RENAMED.items() if renamed == task_name), task_name)


def _leaves(task: Any) -> list[Any]:
    """Return the task itself, or the tasks that an aggregate task consists of."""
    return [leaf for part in task.metadata.tasks for leaf in _leaves(part)] if task.is_aggregate else [task]


def _described(task: Any) -> tuple[str, ...]:
    where = (f"{key}={value}" for key, value in sorted(task.metadata.dataset.items()))
    return (task.metadata.name, *where, f"splits={list(task.eval_splits)}", f"subsets={list(task.hf_subsets)}")


def _fill(task: Any, data: PairSet | HubData) -> None:
    """Set or load the data of a task. Raises ScoreError, one line, where mteb cannot load them."""
    if isinstance(data, PairSet):
        from datasets import Dataset, DatasetDict

        # Gold scores keep the set's units: mteb scales them linearly, which changes no correlation.
        columns = {"sentence1": list(data.first), "sentence2": list(data.second), "score": data.gold.tolist()}
        task.dataset, task.data_loaded = DatasetDict({task.eval_splits[0]: Dataset.from_dict(columns)}), True
        return
    for leaf in _leaves(task):
        try:
            leaf.load_data()
        except Exception as error:  # datasets, the Hub's client and a task's loader raise any error
            raise ScoreError(f"mteb cannot load the data of {leaf.metadata.name} from the Hub: {_line(error)}") from error


def _evaluated(mteb: Any, encoder: MtebEncoder, task: Any) -> Any:
    """Return mteb's TaskResult, without its result cache. Raises ScoreError where mteb fails or returns none."""
    try:
        done = mteb.evaluate(
            encoder, task, cache=None, co2_tracker=False, show_progress_bar=False, encode_kwargs={"batch_size": 1024}
        )
    except StsbenchError:
        raise
    except Exception as error:  # the code of hundreds of tasks may raise any error
        raise ScoreError(f"mteb failed on {task.metadata.name}: {_line(error)}") from error
    if not done.task_results:
        raise ScoreError(f"mteb gave no result for {task.metadata.name}: {done.exceptions}")
    return done.task_results[0]


def _items(task: Any, split: str, subset: str) -> int:
    """Return the number of items, pairs, texts or queries, that a score is computed from."""
    if task.is_aggregate:
        return sum(_items(leaf, split, name) for leaf in _leaves(task) for name in leaf.hf_subsets)
    data = task.dataset.get(subset, task.dataset)[split]
    return len(data["queries"] if isinstance(data, Mapping) and "queries" in data else data)


def _notes(read: Mapping[Embed, list[str]], unseen: bool) -> Iterable[str]:
    """Yield notes on truncated texts and zero vectors. read: encoder -> the texts it encoded; unseen: whether the texts were
    not checked before, as mteb loaded them."""
    count = sum(map(len, read.values()))
    cut = sum(int(embed.truncated(texts).sum()) for embed, texts in read.items())
    if cut and (unseen or any(embed.spec.prefix for embed in read)):
        yield f"{cut} of {count} distinct texts were truncated"
    if zero := sum(int(embed.zero(texts).sum()) for embed, texts in read.items()):
        what = "its cosine is 0.5 (1 with another one) in mteb's cosine_*, 0 in spearman and pearson"
        yield f"{zero} of {count} distinct texts have a zero vector: {what}"


def _line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:200]}" if text else type(error).__name__
