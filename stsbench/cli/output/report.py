"""Results on the terminal: as tables, in a form to paste, as JSON; and reports for papers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from stsbench.cli.output.json_file import write_json
from stsbench.cli.output.messages import echo
from stsbench.display.table import Document, Table, terminal_width
from stsbench.files import atomic_write

if TYPE_CHECKING:
    from stsbench.display.report import Form
    from stsbench.display.tabular import Tabular


class Reported(Protocol):
    """A result that can be reported."""

    def report(self, form: Form = "markdown") -> str:
        """Return the report as Markdown or LaTeX."""


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
    """Write tables and lines to stdout, as wide as the terminal where it is one."""
    echo(document.text(terminal_width()))


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Write one table of rows of cells to stdout."""
    print_document(Document([Table.of(title, header, rows)]))


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
