"""A progress bar on stderr; none with --quiet, and where stderr is not a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from stsbench.cli.output.messages import is_quiet
from stsbench.evaluation.api import StartProgress


@contextmanager
def progress_bar() -> Iterator[StartProgress | None]:
    """Yield a function that starts a bar of a given length and returns its step function; None without a terminal."""
    if is_quiet() or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("encoding"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:

        def start(total: int):  # type: ignore[no-untyped-def]
            task = bar.add_task("encoding", total=total)
            return lambda done: bar.advance(task, done)

        yield start
