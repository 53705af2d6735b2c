"""A training as it goes on: a live bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from stsbench.cli.output.messages import print_above


class TrainingProgress:
    """Stage, step, loss, dev score (last and best), sentences/s and time left, on stderr.

    On a terminal they are drawn with rich and follow every `step`. Elsewhere `log` gets one line for every dev evaluation
    and for every `line_every`-th step. Only the process that is `shown` shows anything.
    """

    def __init__(
        self, log: Callable[[str], None], *, line_every: int = 1, shown: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._log, self._line_every, self._shown, self._clock = log, line_every, shown, clock
        self._live: Any = None  # rich's display, the bar in it and the stage's row of the bar
        self._bar: Any = None
        self._task: Any = None
        self._name, self._steps, self._first, self._began = "", 0, 0, 0.0
        self._numbers = self._dev = ""
        self._best: tuple[str, str] | None = None  # the dev score's name, and its best value with its place

    def stage(self, name: str, steps: int, start_step: int = 0) -> None:
        """A stage of this many steps begins, or goes on after `start_step`."""
        self._name, self._steps, self._first, self._began = name, steps, start_step, self._clock()
        self._numbers, self._dev, self._best = "", "", None  # each stage, and each seed's run, starts without a best
        if self._shown and self._live is None and sys.stderr.isatty():
            self._open()
        if self._live:
            self._task = self._bar.add_task(name, total=steps, completed=start_step)
            self._draw()

    def step(self, step: int, loss: float, sentences_per_second: float) -> None:
        """`step` steps of the stage are done."""
        self._numbers = f"loss {loss:.4f}, {sentences_per_second:.0f} sentences/s"
        if self._live:
            self._bar.update(self._task, completed=step)
            self._numbers += f", {self._left(step)}"
            self._draw()
        elif self._shown and (step % self._line_every == 0 or step == self._steps):
            self._log(f"{self._name} {step}/{self._steps}: {self._numbers}, {self._left(step)}")

    def dev(self, step: int, name: str, score: float | None, best: bool) -> None:
        """A dev evaluation after `step` steps; `best`: the highest of the stage so far, whose weights are kept."""
        digits = 4 if name.startswith("held-out") else 2
        shown = "undefined" if score is None else f"{score:.{digits}f}"
        if best:
            self._best = name, f"{shown} at step {step}"
            self._dev = f"{name} {shown} (the best so far)"
        elif self._best and self._best[0] == name:
            self._dev = f"{name} {shown} (best {self._best[1]})"
        else:
            self._dev = f"{name} {shown}"  # a resumed run's best may be from before: not known here
        if self._live:
            self._draw()
        elif self._shown:
            self._log(f"{self._name} {step}/{self._steps}: {self._dev}")

    def close(self) -> None:
        """Leave the last state on the screen. May be called twice."""
        if self._live:
            self._live.stop()
            print_above(None)
            self._live = None

    def _left(self, step: int) -> str:
        """Time left in this stage, from its mean speed here, dev evaluations included."""
        if step >= self._steps:
            return "stage done"
        done = step - self._first
        if done <= 0:
            return "time left unknown"
        return f"{timedelta(seconds=round((self._clock() - self._began) / done * (self._steps - step)))} left"

    def _open(self) -> None:
        from rich.console import Console
        from rich.live import Live
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        name, elapsed = TextColumn("{task.description}"), (TextColumn("in"), TimeElapsedColumn())
        self._bar = Progress(name, BarColumn(), MofNCompleteColumn(), *elapsed)
        self._live = Live(console=Console(stderr=True, highlight=False), refresh_per_second=4)
        print_above(self._live.console)
        self._live.start()

    def _draw(self) -> None:
        from rich.console import Group
        from rich.text import Text

        lines = [Text(line) for line in (self._numbers, self._dev) if line]
        self._live.update(Group(self._bar, *lines))
