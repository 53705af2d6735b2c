"""The result of `choose`: encoders with score and cost, which do not differ significantly, and the Pareto front."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stsbench.comparison.comparability import Setting, bytes_a_vector, setting_in_words, timing_settings
from stsbench.comparison.comparison import reasons_json, reasons_lines
from stsbench.comparison.shared import Reasons
from stsbench.config import shorten
from stsbench.display.pareto import Point
from stsbench.display.table import Column, Document, Estimate, Table
from stsbench.display.tabular import Tabular, arrow_table
from stsbench.errors import StsbenchError
from stsbench.evaluation.protocol import load_protocol
from stsbench.evaluation.records import Cost, Record
from stsbench.evaluation.schema import Metric
from stsbench.wording import joined, sized

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pyarrow import Table as ArrowTable

_WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
SURE = "(joint test at 5 %)"


@dataclass(frozen=True)
class Spent:
    """One cost of an encoder. low, high: range over the rounds of its measurement, both `value` where it is not timed."""

    value: float
    low: float
    high: float

    def overlaps(self, cost: Spent) -> bool:
        """Return whether the ranges of both overlap, so that it is not known which is cheaper."""
        return self.low <= cost.high and cost.low <= self.high


@dataclass(frozen=True)
class Axis:
    """A kind of cost. name: on the command line; label: of a plot's axis; read: the cost of a record; shown: a number as
    text; unit: after the number; timed: depends on the machine; more_is_cheaper: True for a speed."""

    name: str
    label: str
    read: Callable[[Record, Cost | None], Spent | None]
    shown: Callable[[float], str]
    unit: str = ""
    timed: bool = True
    more_is_cheaper: bool = False


def _three(value: float) -> str:
    return f"{float(f'{value:.3g}'):,.10g}"


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def _sized(value: float) -> str:
    return sized(round(value))


def _exact(value: float | None) -> Spent | None:
    return None if value is None else Spent(value, value, value)


def _speed(name: str) -> Callable[[Record, Cost | None], Spent | None]:
    def read(record: Record, cost: Cost | None) -> Spent | None:
        speed: float | None = getattr(cost, name, None)
        if cost is None or speed is None:
            return None
        middle = sorted(cost.seconds)[len(cost.seconds) // 2]
        return Spent(speed, speed * middle / max(cost.seconds), speed * middle / min(cost.seconds))

    return read


def _processor(record: Record, cost: Cost | None) -> Spent | None:
    if cost is None or not cost.cpu_seconds or cost.device != "cpu":
        return None
    times = sorted(1000 * seconds / max(cost.texts, 1) for seconds in cost.cpu_seconds)
    return Spent(times[len(times) // 2], times[0], times[-1])


def _counted(name: str, factor: float = 1) -> Callable[[Record, Cost | None], Spent | None]:
    def read(record: Record, cost: Cost | None) -> Spent | None:
        value = getattr(cost, name, None)
        return None if value is None else _exact(factor * value)

    return read


def _bytes(record: Record, cost: Cost | None) -> Spent | None:
    return _exact(bytes_a_vector(record) if cost is None else cost.bytes_a_vector)


AXES = {axis.name: axis for axis in (
    Axis("sentences/s", "sentences a second", _speed("sentences_per_second"), _three, "sentences/s", more_is_cheaper=True),
    Axis("tokens/s", "tokens a second", _speed("tokens_per_second"), _three, "tokens/s", more_is_cheaper=True),
    Axis("latency", "milliseconds for one text", _counted("latency_seconds", 1000), _three, "ms for one text"),
    Axis("cpu", "processor milliseconds a sentence", _processor, _three, "processor ms a sentence"),
    Axis("first", "seconds to the first vector", _counted("first_vector_seconds"), _three, "s to the first vector"),
    Axis("memory", "bytes of memory", _counted("memory_bytes"), _sized, "of memory"),
    Axis("cuda-memory", "bytes of the device's memory", _counted("cuda_memory_bytes"), _sized, "of the device's memory"),
    Axis("parameters", "parameters", _counted("parameters"), _whole, "parameters", timed=False),
    Axis("bytes", "bytes a vector", _bytes, _whole, "bytes a vector", timed=False),
)}


def machine_in_words(setting: Sequence[Any]) -> str:
    """Return a machine and how it was used as text: 'AMD EPYC 7763, 2 cores, cpu, 2 threads'."""
    return ", ".join(filter(None, setting_in_words(setting)))


def compared_within(costs: Sequence[Cost | None]) -> tuple[list[bool], tuple[Any, ...] | None]:
    """Return for each cost whether its times may be compared with the others', and their common setting: the most frequent
    one, in a tie the first. The setting is None where no cost has times."""
    settings = [None if cost is None else timing_settings(cost) for cost in costs]
    known = [setting for setting in settings if setting is not None]
    if not known:
        return [False] * len(costs), None
    counts = Counter({candidate: sum(_fits(setting, candidate) for setting in known) for candidate in known})
    # In a tie, prefer a setting with a device to one without, which fits any device.
    common = max(dict.fromkeys(known), key=lambda setting: (counts[setting], setting[4] is not None))
    return [setting is not None and _fits(setting, common) for setting in settings], common


def _fits(setting: tuple[Any, ...], common: tuple[Any, ...]) -> bool:
    return setting[:4] == common[:4] and (setting[4:] == common[4:] or setting[4] is None)


@dataclass(frozen=True)
class Candidate:
    """One encoder. letters: candidates that share a letter do not differ significantly; costs: name in AXES -> cost, None
    where it is unknown or not comparable."""

    name: str
    folders: tuple[Path, ...]
    fingerprint: str
    score: float
    low: float | None
    high: float | None
    letters: str
    costs: dict[str, Spent | None]


@dataclass(repr=False)
class Choice(Tabular):
    """Encoders on one task or average, the best first.

    different: for each pair whether its scores differ significantly in a joint test of all pairs; None where no test is
    possible, for the reason no_test. by: the cost that decides; front: for each candidate whether no other is both cheaper
    and better. machine: on which the times were measured, "" without times.
    """

    title: str
    setting: Setting
    task: str
    candidates: list[Candidate]
    different: list[list[bool]] | None
    no_test: str
    by: Axis
    front: list[bool]
    machine: str
    resamples: int
    seed: int
    remarks: list[str] = field(default_factory=list)
    left_out: Reasons = field(default_factory=list)
    failures: Reasons = field(default_factory=list)

    def __repr__(self) -> str:
        return f"<Choice among {len(self.candidates)} encoders by {self.by.name}: {self.sentence}>"

    @property
    def metric(self) -> Metric:
        """Return the compared metric, as its protocol declares it."""
        return load_protocol(self.setting.protocol).metric(self.setting.metric)

    @property
    def equals(self) -> list[int]:
        """Return the indices of the best candidate and of those that do not differ from it significantly."""
        different = self.different
        return [0] if different is None else [i for i in range(len(self.candidates)) if not different[0][i]]

    @property
    def cheapest(self) -> list[int]:
        """Return the indices of the cheapest of `equals`, and of those whose range of costs overlaps with its own."""
        known = [(i, spent) for i in self.equals if (spent := self._spent(i)) is not None]
        if not known:
            return []
        sign = -1 if self.by.more_is_cheaper else 1
        least = min(known, key=lambda pair: sign * pair[1].value)
        return [least[0], *(i for i, spent in known if i != least[0] and spent.overlaps(least[1]))]

    @property
    def sentence(self) -> str:
        """Return the conclusion from the table in words."""
        best, equals = self.candidates[0].name, self.equals
        if self.different is None:
            return f"No test: {self.no_test}. {best} has the best score; whether by chance is not known."
        if len(equals) == 1:
            return f"{self._name(0)} is better than every other {SURE}.{self._cheaper()}"
        names = joined([self.candidates[i].name for i in equals])
        count = _WORDS[len(equals)] if len(equals) < len(_WORDS) else str(len(equals))
        alone = not any(self.different[i][k] for i in equals for k in equals)
        from_best = "" if alone else f" from the best, {best}"
        return f"These {count} do not differ significantly{from_best} {SURE}: {names}; {self._of_equals()}."

    def _of_equals(self) -> str:
        cheapest = self.cheapest
        if not cheapest:
            return f"which is the cheapest is not known: no record of theirs holds {self.by.name}"
        lacking = len(self.equals) - sum(self._spent(i) is not None for i in self.equals)
        among = f"of those whose {self.by.name} is known here, " if lacking else ""
        first, *others = cheapest
        if not others:
            return f"{among}the cheapest is {self._name(first)}"
        why = f"which do not differ in {self.by.name}"
        if any(self._spent(i) != self._spent(first) for i in others):
            why += " by more than its rounds do"
        return f"{among}the cheapest are {joined([self._name(i) for i in cheapest])}, {why}"

    def _cheaper(self) -> str:
        """Return a sentence on the candidates of the front that cost less than the best one; "" without any."""
        less = [i for i, on in enumerate(self.front) if on and i]
        if not less or self._spent(0) is None:
            return ""
        gaps = (abs(self.candidates[i].score - self.candidates[0].score) for i in less)
        named = [f"{self._name(i)}, {gap:.{self.metric.digits}f} worse" for i, gap in zip(less, gaps, strict=True)]
        return f" {'Faster' if self.by.more_is_cheaper else 'Cheaper'}: {'; '.join(named)}."

    def _spent(self, number: int) -> Spent | None:
        return self.candidates[number].costs.get(self.by.name)

    def _spelled(self, number: int) -> str:
        spent = self._spent(number)
        return "" if spent is None else f"{self.by.shown(spent.value)} {self.by.unit}".strip()

    def _name(self, number: int) -> str:
        spelled = self._spelled(number)
        return self.candidates[number].name + (f" ({spelled})" if spelled else "")

    def document(self) -> Document:
        """Return a table of scores and costs, the best encoder first, with notes and the conclusion below it."""
        columns = [
            Column("encoder", [one.name for one in self.candidates]),
            Column(self.task, [Estimate(one.score, one.low, one.high) for one in self.candidates], self.metric.digits),
            Column("ties", [one.letters for one in self.candidates], words=True),
        ]
        for name, axis in AXES.items():
            if any(costs := [one.costs[name] for one in self.candidates]):
                cells = ["" if spent is None else axis.shown(spent.value) for spent in costs]
                header = name if axis.unit == f"of {name}" else axis.unit if name in axis.unit else f"{name}, {axis.unit}"
                columns.append(Column(header, cells, detail=0 if axis is self.by else 1))
        on_front = [("yes" if on else "no") if self._spent(i) is not None else "" for i, on in enumerate(self.front)]
        columns.append(Column("front", on_front))
        return Document([Table(self.title, columns)], below=self.sentences())

    def sentences(self) -> list[str]:
        """Return the sentences below the table: on its columns, on the costs, and the conclusion."""
        ties = "ties: two that share a letter do not differ significantly. " if self.different is not None else ""
        end = "faster" if self.by.more_is_cheaper else "cheaper"
        foot = f"{ties}front: no other is better and {end} ({self.by.name})."
        machine = f"Times and memory are of one machine: {self.machine}." if self.machine else ""
        return [*filter(None, [foot, machine]), *self.remarks, self.sentence]

    def omissions(self) -> list[str]:
        """Return a line for each reason and protocol of what could not be compared."""
        return reasons_lines(self.failures, self.left_out)

    def to_arrow(self) -> ArrowTable:
        """Return a row for each encoder: score, interval, letters, every cost, whether it is on the front."""
        return arrow_table([
            {"encoder": candidate.name, "score": candidate.score, "low": candidate.low, "high": candidate.high,
             "ties": candidate.letters, "front": on,
             **{name: None if spent is None else spent.value for name, spent in candidate.costs.items()}}
            for candidate, on in zip(self.candidates, self.front, strict=True)
        ])

    def plot(self, by: str | None = None) -> Figure:
        """Return a matplotlib figure of score against cost, with intervals and the front. by: another cost than the table's.
        Raises StsbenchError for an unknown cost."""
        from stsbench.display.pareto import figure

        axis = self.by if by is None else AXES.get(by)
        if axis is None:
            raise StsbenchError(f"by={shorten(by)}: costs are {', '.join(AXES)}")
        metric = self.metric
        points = [point(one.name, spent, one.score, one.low, one.high)
                  for one in self.candidates if (spent := one.costs[axis.name]) is not None]
        missing = len(self.candidates) - len(points)
        left = f"{missing} of {len(self.candidates)} left out: not known, or of another machine" if missing else ""
        note = "; ".join(filter(None, [self.machine if axis.timed else "", left]))
        what = ", ".join(filter(None, [self.setting.metric, self.setting.aggregation]))
        label = f"{self.task}: {what}{' × 100' if metric.scale == 100 else ''}{', lower is better' if metric.lower else ''}"
        drawn: Figure = figure(points, self.title, axis.label, label, lower_is_better=metric.lower,
                               more_is_cheaper=axis.more_is_cheaper, note=note)
        return drawn

    def as_json(self) -> dict[str, Any]:
        """Return the content of --json as plain data."""
        setting = {**asdict(self.setting), "settings": json.loads(self.setting.settings)}
        return {
            **{"view" if key == "text_version" else key: value for key, value in setting.items()}, "task": self.task,
            "by": self.by.name, "machine": self.machine or None, "resamples": self.resamples, "seed": self.seed,
            "encoders": [
                {"encoder": one.name, "runs": list(map(str, one.folders)), "fingerprint": one.fingerprint,
                 "score": one.score, "low": one.low, "high": one.high, "ties": one.letters or None, "front": on,
                 "costs": {name: spent and spent.value for name, spent in one.costs.items()}}
                for one, on in zip(self.candidates, self.front, strict=True)
            ],
            "different": self.different, "no_test": self.no_test or None, "sentence": self.sentence,
            "cheapest_of_the_best": [self.candidates[i].name for i in self.cheapest], "remarks": self.remarks,
            "not_compared": reasons_json(self.left_out), "failed": reasons_json(self.failures),
        }


def point(name: str, spent: Spent, score: float, low: float | None = None, high: float | None = None) -> Point:
    """Return a candidate as a point of the plot and of the front."""
    return Point(name, spent.value, score, low, high, spent.low, spent.high)
