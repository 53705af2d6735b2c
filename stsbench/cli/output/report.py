"""Results on the terminal: as tables, in a form to paste, as JSON; reports for papers; the end of a training."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from stsbench.cli.output.messages import echo, write_json
from stsbench.display.table import Document, Table, terminal_width
from stsbench.files import atomic_write

if TYPE_CHECKING:
    from stsbench.display.tabular import Reported, Tabular


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
