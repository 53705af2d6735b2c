"""A plan's jobs as a table: what is done, what is not, and why."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from stsbench.jobs.job import Job
from stsbench.jobs.state import Standing

_STYLES = {"done": "green", "failed": "red", "stopped": "red", "running": "yellow"}


def print_jobs(jobs: Sequence[Job], standings: Mapping[str, Standing], output: Path) -> None:
    """A row a job on stdout, and how many stand where below."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("job", overflow="fold")
    table.add_column("state", no_wrap=True)
    table.add_column("result", overflow="fold")
    for job in jobs:
        standing = standings[job.id]
        table.add_row(Text(job.name), Text(standing.where, style=_STYLES.get(standing.where, "")), Text(standing.said))
    width = None if sys.stdout.isatty() else max(120, *(len(job.name) + len(standings[job.id].said) + 20 for job in jobs))
    console = Console(file=sys.stdout, width=width, highlight=False)
    console.print(table)
    counts = Counter(standing.where for standing in standings.values())
    console.print(Text(f"{', '.join(f'{count} {where}' for where, count in counts.items())}; run folders in {output}"))
