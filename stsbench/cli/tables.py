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
from stsbench.records import PLAIN, ScoreRow

SAMPLE = "sample data: not comparable with published numbers"
AVERAGES = {"Avg": "Avg (of two-decimal scores, as papers print it)", "Avg-full": "Avg (full precision)"}


def emit_json(rows: Sequence[ScoreRow], target: str) -> None:
    """Write rows as a JSON list to a file, or to stdout for '-'."""
    text = json.dumps([row.model_dump() for row in rows], indent=1) + "\n"
    if target == "-":
        click.echo(text, nl=False)
        return
    with atomic_write(Path(target)) as stream:
        stream.write(text)


def shown(row: ScoreRow) -> str:
    """A score as papers print it: two decimals, three for the metrics that are no percentages."""
    return f"{row.value:.3f}" if row.metric in PLAIN else f"{row.value:.2f}"


def interval(row: ScoreRow) -> str:
    """The 95 % interval, or nothing."""
    if row.low is None or row.high is None:
        return ""
    digits = 3 if row.metric in PLAIN else 2
    return f"{row.low:.{digits}f} to {row.high:.{digits}f}"


def main_rows(result: Result, protocol: str) -> list[ScoreRow]:
    """A protocol's rows without the subsets of what is also given as a whole (a year's subsets)."""
    rows = [row for row in result.rows if row.protocol == protocol]
    whole = {(row.task, row.metric) for row in rows if row.subset is None}
    return [row for row in rows if row.subset is None or (row.task, row.metric) not in whole]


def title_of(result: Result, protocol: str) -> str:
    """The line above a protocol's table, with whatever makes its scores incomparable."""
    rows = main_rows(result, protocol)
    title = protocol + ("" if all(row.metric in PLAIN for row in rows) else ": scores x 100")
    if plain := list(dict.fromkeys(row.metric for row in rows if row.metric in PLAIN)):
        title += f", except {', '.join(plain)}" if len(title) > len(protocol) else f": {', '.join(plain)}, not x 100"
    if is_sample(result):
        title += f" ({SAMPLE})"
    for record in result.records:
        if record.protocol.label == protocol and (others := record.protocol.settings.get("without_overlap")):
            shared = f"share a sentence with {', '.join(others)}"
            return title + f" (without the pairs that {shared}: not the published task)"
    return title


def remarks(result: Result) -> list[str]:
    """What must be said below the tables."""
    lines = []
    labels = {record.protocol.label for record in result.records if record.protocol.name == "sts"}
    for label in sorted(labels):
        if not any(row.task == "Avg" for row in result.rows if row.protocol == label):
            lines.append(f"No average for {label}: an STS average is the mean of all seven tasks.")
    unknown = list(dict.fromkeys(record.data.id for record in result.records if not record.data.known))
    if unknown:
        lines.append(f"Data differ from the catalog: {', '.join(unknown)}. Not comparable with other results.")
    if is_sample(result):
        lines.append(SAMPLE)
    return lines


def is_sample(result: Result) -> bool:
    """Whether any score comes from the sample inside the package."""
    return any(record.data.view == "sample" for record in result.records)


def print_scores(result: Result) -> None:
    """One table a protocol: tasks down, (metric, aggregation) across; the headline with its 95 % interval."""
    # A pipe or a file gets room for the whole table: a wrapped number is a wrong number.
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 200, highlight=False)
    for protocol in dict.fromkeys(row.protocol for row in result.rows):
        rows = main_rows(result, protocol)
        columns = list(dict.fromkeys((row.metric, row.aggregation) for row in rows))
        table = Table()
        table.add_column("task")
        # Metrics of one task may count different things (pairs, sentences, development items): n is the first one's.
        several = len({(row.task, row.subset, row.n) for row in rows}) > len({(row.task, row.subset) for row in rows})
        table.add_column(f"n of\n{columns[0][0]}" if several else "n", justify="right")
        for metric, aggregation in columns:
            table.add_column(f"{metric}\n{aggregation or ''}", justify="right")
        metric, aggregation = columns[0]
        bounded = any(row.low is not None for row in rows if (row.metric, row.aggregation) == columns[0])
        if bounded:
            table.add_column(f"95 % interval of\n{metric} {aggregation or ''}", justify="right")
        for task, subset in dict.fromkeys((row.task, row.subset) for row in rows):
            cells = {(row.metric, row.aggregation): row for row in rows if (row.task, row.subset) == (task, subset)}
            numbers = [shown(cells[column]) if column in cells else "" for column in columns]
            name = AVERAGES.get(task, task) + (f", {subset}" if subset else "")
            bounds = [interval(cells[columns[0]]) if columns[0] in cells else ""] if bounded else []
            table.add_row(name, str(next(iter(cells.values())).n), *numbers, *bounds)
        console.print(title_of(result, protocol), soft_wrap=True)  # a table's own title would be wrapped to its width
        console.print(table)
    if len(summary := headlines(result)) > 1:
        table = Table("protocol", "headline", title="summary", title_justify="left")
        for protocol, text in summary:
            table.add_row(protocol, text)
        console.print(table)
    for line in remarks(result):
        console.print(line, soft_wrap=True)


def headlines(result: Result) -> list[tuple[str, str]]:
    """(protocol, its first metric): the average where there is one, else task by task."""
    lines = []
    for protocol in dict.fromkeys(row.protocol for row in result.rows):
        rows = main_rows(result, protocol)
        first = [row for row in rows if (row.metric, row.aggregation) == (rows[0].metric, rows[0].aggregation)]
        chosen = [row for row in first if row.task == "Avg"] or [row for row in first if row.task not in AVERAGES]
        name = " ".join(filter(None, (rows[0].metric, rows[0].aggregation)))
        lines.append((protocol, f"{name}: " + ", ".join(f"{row.task} {shown(row)}" for row in chosen)))
    return lines


def print_failures(result: Result) -> None:
    """One line on stderr for each failed task and each protocol left out."""
    for name, reason in result.failures.items():
        label, _, task = name.rpartition(" ")
        click.echo(f"failed: {label} {reason}" if reason.startswith(task) else f"failed: {name}: {reason}", err=True)
    for name, reason in result.left_out.items():
        click.echo(f"left out: {name}: {reason}", err=True)
