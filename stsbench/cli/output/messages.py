"""Lines on stdout and stderr. Whatever a name or a text holds, a terminal shows it and obeys none of it."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stsbench.files import atomic_write
from stsbench.wording import break_lines, printable

if TYPE_CHECKING:
    from rich.console import Console

_QUIET = False
_BAR: Console | None = None


def escape_unencodable() -> None:
    """From now on a character that stdout or stderr cannot encode is printed as an escape."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Text on stdout or stderr, in the console's own encoding."""
    stream = sys.stderr if err else sys.stdout  # click.echo would write UTF-8 on an ASCII console
    stream.write((at_words(printable(text)) if err else printable(text)) + ("\n" if nl else ""))
    stream.flush()


def at_words(text: str) -> str:
    """Return `text` in lines that fit stderr where that is a terminal: none ends within a word, or within a command or a
    path, which is copied in one piece."""
    width = _width()
    return break_lines(text, width) if width else text


def _width() -> int:
    """Return columns of the terminal that stderr is; 0 where it is none."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns if sys.stderr.isatty() else 0
    except (OSError, ValueError):
        return 0


def be_quiet(quiet: bool) -> None:
    """--quiet: from now on only results, warnings and errors are printed."""
    global _QUIET
    _QUIET = quiet


def is_quiet() -> bool:
    """Return whether --quiet is on: no progress bar then."""
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
        echo(f"\n{line}" if sys.stderr.isatty() else line, err=True)


def tell(line: str) -> None:
    """One line on stderr, with --quiet too; above a bar, where one is drawn."""
    with contextlib.suppress(BrokenPipeError):  # `2>&1 | head`: the work goes on whoever reads on
        if _BAR is None:
            echo(line, err=True)
        else:  # written past the bar's console, it would stand in the bar's own line
            _BAR.print(at_words(printable(line)), soft_wrap=True, markup=False, highlight=False)


def warnings_as_lines() -> None:
    """Python's warnings as one line each, like everything else here."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        tell(f"warning: {message}")

    warnings.showwarning = show


def write_json(value: Any, target: str) -> None:
    """Write `value` to the file `target`, or to stdout for "-"; in ASCII, which every console can encode."""
    text = json.dumps(value, indent=1)
    if target == "-":
        echo(text)
        return
    with atomic_write(Path(target)) as stream:
        stream.write(text + "\n")
