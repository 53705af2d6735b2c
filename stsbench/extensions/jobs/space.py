"""The search space of a sweep, and the optuna study that proposes its trials to any number of workers."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import product
from math import prod
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Tag, model_validator

from stsbench.config import parse_yaml, read_yaml, validate
from stsbench.errors import StsbenchError
from stsbench.extensions.jobs.state import BESIDE, alone
from stsbench.files import lock_file
from stsbench.parsing import parse_json
from stsbench.registry import did_you_mean
from stsbench.settings import Settings, setting
from stsbench.training.recipes.methods import find_method

LARGEST = 2**53  # optuna computes with floats, which do not represent every larger whole number
Value = None | bool | int | float | str
Values = Mapping[str, Value]
Sampler = Literal["grid", "random", "tpe"]
UNSCORED = "unscored"  # fact of a failed trial that was trained and has no development score


class Range(Settings):
    """All numbers from low to high, both included; whole numbers where both are."""

    low: int | float = setting(..., "the lowest")
    high: int | float = setting(..., "the highest")
    log: bool = setting(False, "orders of magnitude are as likely as one another")

    @model_validator(mode="after")
    def _goes_up(self) -> Range:
        if max(abs(self.low), abs(self.high)) > LARGEST:
            raise ValueError(f"low and high must be numbers between -{LARGEST:g} and {LARGEST:g}")
        if not self.low < self.high:
            raise ValueError(f"low {self.low} is not below high {self.high}")
        if self.log and self.low <= 0:
            raise ValueError(f"log needs low above 0, not {self.low}")
        return self


def _kind(among: Any) -> str:
    return "range" if isinstance(among, dict | Range) else "values"


Among = Annotated[Annotated[list[Value], Tag("values")] | Annotated[Range, Tag("range")], Discriminator(_kind)]


class Space(Settings):
    """A space file."""

    space: dict[str, Among] = setting(..., "dotted key of the recipe -> list of values, or low, high, log", min_length=1)
    source: str = setting("", "where it is from")

    @model_validator(mode="after")
    def _has_choices(self) -> Space:
        for key, among in self.space.items():
            if isinstance(among, list) and (not among or len({repr(value) for value in among}) < len(among)):
                raise ValueError(f"space.{key} must be a list of different values")
        return self

    @property
    def finite(self) -> bool:
        """Return whether the space is a grid: lists of values, no ranges."""
        return all(isinstance(among, list) for among in self.space.values())

    @property
    def points(self) -> int:
        """Return how many combinations a finite space has."""
        return prod(len(among) for among in self.space.values() if isinstance(among, list))

    def grid(self) -> Iterator[dict[str, Value]]:
        """Yield every combination of a finite space; the last key varies fastest."""
        among = [values if isinstance(values, list) else [] for values in self.space.values()]
        for values in product(*among):
            yield dict(zip(self.space, values, strict=True))


def read_space(method: str, name: str) -> Space:
    """Return the search space of a file, or of a name among the method's spaces/. Raises StsbenchError, one line that names
    file and key."""
    folder = find_method(method).folder / "spaces"
    shipped, path = folder / f"{name}.yaml", Path(name).expanduser()
    if shipped.is_file():
        path = shipped
    elif not path.is_file():
        known = sorted(file.stem for file in folder.glob("*.yaml"))
        hint = did_you_mean(name, known) if known else f"; the method {method} brings none by name"
        raise StsbenchError(f"--space {name}: there is no such file{hint}")
    return validate(Space, read_yaml(path), str(path))


def space_of_grid(words: Sequence[str]) -> Space:
    """Return the space of --grid KEY=VALUE,VALUE words. Raises StsbenchError for a word that is not one."""
    space: dict[str, Any] = {}
    for word in words:
        key, equals, listed = word.partition("=")
        values = [value.strip() for value in listed.split(",")]
        if not equals or not all(values):
            raise StsbenchError(f"--grid {word}: write it as KEY=VALUE,VALUE")
        if key in space:
            raise StsbenchError(f"--grid {word}: {key} is there twice")
        space[key] = [parse_yaml(value, f"--grid {word}") for value in values]
    return validate(Space, {"space": space}, "--grid")


@dataclass(frozen=True)
class Trial:
    """One choice of values. state: optuna's name of it; score: mean over seeds, None unless the trial is complete; facts:
    what the storage keeps of a trial that has ended (scores, by, recipe, reason, unscored; see `sweep.py`)."""

    number: int
    values: dict[str, Value]
    state: str
    score: float | None = None
    facts: dict[str, Any] = field(default_factory=dict)


class Study:
    """The trials of one search, in a storage that several processes may share.

    A worker locks its trial. A trial whose worker has died is taken over by the next worker that asks for one.
    """

    def __init__(
        self, name: str, space: Space, sampler: Sampler, trials: int | None, output: Path, *, storage: str | None, seed: int,
        prune: bool, log: Callable[[str], None] = lambda line: None,
    ) -> None:
        """storage: optuna's URL, None: a journal in the output folder; trials: how many, None: the whole grid.

        Raises StsbenchError where optuna is not installed, or the storage cannot be opened.
        """
        self._optuna = optuna = _optuna()
        self.space, self.sampler, self._output, self._prune = space, sampler, output, prune
        self._trials, self._locks = trials, dict[int, ExitStack]()
        (output / BESIDE).mkdir(parents=True, exist_ok=True)
        location: Any = storage
        journal = output / BESIDE / "study.journal"
        if storage is None:
            lock = optuna.storages.journal.JournalFileSymlinkLock(str(journal))
            _mend(journal, lock, log)
        try:
            if storage is None:
                location = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(journal), lock))
            with alone(output):
                self._study = optuna.create_study(
                    storage=location, study_name=name, direction="maximize", load_if_exists=True,
                    pruner=optuna.pruners.MedianPruner(n_startup_trials=4) if prune else optuna.pruners.NopPruner(),
                )
                before = self._study.get_trials(deepcopy=False)
                self._kind = optuna.samplers.TPESampler if sampler == "tpe" else optuna.samplers.RandomSampler
                self._seed = seed
                # Failed points of a grid are tried again, except where the training succeeded and only the score is missing.
                self._failed = {trial.number for trial in before
                                if trial.state.name == "FAIL" and not trial.user_attrs.get(UNSCORED)}
        except Exception as error:
            if isinstance(error, StsbenchError):
                raise
            location = str(journal) if storage is None else f"--storage {storage}"
            raise StsbenchError(f"{location}: {type(error).__name__}: {' '.join(str(error).split())}") from error

    def ask(self, most: int) -> list[Trial]:
        """Lock and return at most `most` trials: those that a dead worker left unfinished, then new ones; [] at the end."""
        states = self._optuna.trial.TrialState
        asked: list[Trial] = []
        with alone(self._output):
            for frozen in self._study.get_trials(deepcopy=False, states=(states.RUNNING,)):
                if len(asked) < most and frozen.number not in self._locks and self._lock(frozen.number):
                    asked.append(self._suggested(self._optuna.trial.Trial(self._study, frozen._trial_id)))
            while len(asked) < most and self._another():
                trial = self._study.ask()
                self._lock(trial.number)
                asked.append(self._suggested(trial))
        return asked

    def report(self, trial: Trial, step: int, score: float) -> bool:
        """Report a trial's development score at a step, and return whether the trial is to be pruned."""
        if not self._prune:
            return False
        asked = self._live(trial)
        asked.report(score, step)
        return self.should_stop(trial)

    def should_stop(self, trial: Trial) -> bool:
        """Return whether a trial is to be pruned at its last report: other trials may have reached that step since."""
        return self._prune and bool(self._live(trial).should_prune())

    def tell(self, trial: Trial, score: float | None, pruned: bool = False, facts: Mapping[str, Any] | None = None) -> None:
        """Store the end of a trial: its score, or that it was pruned, or (score None) that it failed. facts: stored as
        its attributes."""
        states = self._optuna.trial.TrialState
        state = states.PRUNED if pruned else states.FAIL if score is None else states.COMPLETE
        live = self._live(trial)
        if not self._study.get_trials(deepcopy=False)[trial.number].state.is_finished():  # by a worker in another folder
            for name, value in (facts or {}).items():
                live.set_user_attr(name, value)
            self._study.tell(live, score if state == states.COMPLETE else None, state=state)
        self._locks.pop(trial.number).close()

    def trials(self) -> list[Trial]:
        """Return every started trial, by number."""
        frozen = self._study.get_trials(deepcopy=False)
        return [
            Trial(trial.number, dict(trial.params), trial.state.name.lower(),
                  trial.value if trial.state.name == "COMPLETE" else None, dict(trial.user_attrs))
            for trial in frozen if trial.state.name != "WAITING"
        ]

    def _live(self, trial: Trial) -> Any:
        frozen = self._study.get_trials(deepcopy=False)[trial.number]
        return self._optuna.trial.Trial(self._study, frozen._trial_id)

    def _another(self) -> bool:
        """Return whether to start another trial; for a grid, enqueue its point. A trial that failed counts as started."""
        states = self._optuna.trial.TrialState
        everything = self._study.get_trials(deepcopy=False)
        if self._trials is not None:
            started: int = sum(trial.state != states.WAITING for trial in everything)
            return started < self._trials
        if any(trial.state == states.WAITING for trial in everything):
            return True
        tried = (trial for trial in everything if trial.number not in self._failed)
        there = {_as_text(trial.params or trial.system_attrs.get("fixed_params", {})) for trial in tried}
        point = next((values for values in self.space.grid() if _as_text(values) not in there), None)
        if point is not None:
            self._study.enqueue_trial(point)
        return point is not None

    def _suggested(self, trial: Any) -> Trial:
        # Seeded with the trial's number, which is unique in the storage, so that two workers never draw the same values.
        self._study.sampler = self._kind(seed=self._seed + trial.number)
        values: dict[str, Value] = {}
        for key, among in self.space.space.items():
            if not isinstance(among, Range):
                values[key] = trial.suggest_categorical(key, among)
            elif isinstance(among.low, int) and isinstance(among.high, int):
                values[key] = trial.suggest_int(key, among.low, among.high, log=among.log)
            else:
                values[key] = trial.suggest_float(key, among.low, among.high, log=among.log)
        return Trial(trial.number, values, "running")

    def _lock(self, number: int) -> bool:
        stack = ExitStack()
        stream = stack.enter_context((self._output / BESIDE / f"trial-{number}.lock").open("a"))
        if lock_file(stream.fileno()) is False:
            stack.close()
            return False
        self._locks[number] = stack
        return True


def _as_text(values: Mapping[str, Value]) -> str:
    return json.dumps(values, sort_keys=True)


def _mend(journal: Path, lock: Any, log: Callable[[str], None]) -> None:
    """Drop an incomplete last line, left by a power cut or a full disk, as the next record would be appended to it.

    lock: optuna's lock of the journal. Raises StsbenchError for any other line that is not JSON.
    """
    if not journal.is_file():
        return
    lock.acquire()
    try:
        content = journal.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                parse_json(line.decode())
            except ValueError as error:
                raise StsbenchError(f"{journal}:{number}: not JSON: the file is damaged: put it back, or choose another "
                                    "--output") from error
        if whole != content:
            os.truncate(journal, len(whole))
            log(f"{journal}: its last line was cut off and is left out")
    finally:
        lock.release()


def _optuna() -> ModuleType:
    try:
        import optuna
    except ImportError as error:
        raise StsbenchError("a sweep needs optuna: pip install 'stsbench[jobs]'") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    module: ModuleType = optuna
    return module
