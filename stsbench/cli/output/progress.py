"""A progress bar on stderr; none with --quiet, and where stderr is not a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

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
        """Encoding begins, of so many texts; returns what is called with the number of those just done."""
        row = self._begin("encoding", total)
        return lambda done: self._bar.advance(row, done)

    def doing(self, what: str) -> None:
        """Work begins whose length is not known."""
        self._begin(what, None)

    def going_on(self, what: str) -> None:
        """The same work is further on: its time runs on."""
        if self._row is None:
            self._begin(what, None)
        else:
            self._bar.update(self._row, description=printable(what))

    def _begin(self, what: str, total: int | None) -> TaskID:
        if self._row is not None:
            self._bar.remove_task(self._row)
        self._row = self._bar.add_task(printable(what), total=total)
        return self._row


@contextmanager
def progress_bar() -> Iterator[Bar | None]:
    """Yield a bar that says what is being done; None without a terminal."""
    if is_quiet() or not sys.stderr.isatty():
        yield None
        return
    with drawn(*columns()) as bar:
        yield Bar(bar)


def columns() -> list[ProgressColumn]:
    """What is done, how far it is, the time it has taken and the time left."""
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    class Left(TimeRemainingColumn):
        """Drawn only where something is left and its speed is known."""

        def render(self, task):  # type: ignore[no-untyped-def]
            known = task.total is not None and not task.finished and task.time_remaining is not None
            return super().render(task) + " left" if known else ""

    how_far = (BarColumn(), TaskProgressColumn(text_format_no_percentage=""))
    return [TextColumn("{task.description}", markup=False), *how_far, TextColumn("in"), TimeElapsedColumn(), Left()]


@contextmanager
def drawn(*columns: ProgressColumn, transient: bool = True) -> Iterator[Progress]:
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
