"""The errors that users see: one line each, naming the file, row or option at fault and what to do."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable

import click


class StsbenchError(Exception):
    """Anything a user can put right. The command line prints it on one line and exits with 1."""


class UsageError(StsbenchError, click.UsageError):
    """Options that exclude, or need, one another. As click's error it lets a command say how it is used and exit with 2."""


class StsbenchWarning(UserWarning):
    """What a user of Python must know of a result, and the command line prints: altered data, cut texts, failed tasks."""


class DataError(StsbenchError):
    """A data file is missing, malformed or not what the catalog knows."""


class MissingDataError(DataError):
    """A data set is in none of the places searched."""


class EncoderError(StsbenchError):
    """A model cannot be loaded, or it returned something that is not an embedding."""


class NotOnThisMachineError(EncoderError):
    """A model is not on this machine, and cannot be fetched now."""


class DegenerateError(EncoderError):
    """No score can be made of a model's vectors: some are NaN or infinite, or all are one."""


class ScoreError(StsbenchError):
    """A score that cannot be computed (constant predictions, too few pairs): a failure with a reason, never 0 or NaN."""


def one_line(error: Exception) -> str:
    """Return the reason for people: a StsbenchError's own line, else the error's kind and what it says."""
    if isinstance(error, StsbenchError):
        return " ".join(str(error).splitlines())
    return " ".join(f"{type(error).__name__}: {error}".split())


def check_log(log: object) -> None:
    """Raise StsbenchError for a user's `log` that cannot be called."""
    if log is not None and not callable(log):
        raise StsbenchError(f"log must be a function that takes a line, and not of type {type(log).__name__}")


def warning_log() -> Callable[[str], None]:
    """Return the `log` of a function that prints nothing: a line "warning: ..." becomes a StsbenchWarning, once, at the
    line that called the function which asks for this; other lines are dropped."""
    caller, heard = sys._getframe(2), set[str]()
    while caller.f_back is not None and caller.f_globals.get("__name__") == "stsbench.options":  # it stands around functions
        caller = caller.f_back

    def log(line: str) -> None:
        message = line.removeprefix("warning: ")
        if message != line and message not in heard:
            heard.add(message)
            # of no registry: Python would keep to itself what a loop over models says of the second one in the same words
            warnings.warn_explicit(message, StsbenchWarning, caller.f_code.co_filename, caller.f_lineno)

    return log
