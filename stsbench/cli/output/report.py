"""Scores on the terminal: as tables, or in a form to paste; and reports for papers."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from stsbench.cli.output.grid import Column, console_of, print_columns, print_text
from stsbench.cli.output.messages import echo
from stsbench.display.report import Form
from stsbench.evaluation.records import Scores
from stsbench.evaluation.tables import as_csv, headlines, latex, markdown, remarks, sheets
from stsbench.files import atomic_write


class Reported(Protocol):
    """A result that can be reported."""

    def report(self, form: Form = "markdown") -> str:
        """The report as Markdown or LaTeX."""


def write_report(result: Reported, target: str) -> None:
    """Write a report to the file `target`, LaTeX where it ends in .tex, or as Markdown to stdout for "-"."""
    text = result.report("latex" if target.lower().endswith(".tex") else "markdown")
    if target == "-":
        echo(text, nl=False)
        return
    with atomic_write(Path(target)) as stream:
        stream.write(text)


def print_report(result: Scores, form: str) -> None:
    """Write every score to stdout as tables, as a LaTeX or Markdown table, or as CSV rows."""
    if form == "table":
        print_scores(result)
    else:
        writer = {"latex": latex, "markdown": markdown, "csv": as_csv}[form]
        echo(writer(result), nl=False)


def print_scores(result: Scores) -> None:
    """One table a protocol: tasks down, (metric, aggregation) across; the headline with its 95 % interval."""
    console = console_of()
    for sheet in sheets(result):
        print_text(console, sheet.title)
        print_columns(console, [Column(name, cells, left=name == "task") for name, cells in sheet.columns])
        for line in sheet.notes:
            print_text(console, line)
    if len(summary := headlines(result)) > 1:
        names, texts = zip(*summary, strict=True)
        print_text(console, "summary")
        print_columns(console, [Column("protocol", names, True, 30), Column("headline", texts, True, console.width - 36)])
    for line in remarks(result):
        print_text(console, line)


def print_failures(result: Scores) -> None:
    """One line on stderr for each failed task and each protocol left out."""
    for line in (*result.failed_lines(), *result.left_out_lines()):
        echo(line, err=True)
