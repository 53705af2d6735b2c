"""Who is told how a training goes on: a progress display, a log of the user's own. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class TrainingCallback(Protocol):
    """Derive from it and write the methods that matter; the others do nothing.

    It is called in the process that trains (of several, in the first alone), between two steps: what it does takes the
    training's time. What it raises ends the training, which `resume=True` continues from the last checkpoint.
    """

    def stage(self, name: str, steps: int, start: int) -> None:
        """A stage of `steps` steps begins, or goes on after `start` of them. Of several seeds its name says which."""

    def doing(self, step: int, what: str = "") -> None:
        """`step` steps of the stage are done; `what`, if anything, takes time before the next one."""

    def step(self, step: int, loss: float, sentences_per_second: float) -> None:
        """At each line of the log, ten steps after the last or fewer: their mean loss, and the rows trained on a second."""

    def dev(self, step: int, name: str, score: float | None, best: bool) -> None:
        """A development score, x 100, after `step` steps; None: undefined. best: these weights are kept as the best."""


class Callbacks(TrainingCallback):
    """Several, called one after another."""

    def __init__(self, callbacks: Sequence[TrainingCallback]) -> None:
        self._callbacks = callbacks

    def stage(self, name: str, steps: int, start: int) -> None:
        for callback in self._callbacks:
            callback.stage(name, steps, start)

    def doing(self, step: int, what: str = "") -> None:
        for callback in self._callbacks:
            callback.doing(step, what)

    def step(self, step: int, loss: float, sentences_per_second: float) -> None:
        for callback in self._callbacks:
            callback.step(step, loss, sentences_per_second)

    def dev(self, step: int, name: str, score: float | None, best: bool) -> None:
        for callback in self._callbacks:
            callback.dev(step, name, score, best)
