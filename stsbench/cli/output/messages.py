"""What commands print, lines and results. Whatever a name or a text holds, a terminal shows it and obeys none of it."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from stsbench.display.table import Document, Table, terminal_width
from stsbench.files import atomic_write
from stsbench.wording import break_lines, printable

if TYPE_CHECKING:
    from rich.console import Console

    from stsbench.display.tabular import Reported, Tabular

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


def write_report(result: Reported, target: str) -> None:
    """Write a report to the file `target`, LaTeX where it ends in .tex, or as Markdown to stdout for "-"."""
    text = result.report("latex" if target.lower().endswith(".tex") else "markdown")
    if target == "-":
        echo(text, nl=False)
        return
    with atomic_write(Path(target)) as stream:
        stream.write(text)


def print_omissions(result: Tabular) -> None:
    """Write a line to stderr for whatever failed or was left out."""
    for line in result.omissions():
        echo(line, err=True)


def print_document(document: Document) -> None:
    """Write tables and lines to stdout, as wide as the terminal where it is one, and averages bold there."""
    if sys.stdout.isatty() and "NO_COLOR" not in os.environ:
        sys.stdout.write(document.text(terminal_width(), bold=True) + "\n")  # `echo` would show the codes of bold
    else:
        echo(document.text(terminal_width()))


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Write one table of rows of cells to stdout."""
    print_document(Document([Table.from_rows(title, header, rows)]))


def print_result(
    result: Tabular, form: str = "table", *, json_target: str | None = None, report_target: str | None = None,
    above: Sequence[str] | None = None,
) -> None:
    """Write a result to stdout: as tables, or as LaTeX, Markdown or CSV.

    json_target, report_target: files for it as JSON and as a report; with "-" stdout is that alone. above: lines that stand
    above its tables instead of its own.
    """
    if json_target:
        write_json(result.as_json(), json_target)
    if report_target:
        write_report(cast("Reported", result), report_target)
    if "-" in (json_target, report_target):
        return
    if form != "table":
        echo({"latex": result.latex, "markdown": result.markdown, "csv": result.csv}[form](), nl=False)
        return
    document = result.document()
    print_document(document if above is None else replace(document, above=above))


def print_summary(folder: Path, summary: dict[str, Any]) -> None:
    """Dev before, best and after, or the table over seeds or subsets, then the scores of the final test, on stdout."""
    if "subsets" in summary:
        _subsets(summary)
    elif "seeds" in summary:
        _seeds(summary)
    else:
        _run(folder, summary)
    for task, why in summary.get("failures", {}).items():
        echo(f"failed: {task}: {why}", err=True)


def _run(folder: Path, summary: dict[str, Any]) -> None:
    name = summary["selected_by"]
    before, after = (
        "undefined" if summary[when] is None else f"{summary[when]:.2f}" for when in ("before", "after")
    )
    undefined = summary.get("undefined", [])
    if summary["before"] is not None or undefined:
        kept = summary["best"]
        stage = f" of stage {kept['stage']}" if kept and set(summary["stages"]) != {kept["stage"]} else ""
        best = f"best {kept['score']:.2f} at step {kept['step']}{stage}" if kept else "no step in between was scored"
        if kept and summary["before"] is not None and kept["score"] < summary["before"]:
            best += " (below the start)"
        if not kept and undefined:
            best = "no step that could be kept has a score"
        line = f"{name}: {before} before, {best}, {after} after the last step"
        print_document(Document(above=[line]))
    echo(f"exported {summary['exported']}: {folder / 'best'}")
    if (folder / "eval").is_dir():
        from stsbench.evaluation.rescore import score_again

        result = score_again(folder / "eval")
        print_result(result)
        print_omissions(result)


def _seeds(summary: dict[str, Any]) -> None:
    from stsbench.training.runs.report import seed_table, shared_line

    title = f"{len(summary['seeds'])} seeds: {', '.join(map(str, summary['seeds']))}"
    _table(title, ("score", "mean", "sd", "n"), seed_table(summary))
    if line := shared_line(summary):
        echo(line)


def _subsets(summary: dict[str, Any]) -> None:
    from stsbench.training.runs.report import seed_table, shared_line, subset_rows

    for line in subset_rows(summary):
        echo(line)
    subsets, seeds = (", ".join(map(str, summary[key])) for key in ("subsets", "seeds"))
    title = f"{len(summary['subsets'])} subsets ({subsets}) of {len(summary['seeds'])} seeds ({seeds})"
    _table(title, ("score", "mean", "sd of runs", "n", "sd of subsets"), seed_table(summary))
    if shared := shared_line(summary):
        echo(shared)


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    print_table(title, columns, rows)
    if not rows:
        echo("no score to average: there was no dev evaluation and no --eval")
