"""Scores as tables for people and as JSON rows for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from stsbench.evaluation import Result
from stsbench.files import atomic_write
from stsbench.records import ScoreRow

SAMPLE = "sample data: not comparable with published numbers"


def emit_json(rows: Sequence[ScoreRow], target: str) -> None:
    """Write rows as a JSON list to a file, or to stdout for '-'."""
    text = json.dumps([row.model_dump() for row in rows], indent=1) + "\n"
    if target == "-":
        click.echo(text, nl=False)
        return
    with atomic_write(Path(target)) as stream:
        stream.write(text)


def _console() -> Console:
    # A pipe or a file gets room for the whole table: a wrapped number is a wrong number.
    return Console(file=sys.stdout, width=None if sys.stdout.isatty() else 160, highlight=False)


def print_scores(result: Result) -> None:
    """One table a protocol: tasks down, (metric, aggregation) across, x 100; the headline with its 95 % interval."""
    console = _console()
    sample = any(record.data.view == "sample" for record in result.records)
    for protocol in dict.fromkeys(row.protocol for row in result.rows):
        rows = [row for row in result.rows if row.protocol == protocol and row.subset is None]
        columns = list(dict.fromkeys((row.metric, row.aggregation) for row in rows))
        title = f"{protocol}: scores x 100" + (f" ({SAMPLE})" if sample else "") + _restricted(result, protocol)
        table = Table()
        table.add_column("task")
        table.add_column("n", justify="right")
        for metric, aggregation in columns:
            table.add_column(f"{metric}\n{aggregation or ''}", justify="right")
        metric, aggregation = columns[0]
        bounded = any(row.low is not None for row in rows)
        if bounded:
            table.add_column(f"95 % interval of\n{metric} {aggregation or ''}", justify="right")
        for task in dict.fromkeys(row.task for row in rows):
            cells = {(row.metric, row.aggregation): row for row in rows if row.task == task}
            first = cells.get(columns[0])
            bounds = f"{first.low:.2f} to {first.high:.2f}" if first and first.low is not None else ""
            numbers = [f"{cells[column].value:.2f}" if column in cells else "" for column in columns]
            name = {"Avg": "Avg (of two-decimal scores, as papers print it)", "Avg-full": "Avg (full precision)"}
            table.add_row(name.get(task, task), str(next(iter(cells.values())).n), *numbers, *([bounds] if bounded else []))
        console.print(title, soft_wrap=True)  # a table's own title would be wrapped to its width
        console.print(table)
        sts = any(record.protocol.name == "sts" and record.protocol.label == protocol for record in result.records)
        if sts and not any(row.task == "Avg" for row in rows):
            console.print("No average: an STS average is the mean of all seven tasks.")
    unknown = [record.data.id for record in result.records if not record.data.known]
    if unknown:
        console.print(f"Data differ from the catalog: {', '.join(unknown)}. Not comparable with other results.")
    if sample:
        console.print(SAMPLE)


def _restricted(result: Result, protocol: str) -> str:
    for record in result.records:
        if record.protocol.label == protocol and (others := record.protocol.settings.get("without_overlap")):
            return f" (without the pairs that share a sentence with {', '.join(others)}: not the published task)"
    return ""


def print_failures(result: Result) -> None:
    """One line on stderr for each failed task and each protocol left out."""
    for task, reason in result.failures.items():
        click.echo(f"failed: {reason if reason.startswith(task) else f'{task}: {reason}'}", err=True)
    for protocol, reason in result.left_out.items():
        click.echo(f"left out: {protocol}: {reason}", err=True)
