"""What commands tell a user while they work: on stderr, beside the results on stdout."""

from __future__ import annotations

import contextlib

import click

_QUIET = False


def be_quiet(quiet: bool) -> None:
    """--quiet: from now on only results, warnings and errors are printed."""
    global _QUIET
    _QUIET = quiet


def is_quiet() -> bool:
    """Whether --quiet is on: no progress bar then."""
    return _QUIET


def log(line: str) -> None:
    """One line on stderr; with --quiet only a warning or a failure."""
    if not _QUIET or line.startswith(("warning:", "failed:")):
        with contextlib.suppress(BrokenPipeError):  # `2>&1 | head`: the work goes on whoever reads on
            click.echo(line, err=True)
