"""What `stsbench train` prints when it is done."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click


def print_summary(folder: Path, summary: dict[str, Any]) -> None:
    """Dev before, best and after, or the table over seeds, then the scores of the final test, on stdout."""
    if "seeds" in summary:
        _seeds(summary)
    else:
        _run(folder, summary)
    for task, why in summary.get("failures", {}).items():
        click.echo(f"failed: {task}: {why}", err=True)


def _run(folder: Path, summary: dict[str, Any]) -> None:
    name = summary["selected_by"]
    if summary["before"] is not None:
        kept = summary["best"]
        best = f"best {kept['score']:.2f} at step {kept['step']}" if kept else "no step was up for selection"
        click.echo(f"{name}: {summary['before']:.2f} before, {best}, {summary['after']:.2f} after the last step")
    click.echo(f"exported {summary['exported']}: {folder / 'best'}")
    if (folder / "eval").is_dir():
        from stsbench.cli.report import print_report
        from stsbench.cli.tables import print_failures
        from stsbench.evaluation import score_again

        result = score_again(folder / "eval")
        print_report(result, "table")
        print_failures(result)


def _seeds(summary: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    from stsbench.training.seeds import seed_table

    table = Table(title=f"{len(summary['seeds'])} seeds: {', '.join(map(str, summary['seeds']))}")
    for column in ("score", "mean", "sd", "n"):
        table.add_column(column, justify="left" if column == "score" else "right")
    rows = seed_table(summary)
    for row in rows:
        table.add_row(*row)
    Console().print(table)
    if not rows:
        click.echo("no score to average: there was no dev evaluation and no --eval")
