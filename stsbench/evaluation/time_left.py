"""How long work will take, from what was measured of it. Nothing is said before anything was measured."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

import numpy as np

from stsbench.data.sets.sets import DataSet
from stsbench.encoders.base import Progress
from stsbench.evaluation.protocol import Protocol

WATCHED = 3.0  # seconds of work from which the rest is estimated
WORTH_SAYING = 10.0  # seconds
_AROUND = 8  # characters that a text counts for beyond its own: its first and last token


class EncodingTime:
    """Called with counts that sum to the number of texts; says once, by `log`, about how long the rest will take.

    Encoders begin with the longest texts, so that a rate in texts a second would mislead: work is counted in characters, and
    `step` gets its share, in as many steps as there are texts. The first report may be of vectors that were cached; what is
    measured begins with the second, when the model is loaded.
    """

    def __init__(
        self, texts: Sequence[str], log: Callable[[str], None], step: Progress | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        lengths = np.sort([_AROUND + len(text) for text in texts])[::-1]
        self._share = np.concatenate([[0.0], np.cumsum(lengths) / max(1, lengths.sum())])  # of the work, after i texts
        self._log, self._step, self._clock = log, step, clock
        self._done = self._reports = self._cached = self._shown = 0
        self._began = self._before = 0.0
        self._said = False

    def __call__(self, done: int) -> None:
        self._done += done
        if not done:
            return
        self._reports += 1
        if self._reports == 1:
            self._cached = self._done
        if self._step is not None:
            every = len(self._share) - 1
            shown = every if self._done == every else int(every * self._worked())
            self._step(shown - self._shown)
            self._shown = shown
        if self._said or self._reports == 1:
            return
        if self._reports == 2:
            self._began, self._before = self._clock(), self._worked()
        elif (seconds := self._clock() - self._began) >= WATCHED:
            self._said = True
            worked = self._worked()
            left = seconds / (worked - self._before) * (1 - worked)
            if left >= WORTH_SAYING:
                rest = len(self._share) - 1 - self._done
                self._log(f"encoding: {in_words(left)} left for {rest:,} texts, by the speed so far")

    def _worked(self) -> float:
        """The share of the work that is done. Which texts were cached is not known: they count as a sample of all."""
        every = len(self._share) - 1
        computed = (self._done - self._cached) / max(1, every - self._cached)
        return float(np.interp(computed * every, np.arange(every + 1), self._share))


class TasksTime:
    """How long the tasks of a protocol that are left will take, by `Protocol.work` and the seconds of those before."""

    def __init__(self, protocol: Protocol, sets: Mapping[str, DataSet]) -> None:
        self._work = {task: protocol.work(data) for task, data in sets.items()}
        self._done = self._seconds = 0.0

    def after(self, task: str, seconds: float) -> str:
        """"; about 0:01:00 left for ...", for the line that says that `task` took `seconds`; "" where little is left."""
        self._done += self._work.pop(task)
        self._seconds += seconds
        left = sum(self._work.values()) * self._seconds / self._done if self._done else 0.0
        return f"; {in_words(left)} left for {', '.join(self._work)}" if self._work and left >= WORTH_SAYING else ""


def in_words(seconds: float) -> str:
    """"about 0:02:10"."""
    return f"about {timedelta(seconds=round(seconds))}"
