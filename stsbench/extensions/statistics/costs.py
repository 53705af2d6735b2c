"""Costs by which encoders are compared: those of size wherever they were measured, those of time within one machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from stsbench.comparison.comparability import bytes_a_vector, setting_in_words, settings_of
from stsbench.encoders.cost import Cost
from stsbench.evaluation.records import Record
from stsbench.wording import sized


@dataclass(frozen=True)
class Spent:
    """One cost. low, high: of the rounds it was measured in; value alone where it is counted, not timed."""

    value: float
    low: float
    high: float

    def overlaps(self, other: Spent) -> bool:
        """Whether the rounds of both reach into each other, so that which is cheaper nobody can tell."""
        return self.low <= other.high and other.low <= self.high


@dataclass(frozen=True)
class Axis:
    """A cost by its name on the command line. label: of a picture's axis; unit: behind a number; timed: it
    depends on the machine; more_is_cheaper: it is a speed; read: of a record and the cost in it."""

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
    """'AMD EPYC 7763, 2 cores, cpu, 2 threads': the kind of a machine, and how it was used."""
    return ", ".join(filter(None, setting_in_words(setting)))


def compared_within(costs: Sequence[Cost | None]) -> tuple[list[bool], tuple[Any, ...] | None]:
    """Which times may be compared, and the setting they have in common: that of most costs, of the first of these in a tie.
    None: no cost holds any."""
    settings = [None if cost is None else settings_of(cost) for cost in costs]
    known = [setting for setting in settings if setting is not None]
    if not known:
        return [False] * len(costs), None
    counts = Counter({candidate: sum(_fits(setting, candidate) for setting in known) for candidate in known})
    # one that names a device says more than one that fits any
    common = max(dict.fromkeys(known), key=lambda setting: (counts[setting], setting[4] is not None))
    return [setting is not None and _fits(setting, common) for setting in settings], common


def _fits(setting: tuple[Any, ...], common: tuple[Any, ...]) -> bool:
    return setting[:4] == common[:4] and (setting[4:] == common[4:] or setting[4] is None)
