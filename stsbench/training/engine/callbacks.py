"""Reports on a running training: the run's log, users' callbacks, and accelerate's trackers for TensorBoard and Weights &
Biases. Imports no torch."""

from __future__ import annotations

import difflib
import inspect
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from stsbench.config import flatten
from stsbench.errors import StsbenchError
from stsbench.registry import did_you_mean
from stsbench.torch_state import outside_torch

# tracker -> modules of which accelerate needs one; the first is the package to install
_MODULES = {"tensorboard": ("tensorboard", "tensorboardX"), "wandb": ("wandb",)}
_OWN = ("kind", "stage", "step")


class TrainingCallback(Protocol):
    """The base class of users' callbacks: derive from it and write the methods that you need; the others do nothing.

    A callback is called in the process that trains (of several, in the first alone), between two steps: what it does takes
    the training's time, and what it draws or sets in torch does not change the training. What it raises ends the training,
    which `resume=True` continues from the last checkpoint.
    """

    def stage(self, name: str, steps: int, start: int) -> None:
        """Note that a stage of `steps` steps begins, or is resumed after `start` of them. With several seeds, `name`
        contains the seed."""

    def doing(self, step: int, what: str = "") -> None:
        """Report that `step` steps of the stage are done, and `what` delays the next one."""

    def step(self, step: int, loss: float, sentences_per_second: float) -> None:
        """Note the mean loss since the last call, at most ten steps ago, and the rows trained on in a second."""

    def dev(self, step: int, name: str, score: float | None, best: bool) -> None:
        """Note a development score, x 100, after `step` steps; None: undefined. best: whether its weights are the best
        yet."""


EVENTS = {name: tuple(inspect.signature(method).parameters)[1:]
          for name, method in vars(TrainingCallback).items() if not name.startswith("_")}


def checked_callbacks(callbacks: Any) -> list[TrainingCallback]:
    """Return the user's `callbacks`, one or several, as a list. Raises StsbenchError, one line, for an object that is not a
    callback, and for a callback with a method that would never be called."""
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
            except ValueError:  # compiled functions may have no signature
                break


class Callbacks(TrainingCallback):
    """Several callbacks, called one after another; what they set or draw in torch does not change the training."""

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


class RunLog:
    """The log of one run, log.jsonl; `silent` in the processes that do not write it."""

    def __init__(self, path: Path, keep: int = 0, silent: bool = False) -> None:
        """Open the file and cut it after `keep` bytes: later lines were written after the checkpoint that the run is resumed
        from, and will be written again. Raises StsbenchError."""
        self.path, self._stream = path, None
        if silent:
            return
        try:
            self._stream = path.open("ab")
            if self._stream.tell() < keep:
                raise StsbenchError(f"{path} is shorter than its checkpoint says: the file was changed; start the run anew")
            self._stream.truncate(keep)
        except OSError as error:
            raise StsbenchError(f"cannot write {path}: {error.strerror or error}") from error

    def write(self, kind: str, **values: Any) -> dict[str, Any]:
        """Append one line and return it."""
        line = {"kind": kind, **values}
        if self._stream is not None:
            try:
                self._stream.write(json.dumps(line, allow_nan=False).encode() + b"\n")
                self._stream.flush()
            except OSError as error:
                raise StsbenchError(f"cannot write {self.path}: {error.strerror or error}") from error
        return line

    def position(self) -> int:
        """Return the number of bytes written, once all of them are on the disk."""
        if self._stream is None:
            return 0
        os.fsync(self._stream.fileno())
        return self._stream.tell()

    def close(self) -> None:
        """Close the file."""
        if self._stream is not None:
            self._stream.close()


def trackers(names: Sequence[str]) -> list[str]:
    """Return the names for accelerate's `log_with`, each once. Raises StsbenchError for a tracker that is unknown or not
    installed, which accelerate would silently ignore."""
    chosen = list(dict.fromkeys(names))
    for name in chosen:
        if name not in _MODULES:
            raise StsbenchError(f"unknown tracker '{name}'{did_you_mean(name, _MODULES)}; there are {', '.join(_MODULES)}")
        # find_spec takes a folder wandb/ of W&B's runs in the working folder for a namespace package: it has no origin
        if not any((spec := find_spec(module)) and spec.origin for module in _MODULES[name]):
            raise StsbenchError(f"the tracker {name} is not installed: pip install {_MODULES[name][0]}")
    return chosen


def to_scalars(line: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of a train or dev line for `Accelerator.log(values, step)`, named STAGE/loss, STAGE/terms/NAME, ...

    A dev score has its own name, with dashes for blanks: main/sts-b-dev; further numbers of a method have theirs. Returns {}
    for other lines. Steps start at 0 in every stage, and W&B drops values of earlier steps: add the steps of earlier stages.
    """
    if line["kind"] == "dev":
        more = {name: value for name, value in line.items() if name not in (*_OWN, "name", "score", "best")}
        scores = flatten({line["name"].replace(" ", "-"): line["score"], **more}, joint="/")
        return {f"{line['stage']}/{name}": float(value) for name, value in scores.items() if isinstance(value, int | float)}
    if line["kind"] != "train":
        return {}
    return {f"{line['stage']}/{name}": float(value) for name, value in flatten(line, joint="/").items()
            if name not in _OWN and isinstance(value, int | float) and not isinstance(value, bool)}


def flat_config(recipe: Mapping[str, Any]) -> dict[str, int | float | str | bool]:
    """Return a nested recipe as a flat mapping of dotted keys, such as training.learning_rate, for `init_trackers`.

    TensorBoard takes numbers, strings and booleans only: a list is written as text, null is left out.
    """
    return {name: value if isinstance(value, int | float | str) else str(value)
            for name, value in flatten(recipe).items() if value is not None}
