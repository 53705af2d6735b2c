"""What commands tell a user while they work: on stderr, beside the results on stdout."""

from __future__ import annotations

import contextlib
import sys
import warnings
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console

_QUIET = False
_BAR: Console | None = None


def be_quiet(quiet: bool) -> None:
    """--quiet: from now on only results, warnings and errors are printed."""
    global _QUIET
    _QUIET = quiet


def is_quiet() -> bool:
    """Whether --quiet is on: no progress bar then."""
    return _QUIET


def print_above(console: Console | None) -> None:
    """Messages go above the bar that is drawn on `console` from now on; None: there is no bar any more."""
    global _BAR
    _BAR = console


def log(line: str) -> None:
    """One line on stderr; with --quiet only a warning or a failure."""
    if not _QUIET or line.startswith(("warning:", "failed:")):
        tell(line)


def tell_stopped(line: str) -> None:
    """One line on stderr after Ctrl-C, of which a terminal shows ^C in a line that it does not end."""
    with contextlib.suppress(BrokenPipeError):
        click.echo(f"\n{line}" if sys.stderr.isatty() else line, err=True)


def tell(line: str) -> None:
    """One line on stderr, with --quiet too; above a bar, where one is drawn."""
    with contextlib.suppress(BrokenPipeError):  # `2>&1 | head`: the work goes on whoever reads on
        if _BAR is None:
            click.echo(line, err=True)
        else:  # written past the bar's console, it would stand in the bar's own line
            _BAR.print(line, soft_wrap=True, markup=False, highlight=False)


def warnings_as_lines() -> None:
    """Python's warnings as one line each, like everything else here."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        tell(f"warning: {message}")

    warnings.showwarning = show
