"""Who is told how a training goes on: a progress display, a log of the user's own. Imports no torch."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from stsbench.errors import StsbenchError
from stsbench.torch_state import outside_torch


class TrainingCallback(Protocol):
    """Derive from it and write the methods that matter; the others do nothing.

    It is called in the process that trains (of several, in the first alone), between two steps: what it does takes the
    training's time, and what it draws or sets in torch does not change the training. What it raises ends the training, which
    `resume=True` continues from the last checkpoint.
    """

    def stage(self, name: str, steps: int, start: int) -> None:
        """A stage of `steps` steps begins, or goes on after `start` of them. Of several seeds its name says which."""

    def doing(self, step: int, what: str = "") -> None:
        """`step` steps of the stage are done; `what`, if anything, takes time before the next one."""

    def step(self, step: int, loss: float, sentences_per_second: float) -> None:
        """At each line of the log, ten steps after the last or fewer: their mean loss, and the rows trained on a second."""

    def dev(self, step: int, name: str, score: float | None, best: bool) -> None:
        """A development score, x 100, after `step` steps; None: undefined. best: these weights are kept as the best."""


EVENTS = {name: tuple(inspect.signature(method).parameters)[1:]
          for name, method in vars(TrainingCallback).items() if not name.startswith("_")}


def checked_callbacks(callbacks: Any) -> list[TrainingCallback]:
    """What a user gave as `callbacks`, one or several, as a list. Raises StsbenchError, one line, for what is no callback,
    and for one with a method that would never be called."""
    several = isinstance(callbacks, Iterable) and not any(hasattr(callbacks, name) for name in EVENTS)
    listed = list(callbacks) if several else [callbacks]
    for callback in listed:
        _check(callback)
    return listed


def _check(callback: Any) -> None:
    kind = callback if isinstance(callback, type) else type(callback)
    events = ", ".join(EVENTS)
    how = f"derive a class from stsbench.training.TrainingCallback, write {events} as needed, and give an instance"
    if isinstance(callback, type):
        raise StsbenchError(f"callbacks: {kind.__name__} is a class: give an instance, {kind.__name__}()")
    if missing := [name for name in EVENTS if not callable(getattr(callback, name, None))]:
        lacks = f"it has no {missing[0]}"
        raise StsbenchError(f"callbacks: {getattr(callback, '__name__', kind.__name__)} is no callback, as {lacks}: {how}")
    heard = any(getattr(callback, name).__func__ is not vars(TrainingCallback)[name]
                if inspect.ismethod(getattr(callback, name)) else True for name in EVENTS)
    written = {name for part in kind.__mro__ if part is not TrainingCallback
               for name, method in vars(part).items() if not name.startswith("_") and inspect.isfunction(method)}
    for name in sorted(written - EVENTS.keys()):
        near = [event for event in EVENTS if sorted(event) == sorted(name)]
        near += difflib.get_close_matches(name.removeprefix("on_"), EVENTS, n=1, cutoff=0.85 if heard else 0.6)
        if near or name.startswith("on_") or not heard:
            hint = f"did you mean {near[0]}? " if near else ""
            raise StsbenchError(f"callbacks: {kind.__name__}.{name} is no event and would never be called: {hint}there are "
                                f"{events}; a method of your own begins with _")
    for name, parameters in EVENTS.items():
        method = getattr(callback, name)
        for count in {len(parameters), 1 if name == "doing" else len(parameters)}:
            try:
                inspect.signature(method).bind(*parameters[:count])
            except TypeError as error:
                raise StsbenchError(
                    f"callbacks: {kind.__name__}.{name} must take ({', '.join(parameters)}): {error}"
                ) from error
            except ValueError:  # of a compiled function nothing is known
                break


class Callbacks(TrainingCallback):
    """Several, called one after another, outside of the training: nothing that they do in torch reaches it."""

    def __init__(self, callbacks: Sequence[TrainingCallback]) -> None:
        self._callbacks = callbacks

    def stage(self, name: str, steps: int, start: int) -> None:
        self._call("stage", name, steps, start)

    def doing(self, step: int, what: str = "") -> None:
        self._call("doing", step, what)

    def step(self, step: int, loss: float, sentences_per_second: float) -> None:
        self._call("step", step, loss, sentences_per_second)

    def dev(self, step: int, name: str, score: float | None, best: bool) -> None:
        self._call("dev", step, name, score, best)

    def _call(self, method: str, *values: Any) -> None:
        with outside_torch():
            for callback in self._callbacks:
                getattr(callback, method)(*values)
