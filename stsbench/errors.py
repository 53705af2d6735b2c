"""The errors that users see: one line each, naming the file, row or option at fault and what to do."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable

import click


class StsbenchError(Exception):
    """Anything a user can put right. The command line prints it on one line and exits with 1."""


class UsageError(StsbenchError, click.UsageError):
    """Options exclude, or need, one another. As it is click's error, too, a command prints its usage and exits with 2."""


class StsbenchWarning(UserWarning):
    """A warning about a result, which the command line prints: altered data, cut texts, failed tasks."""


class DataError(StsbenchError):
    """A data file is missing, malformed or different from the catalog's."""


class MissingDataError(DataError):
    """A data set is in none of the folders that were searched."""


class EncoderError(StsbenchError):
    """A model cannot be loaded, or it returned something that is not an embedding."""


class NotOnThisMachineError(EncoderError):
    """A model is not on this machine, and cannot be fetched now."""


class DegenerateError(EncoderError):
    """A model's vectors have no score: some are NaN or infinite, or all are equal."""


class ScoreError(StsbenchError):
    """A score that cannot be computed (constant predictions, too few pairs): a failure with a reason, never 0 or NaN."""


def one_line(error: Exception) -> str:
    """Return an error in one line: a StsbenchError's message, else the error's type and message."""
    if isinstance(error, StsbenchError):
        return " ".join(str(error).splitlines())
    return " ".join(f"{type(error).__name__}: {error}".split())


def check_log(log: object) -> None:
    """Raise StsbenchError for a user's `log` that cannot be called."""
    if log is not None and not callable(log):
        raise StsbenchError(f"log must be a function that takes a line, and not of type {type(log).__name__}")


def warning_log() -> Callable[[str], None]:
    """Return the `log` of a public function that prints nothing: a line "warning: ..." becomes a StsbenchWarning, once,
    located where the user called that function; other lines are dropped."""
    caller, heard = sys._getframe(2), set[str]()
    while caller.f_back is not None and caller.f_globals.get("__name__") == "stsbench.options":  # its wrapper of functions
        caller = caller.f_back

    def log(line: str) -> None:
        message = line.removeprefix("warning: ")
        if message != line and message not in heard:
            heard.add(message)
            # without a registry, by which Python would suppress the same warning about the next model of a loop
            warnings.warn_explicit(message, StsbenchWarning, caller.f_code.co_filename, caller.f_lineno)

    return log
