"""A plan's jobs and a sweep's trials as tables: what is done, what is not, and why."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from stsbench.cli.output.grid import console_of, plain
from stsbench.jobs.job import Job
from stsbench.jobs.state import Standing
from stsbench.jobs.sweep import TrialResult
from stsbench.training.runs.report import spread
from stsbench.training.runs.seeds import shown_sd

_STYLES = {"done": "green", "failed": "red", "stopped": "red", "running": "yellow"}


def print_jobs(jobs: Sequence[Job], standings: Mapping[str, Standing], output: Path) -> None:
    """A row a job on stdout, and how many stand where below."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("job", overflow="fold")
    table.add_column("state", no_wrap=True)
    table.add_column("result", overflow="fold")
    for job in jobs:
        standing = standings[job.id]
        table.add_row(plain(job.name), plain(standing.where, _STYLES.get(standing.where, "")), plain(standing.detail))
    width = None if sys.stdout.isatty() else max(120, *(len(job.name) + len(standings[job.id].detail) + 20 for job in jobs))
    console = Console(file=sys.stdout, width=width, highlight=False)
    console.print(table)
    counts = Counter(standing.where for standing in standings.values())
    console.print(plain(f"{', '.join(f'{count} {where}' for where, count in counts.items())}; run folders in {output}"))


def print_trials(results: Sequence[TrialResult]) -> None:
    """A row a trial on stdout, the best first."""
    keys = list(dict.fromkeys(key for result in results for key in result.trial.values))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("trial", *keys, next((result.by for result in results if result.by), "score"), "sd", "seeds", "state"):
        table.add_column(plain(name), overflow="fold")
    for result in results:
        over = spread(result.scores) if result.scores else None
        score, sd = (f"{over['mean']:.2f}", shown_sd(over, 2)) if over else ("-", "-")
        values = [plain(str(result.trial.values.get(key, ""))) for key in keys]
        state = plain(": ".join(filter(None, (result.trial.state, result.reason))))
        table.add_row(str(result.trial.number), *values, score, sd, str(len(result.scores)), state)
    console_of().print(table)
