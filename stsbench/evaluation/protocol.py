"""`Protocol`, the base class of all evaluations: which data it needs, what it observes of vectors, how it scores that; and
the registered protocols by name."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from stsbench.data.own.table import Form
from stsbench.data.sets.sets import ON_HUB, DataSet, path_name
from stsbench.encoders.cache.embed import Embed
from stsbench.encoders.traits import TextTask
from stsbench.errors import ScoreError, StsbenchError
from stsbench.evaluation.records import Record, ScoreRow
from stsbench.evaluation.schema import (
    ITEM,
    Array,
    Metric,
    Names,
    Settings,
    SettingsModel,
    check_layout,
    checked,
    find_metric,
)
from stsbench.metrics.shared_sentences import Influence
from stsbench.registry import (
    calling,
    check_written,
    class_of_file,
    did_you_mean,
    is_file_class,
    match_name,
    names,
    register,
    resolve,
    where,
)
from stsbench.wording import format_counts

GROUP = "stsbench.protocols"  # entry points; each names a class
MTEB_NAMES = {  # a task's name -> its name in mteb, where the two differ
    "STS-B": "STSBenchmark", "STS-B-dev": "STSBenchmark", "STS-B-whole": "STSBenchmark", "SICK-R-MTEB": "SICK-R",
    "STS-B-zh": "STSB",
}


@dataclass(frozen=True)
class Observations:
    """The arrays that scores are computed from, and lists of names; stored, so that scores can be recomputed."""

    arrays: dict[str, NDArray[Any]]
    names: dict[str, list[str]] = field(default_factory=dict)
    memo: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)  # bootstrap draws, which are not stored


def item_numbers(observations: Observations, n: int) -> NDArray[np.int64]:
    """Return int64 (n,), the number of each row's item; where none are stored, each row is an item of its own."""
    return observations.arrays.get(ITEM, np.arange(n, dtype=np.int64))


Drawn = dict[tuple[str | None, str | None, str], NDArray[np.float64]]
"""(subset, aggregation, metric) of a score -> float64 (resamples,), in the unit of its ScoreRow."""
Influences = dict[tuple[str | None, str | None, str], Influence]
"""(subset, aggregation, metric) of a score -> its influence values, one for each item, in the unit of its ScoreRow."""


def grouped(observed: Sequence[Observations], arrays: Sequence[str], names: Sequence[str] = ()) -> list[list[int]]:
    """Return lists of indices into `observed`, one for each group with equal `arrays`, `names` and items, as encoders that
    were measured on one set have. Each must have all `names`, while `arrays` may be missing."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for at, observations in enumerate(observed):
        stored = [observations.arrays[kind] for kind in (*arrays, ITEM) if kind in observations.arrays]
        key = (*((array.shape, array.dtype.str, array.tobytes()) for array in stored),
               *(tuple(observations.names[kind]) for kind in names))
        groups.setdefault(key, []).append(at)
    return list(groups.values())


def other_subsets(observations: Observations, record: Record) -> str:
    """Return a line on how the sizes of the observed subsets differ from those of the record's data; "" where they agree."""
    subset, names = observations.arrays["subset"], observations.names["subsets"]
    sizes = {name: int(np.count_nonzero(subset == i)) for i, name in enumerate(names)}
    if sizes == record.data.subsets and sum(sizes.values()) == record.data.n:
        return ""
    return f"its observations are of {format_counts(sizes)}, its data of {format_counts(record.data.subsets)}"


class Protocol(ABC):
    """Base class of evaluations. A subclass declares its settings, arrays and metrics, and defines `observe` and `score`.

    It has no state but `settings`; `score` and `summarise` run without torch. settings: every setting as a record holds it.
    Raises StsbenchError with a message of one line for an unknown or invalid setting.
    """

    Settings: ClassVar[SettingsModel] = Settings
    name: ClassVar[str]
    version: ClassVar[int]
    metrics: ClassVar[Mapping[str, Metric]]  # every metric that `score` gives; "recall" is that of recall@1, recall@10
    arrays: ClassVar[Mapping[str, Array]]  # every array that `observe` gives
    names: ClassVar[Mapping[str, Names]] = {}  # every list of names except `notes` (lines that are shown to the user)
    resampling: ClassVar[str] = ""  # a clause for reports on how the bootstrap draws items
    title: ClassVar[str] = ""  # the heading of pages and tables; "": the name
    about: ClassVar[str] = ""  # a sentence on what is measured; "": the first line of the class's docstring
    lead: str = ""  # the column that rows are ranked by where there is no average; "": the first one
    unranked: ClassVar[str] = ""  # the reason why rows are never ranked; "": they are ranked
    main_metric: ClassVar[bool] = False  # True: a task has many metrics, and a leaderboard shows the first one
    trained: ClassVar[bool] = False  # True: something is trained on a set's other splits, and `test` is scored
    text_type: ClassVar[str] = ""  # mteb's type of its tasks, by which an encoder chooses a prompt; "": by the task alone
    hub_task: ClassVar[str] = "feature-extraction"  # the Hub's name of the task (huggingface.js, pipelines.ts)
    taken_for: ClassVar[str] = ""  # a sentence for model cards on what its scores cannot be compared with
    text_notes: ClassVar[Mapping[str, str]] = {"raw": "text version raw"}  # text version -> its note in a table's title
    position: ClassVar[int] = 100  # its rank in lists and in `--protocol all`, the lowest first
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {}  # `sts:wmean`: the word after the colon -> settings
    labels_variants: ClassVar[bool] = False  # True: a variant is a measurement of its own, its rows carry the full name
    cosmetic: ClassVar[frozenset[str]] = frozenset()  # settings that choose what is reported and change no score
    on_request: ClassVar[frozenset[str]] = frozenset()  # tasks that are measured only where a user names them
    averaged: tuple[str, ...] = ()  # the tasks whose mean `summarise` calls Avg
    metrics_across: ClassVar[bool] = False  # True: one task, several metrics, which are a table's columns
    in_all: ClassVar[tuple[str, ...]] = ("",)  # the variants that `--protocol all` runs, "" the plain protocol
    path_setting: ClassVar[str] = ""  # the setting that names a user's own file or folder: `NAME:PATH` measures it
    PathSettings: ClassVar[SettingsModel | None] = None  # the settings' model where `path_setting` is among them
    form: ClassVar[Form | None] = None  # the columns of a user's file

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.title = cls.title or getattr(cls, "name", "")
        cls.about = cls.about or next(iter((cls.__doc__ or "").strip().splitlines()), "")

    def __init__(self, settings: Mapping[str, Any], label: str | None = None) -> None:
        self.settings = checked(self.settings_model(settings), settings, self.name)
        self.label = label or self.name  # the value of `protocol` in every row: the protocol's name, or a paper's
        self.user_path: Path | None = None  # the user's file or folder, of which `settings` hold the name alone
        if self.path_setting in self.settings:
            self.user_path = Path(self.settings[self.path_setting])
            self.settings[self.path_setting] = path_name(self.user_path)
            form = self.label.split(":")[1:2]  # the variant in transfer:exact:FILE
            words = [self.name, *(word for word in form if word in self.variants), path_name(self.user_path)]
            self.label = ":".join(words)

    @classmethod
    def settings_model(cls, settings: Mapping[str, Any]) -> SettingsModel:
        """Return the model of `settings`: `PathSettings` where they name a user's file or folder, else `Settings`."""
        return (cls.PathSettings if cls.path_setting in settings else None) or cls.Settings

    @classmethod
    def variant(cls, word: str) -> dict[str, Any]:
        """Return the settings that `NAME:word` stands for. Raises StsbenchError, with a suggestion, for an unknown word."""
        form, colon, path = word.partition(":")
        if cls.path_setting and colon and form in cls.variants:  # transfer:exact:FILE
            return {**cls.variants[form], **cls.variant(path)}
        if cls.path_setting and word not in cls.variants and (Path(word).exists() or cls.reads_hub(word)):
            return {cls.path_setting: word}
        if word not in cls.variants and Path(word).exists():
            raise StsbenchError(f"{cls.name}:{word}: {cls.name} does not measure data of your own: sts:FILE, pairs:FILE, "
                                "triplets:FILE, transfer:FILE and retrieval:FOLDER do")
        if word not in cls.variants and not cls.variants and not cls.path_setting:
            raise StsbenchError(f"unknown protocol '{cls.name}:{word}'; {cls.name} has no variants")
        if word not in cls.variants and cls.path_setting and (Path(word).suffix or len(Path(word).parts) > 1):
            raise StsbenchError(f"{cls.name}:{word}: there is no {cls.path_setting} {word}")
        if word not in cls.variants:
            known = [f"{cls.name}:{name}" for name in cls.variants]
            absent = f" (nor is there a {cls.path_setting} {word})" if cls.path_setting else ""
            hint = task_meant(word) or did_you_mean(f"{cls.name}:{word}", known)
            raise StsbenchError(f"unknown protocol '{cls.name}:{word}'{absent}{hint}")
        return dict(cls.variants[word])

    @classmethod
    def reads_hub(cls, word: str) -> bool:
        """Return whether `NAME:word` measures a dataset of the Hub, hf:OWNER/NAME, as all protocols for users' data do."""
        return bool(cls.path_setting) and word.startswith(ON_HUB)

    @classmethod
    def metric(cls, name: str) -> Metric:
        """Return the declared metric of that name. Raises ScoreError where the class declares none."""
        if (metric := find_metric(cls.metrics, name)) is None:
            raise ScoreError(f"{where(cls)} declares no metric '{name}', only {', '.join(cls.metrics)}")
        return metric

    @classmethod
    def check_rows(cls, rows: Sequence[ScoreRow], task: str) -> None:
        """Raise ScoreError for a row of a metric that is not declared, or with a score that this metric cannot have."""
        for row in rows:
            metric = cls.metric(row.metric)
            if not metric.holds(row.value):
                low, high = metric.range
                problem = f"{row.metric} of task {task} is {row.value:g}, outside of its range, {low:g} to {high:g}"
                raise ScoreError(f"{where(cls)}: {problem}")

    @classmethod
    def check_layout(cls, observations: Observations, n: int) -> None:
        """Raise ScoreError where the observations of n items are not laid out as `arrays` and `names` say."""
        listed = {key: names for key, names in observations.names.items() if key != "notes"}
        check_layout(cls.arrays, observations.arrays, cls.names, listed, n)

    def contradiction(self, observations: Observations, record: Record) -> str:
        """Return a line on how valid observations contradict each other or the record; "" where they do not."""
        return ""

    def hub_task_name(self, scores: Sequence[ScoreRow]) -> str:
        """Return the Hub's name of the task of these scores; overridden where it differs between tasks."""
        return self.hub_task

    def hub_metric(self, metric: str) -> tuple[str, str]:
        """Return the type and the name of a metric in the Hub's metadata."""
        return metric, metric

    def cautions(self, records: Sequence[Record]) -> list[str]:
        """Return sentences for a model card: what the scores of these records cannot be compared with."""
        return [self.taken_for] if self.taken_for else []

    def decided(self, observations: Observations) -> dict[str, Sequence[NDArray[Any] | Sequence[str]]]:
        """Return part -> the observations that depend on the data alone, which are equal in all records of one set."""
        parts: dict[str, Sequence[NDArray[Any] | Sequence[str]]] = {}
        for key, array in self.arrays.items():
            if array.shared and key in observations.arrays:
                by = array.shared if isinstance(array.shared, tuple) else ()
                those = [f"{name} {self.settings[name]}" for name in by if name in self.settings]  # not all: users' files
                parts[" ".join([key, *those])] = (observations.arrays[key],)
        named = (key for key, declared in self.names.items() if declared.shared and key in observations.names)
        return {**parts, **{key: (observations.names[key],) for key in named}}

    @abstractmethod
    def tasks(self) -> dict[str, str]:
        """Return task -> id of the set that it is measured on, in the order of reports."""

    def text_task(self, task: str, data: Any) -> TextTask:
        """Return the name and type of a task as mteb has them, by which an encoder chooses its prompt."""
        return TextTask(MTEB_NAMES.get(task, task), self.text_type)

    def texts_by_role(self, data: Any) -> Mapping[str | None, Sequence[str]]:
        """Return the texts that `observe` encodes, by role: "query", "document", or None where roles do not differ."""
        return {None: data.texts}

    def further_texts(self, data: Any) -> Sequence[str]:
        """Return further texts that `observe` encodes and the set does not hold, such as edited ones; they have no role, and
        no encoder is fitted on them."""
        return ()

    @abstractmethod
    def observe(self, embed: Embed, data: Any) -> Observations:
        """Return the arrays that `score` needs, computed from vectors of `embed`. data: the set of one of `tasks`. Raises
        ScoreError where they cannot be computed."""

    @abstractmethod
    def score(self, observations: Observations, data_id: str, task: str) -> list[ScoreRow]:
        """Return the scores of stored observations, without encoding. Raises ScoreError when one cannot be computed."""

    def row(
        self, task: str, metric: str, value: float, n: int, bounds: tuple[float, float] | None = None, *,
        subset: str | None = None, aggregation: str | None = None,
    ) -> ScoreRow:
        """Return a row of `score` with this protocol's label. bounds: the ends of its 95 % interval; None: it has none."""
        low, high = bounds or (None, None)
        return ScoreRow(
            protocol=self.label, task=task, subset=subset, aggregation=aggregation, metric=metric, value=value, low=low,
            high=high, n=n,
        )

    def draws(self, observations: Observations, data_id: str, resamples: int, seed: int) -> Drawn:
        """Return the scores of `resamples` bootstrap samples of the items; {} where items have no values of their own.

        The samples depend on the set and `seed` alone, so that the draws of two encoders are paired.
        """
        return {}

    def influences(self, observations: Observations) -> Influences:
        """Return the influence values of scores whose items are dependent, which widen the deviations of `draws` and of
        differences between draws; {} where items are independent."""
        return {}

    def average_influences(self, observed: Mapping[str, tuple[Observations, str]]) -> Influences:
        """Return the influence values of the averages in `average_draws`, as `influences` does; {} by default."""
        return {}

    def earlier_scores(self, observations: Observations, data_id: str, task: str) -> list[ScoreRow] | None:
        """Return the scores with the intervals of an older release where these differ, so that its records do not count as
        edited; None where they do not differ."""
        return None

    def draws_of_many(self, observed: Sequence[Observations], data_id: str, resamples: int, seed: int) -> list[Drawn]:
        """Return `draws` of several encoders' observations of one set; a protocol may share work among them."""
        return [self.draws(observations, data_id, resamples, seed) for observations in observed]

    def drawn(self, observations: Observations, data_id: str, resamples: int, seed: int) -> Drawn:
        """Return `draws`, computed once for these observations: a score's interval and a comparison share them."""
        self.draw_all([observations], data_id, resamples, seed)
        drawn: Drawn = observations.memo[self._key(data_id, resamples, seed)]
        return drawn

    def draw_all(self, observed: Sequence[Observations], data_id: str, resamples: int, seed: int) -> None:
        """Compute the `drawn` of several encoders' observations of one set together and keep it in their `memo`."""
        key = self._key(data_id, resamples, seed)
        missing = [one for one in observed if key not in one.memo]
        for observations, drawn in zip(missing, self.draws_of_many(missing, data_id, resamples, seed), strict=True):
            observations.memo[key] = drawn

    def _key(self, data_id: str, resamples: int, seed: int) -> tuple[object, ...]:
        return self.name, repr(self.settings), data_id, resamples, seed

    def average_draws(
        self, observed: Mapping[str, tuple[Observations, str]], resamples: int, seed: int
    ) -> Drawn:
        """Return draws of `Avg` from the observations and data ids of the tasks in `averaged`; {} unless all have draws.

        By default the tasks' items count as independent; a protocol whose tasks share items overrides this.
        """
        if not self.averaged or not set(self.averaged) <= observed.keys():
            return {}
        parts = [self.drawn(*observed[task], resamples, seed) for task in self.averaged]
        return {key: np.mean([part[key] for part in parts], axis=0) for key in parts[0]
                if key[0] is None and all(key in part for part in parts)}

    def average_draws_of_many(
        self, observed: Sequence[Mapping[str, tuple[Observations, str]]], resamples: int, seed: int
    ) -> list[Drawn]:
        """Return `average_draws` of several encoders; a protocol may share work among them."""
        return [self.average_draws(sets, resamples, seed) for sets in observed]

    def work(self, data: DataSet) -> float:
        """Return how long `observe` takes on a set relative to other sets, in any unit: for estimates of the time left."""
        return float(len(data))

    @property
    def user_tasks(self) -> dict[str, str]:
        """Return the task of the user's file or folder; {} where there is none."""
        return {path_name(self.user_path): f"own:{self.user_path}"} if self.user_path else {}

    def load(self, set_id: str) -> DataSet | None:
        """Return a set that is not in the catalog (a user's own files); None for a set that is loaded from the catalog."""
        return None

    def summarise(self, records: Sequence[Record]) -> list[ScoreRow]:
        """Return scores over several records, such as an average over tasks; none by default."""
        return []


# Loading of registered classes, which are checked before anything is encoded -----------------------------------------


def load_protocol(name: str) -> type[Protocol]:
    """Return the class registered as `name`. Raises StsbenchError, one line, where it cannot be loaded or used."""
    return _checked(name, resolve(GROUP, name))


def protocol_name(word: str) -> str:
    """Return the name of a protocol; for FILE.py:CLASS, register the class for this process and return its name.

    Raises StsbenchError, one line, for a file or class that cannot be used.
    """
    if not is_file_class(word):
        return word
    kind = class_of_file(word)
    name = getattr(kind, "name", None)
    if not (isinstance(kind, type) and isinstance(name, str)):
        raise StsbenchError(f"{word} is not a protocol: derive a class with a name from stsbench.evaluation.Protocol")
    register(GROUP, name, kind)
    return load_protocol(name).name


def kinds() -> dict[str, type[Protocol]]:
    """Return name -> class of every usable protocol, in the order of `position`; warn of each that cannot be used."""
    usable: dict[str, type[Protocol]] = {}
    for name in names(GROUP):
        try:
            usable[name] = load_protocol(name)
        except StsbenchError as error:
            warnings.warn(str(error), stacklevel=2)
    return dict(sorted(usable.items(), key=lambda item: (item[1].position, item[0])))


@cache
def _checked(name: str, kind: Any) -> type[Protocol]:
    """Return `kind`. Raises StsbenchError unless it is a complete protocol of that name with valid defaults and variants."""
    if not (isinstance(kind, type) and issubclass(kind, Protocol)):
        raise StsbenchError(f"entry point {name}: {kind!r} is not a class derived from stsbench.evaluation.Protocol")
    check_written(kind)
    for key, form in (("name", str), ("version", int)):
        if not isinstance(getattr(kind, key, None), form):
            raise StsbenchError(f"{where(kind)} does not set {key} to {'a string' if form is str else 'a whole number'}")
    if kind.name != name:
        raise StsbenchError(f"entry point {name}: {kind.__name__}.name is '{kind.name}'")
    for key, of, example in (("metrics", Metric, "Metric(better=...)"), ("arrays", Array, 'Array("float", "n")'),
                             ("names", Names, "Names()")):
        declared = getattr(kind, key, None)
        if not isinstance(declared, Mapping) or not all(isinstance(value, of) for value in declared.values()):
            raise StsbenchError(f"{where(kind)} does not declare its {key}: set {key} to a dictionary, name -> {example}")
    if not kind.metrics:
        raise StsbenchError(f"{where(kind)} does not declare its metrics: a score of none could be shown")
    _build(kind, "", "default settings")
    for word in kind.variants:
        _build(kind, word, f"variant '{word}'")
    return kind


def _build(kind: type[Protocol], word: str, declaration: str) -> None:
    """Build the protocol, or its variant `word`, and list its tasks. Raises StsbenchError naming the class at fault."""
    settings, label = (kind.variant(word), f"{kind.name}:{word}") if word else ({}, None)
    try:
        built = calling(kind, "__init__", lambda: kind(settings, label))
    except StsbenchError as error:
        raise StsbenchError(f"{where(kind)}: {declaration}: {error}") from error
    tasks = calling(kind, "tasks", built.tasks)
    if not isinstance(tasks, dict):
        raise StsbenchError(f"{where(kind)}: tasks must return a dict, task -> id of its set, not {type(tasks).__name__}")


def task_meant(word: str) -> str:
    """Return "; STS-B is a task: ..." where a word in a protocol's place is the name of a task, "; uniformity is a metric:
    ..." where it is that of a metric, "" elsewhere."""
    for name, kind in kinds().items():
        tasks = kind({}).tasks()
        if (task := match_name(word, tasks)) in tasks:
            return f"; {task} is a task: --protocol {name} --tasks {task}"
    metric = match_name(word, {metric for kind in kinds().values() for metric in kind.metrics})
    protocols = [name for name, kind in kinds().items() if metric in kind.metrics]
    return f"; {metric} is a metric: --protocol {' or '.join(protocols)}" if protocols else ""
