"""Progress: a bar on stderr, none with --quiet and where stderr is not a terminal; and a training as it goes on."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from stsbench.cli.output.messages import is_quiet, print_above
from stsbench.wording import printable

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn, TaskID

    from stsbench.encoders.base import Progress as Step


class Bar:
    """One row: what is being done, how far it is, the time it has taken and the time left where its length is known."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._row: TaskID | None = None

    def __call__(self, total: int) -> Step:
        """Return encoding begins, of so many texts; returns what is called with the number of those just done."""
        row = self._begin("encoding", total)
        return lambda done: self._bar.advance(row, done)

    def doing(self, what: str) -> None:
        """Work begins whose length is not known."""
        self._begin(what, None)

    def going_on(self, task: str) -> None:
        """Rename the work that is shown; its time runs on."""
        if self._row is None:
            self._begin(task, None)
        else:
            self._bar.update(self._row, description=printable(task))

    def _begin(self, task: str, total: int | None) -> TaskID:
        if self._row is not None:
            self._bar.remove_task(self._row)
        self._row = self._bar.add_task(printable(task), total=total)
        return self._row


@contextmanager
def progress_bar() -> Iterator[Bar | None]:
    """Yield a bar that says what is being done; None without a terminal."""
    if is_quiet() or not sys.stderr.isatty():
        yield None
        return
    with draw_progress(*columns()) as bar:
        yield Bar(bar)


def columns() -> list[ProgressColumn]:
    """Return what is done, how far it is, the time it has taken and the time left."""
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    class Left(TimeRemainingColumn):
        """Drawn only where something is left and its speed is known."""

        def render(self, task):  # type: ignore[no-untyped-def]
            known = task.total is not None and not task.finished and task.time_remaining is not None
            return super().render(task) + " left" if known else ""

    how_far = (BarColumn(), TaskProgressColumn(text_format_no_percentage=""))
    return [TextColumn("{task.description}", markup=False), *how_far, TextColumn("in"), TimeElapsedColumn(), Left()]


@contextmanager
def draw_progress(*columns: ProgressColumn, transient: bool = True) -> Iterator[Progress]:
    """Yield a bar of these columns on stderr; messages go above it while it is there."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    print_above(console)
    try:
        with Progress(*columns, console=console, transient=transient) as bar:
            yield bar
    finally:
        print_above(None)


class TrainingProgress:
    """Stage, step, loss, dev score (last and best), sentences/s and time left, on stderr.

    On a terminal they are drawn several times a second, with what the training waits for. Elsewhere `log` gets one line for
    every dev evaluation and for every `line_every`-th step. Only the process that is `shown` shows anything.
    """

    def __init__(
        self, log: Callable[[str], None], *, line_every: int = 1, shown: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log, self._line_every, self._shown, self._clock = log, line_every, shown, clock
        self._live: Any = None  # rich's display, the bar in it and the stage's row of the bar
        self._bar: Any = None
        self._task: Any = None
        self._name, self._steps, self._first, self._began = "", 0, 0, 0.0
        self._numbers = self._dev = self._what = ""
        self._done, self._since = 0, 0.0  # steps of the stage, and when `_what` began
        self._best: tuple[str, str] | None = None  # the dev score's name, and its best value with its place

    def stage(self, name: str, steps: int, start_step: int = 0) -> None:
        """Show that a stage of this many steps begins, or goes on after `start_step`."""
        self._name, self._steps, self._first, self._began = name, steps, start_step, self._clock()
        self._numbers, self._dev, self._what, self._done = "", "", "", start_step
        self._best = None  # each stage, and each seed's run, starts without a best
        if self._shown and self._live is None and sys.stderr.isatty():
            self._open()
        if self._live:
            self._task = self._bar.add_task(printable(name), total=steps, completed=start_step)

    def doing(self, step: int, what: str = "") -> None:
        """Report that `step` steps of the stage are done, and `what` delays the next one."""
        self._done, self._what, self._since = step, what, self._clock()

    def step(self, step: int, loss: float, sentences_per_second: float) -> None:
        """`step` steps of the stage are done."""
        self._numbers = f"loss {loss:.4f}, {sentences_per_second:.0f} sentences/s"
        self._done = step
        if self._live is None and self._shown and (step % self._line_every == 0 or step == self._steps):
            self._log(f"{self._name} {step}/{self._steps}: {self._numbers}, {self._left(step)}")

    def dev(self, step: int, name: str, score: float | None, best: bool) -> None:
        """Show a dev evaluation after `step` steps; `best`: the highest of the stage so far, whose weights are kept."""
        digits = 4 if name.startswith("held-out") else 2
        shown = "undefined" if score is None else f"{score:.{digits}f}"
        if best:
            self._best = name, f"{shown} at step {step}"
            self._dev = f"{name} {shown} (the best so far)"
        elif self._best and self._best[0] == name:
            self._dev = f"{name} {shown} (best {self._best[1]})"
        else:
            self._dev = f"{name} {shown}"  # a resumed run's best may be from before: not known here
        if self._live is None and self._shown:
            self._log(f"{self._name} {step}/{self._steps}: {self._dev}")

    def close(self) -> None:
        """Leave the last state on the screen. May be called twice."""
        self._what = ""
        if self._live:
            self._live.stop()
            print_above(None)
            self._live = None

    def _left(self, step: int) -> str:
        """Return time left in this stage, from its mean speed here, dev evaluations included."""
        if step >= self._steps:
            return "all steps done"
        done = step - self._first
        if done <= 0:
            return "time left unknown"
        return f"{timedelta(seconds=round((self._clock() - self._began) / done * (self._steps - step)))} left"

    def _open(self) -> None:
        from rich.console import Console
        from rich.live import Live
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        name, elapsed = TextColumn("{task.description}", markup=False), (TextColumn("in"), TimeElapsedColumn())
        self._bar = Progress(name, BarColumn(), MofNCompleteColumn(), *elapsed)
        self._live = Live(
            console=Console(stderr=True, highlight=False), refresh_per_second=4, get_renderable=lambda: self._render()
        )
        print_above(self._live.console)
        self._live.start()

    def _render(self) -> Any:
        """Return what stands on the terminal at this moment."""
        from rich.console import Group
        from rich.text import Text

        if self._task is not None:
            self._bar.update(self._task, completed=self._done)
        lines = [self._numbers and f"{self._numbers}, {self._left(self._done)}", self._dev]
        if self._what:
            lines.append(f"{self._what}, {timedelta(seconds=int(self._clock() - self._since))}")
        return Group(self._bar, *(Text(printable(line)) for line in lines if line))
