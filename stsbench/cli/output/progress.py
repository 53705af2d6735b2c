"""A progress bar on stderr; none with --quiet, and where stderr is not a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from stsbench.cli.output.messages import is_quiet, print_above
from stsbench.evaluation.api import StartProgress

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn


@contextmanager
def progress_bar() -> Iterator[StartProgress | None]:
    """Yield a function that starts a bar of a given length and returns its step function; None without a terminal."""
    if is_quiet() or not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn

    # No time left: texts are no measure of it, since encoders begin with the longest. `EncodingTime` says it in a line.
    with drawn(TextColumn("encoding"), BarColumn(), MofNCompleteColumn()) as bar:

        def start(total: int):  # type: ignore[no-untyped-def]
            task = bar.add_task("encoding", total=total)
            return lambda done: bar.advance(task, done)

        yield start


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
