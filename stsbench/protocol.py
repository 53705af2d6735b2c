"""What a protocol is: which data it needs, what it observes from vectors, and how it scores what it observed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from numpy.typing import NDArray

from stsbench.data.sets import PairSet
from stsbench.records import Record, ScoreRow

Load = Callable[[str], PairSet]  # set id -> data


@dataclass(frozen=True)
class Observations:
    """The arrays a score is computed from, and plain names beside them. Stored, so that scores can be recomputed."""

    arrays: dict[str, NDArray[Any]]
    names: dict[str, list[str]] = field(default_factory=dict)


class Protocol(ABC):
    """One way of measuring. Stateless but for `settings`; `score` runs without torch."""

    name: ClassVar[str]
    version: ClassVar[int]

    def __init__(self, settings: Mapping[str, Any], label: str | None = None) -> None:
        self.settings: dict[str, Any] = dict(settings)
        self.label = label or self.name  # the paper whose preset chose the settings; stands in every row

    @classmethod
    @abstractmethod
    def tasks(cls) -> dict[str, str]:
        """Task names, in the order they are reported in, with the id of the set each is measured on."""

    @abstractmethod
    def observe(self, vectors: Any, row: Mapping[str, int], data: PairSet) -> Observations:
        """What is needed of the vectors. vectors: (n, d), dense or CSR; row: text -> its row in them."""

    @abstractmethod
    def score(self, observations: Observations, data_id: str, task: str) -> list[ScoreRow]:
        """Pure arithmetic. Raises ScoreError when a score cannot be computed."""

    def summarise(self, records: Sequence[Record]) -> list[ScoreRow]:
        """Scores over several records, such as an average over tasks; none by default."""
        return []
