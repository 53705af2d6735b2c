"""Finished evaluations, handed to `stsbench leaderboard add`."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from stsbench.extensions.jobs.attempt import PROGRAM
from stsbench.extensions.jobs.expand import words_of
from stsbench.extensions.jobs.job import Job
from stsbench.extensions.jobs.plan_file import BoardEntry, Plan
from stsbench.extensions.jobs.state import is_done
from stsbench.wording import counted


@dataclass(frozen=True)
class EntryRuns:
    """An entry, and the evaluations that belong to it."""

    entry: BoardEntry
    jobs: tuple[Job, ...]


def entry_runs(plan: Plan, jobs: Sequence[Job]) -> list[EntryRuns]:
    """The entries of a plan: a group of evaluations has its own, or each has that of the training whose model it tests."""
    trained = {job.id: job for job in jobs if job.kind == "train"}
    members: dict[str, tuple[BoardEntry, list[Job]]] = {}
    for job in jobs:
        if job.kind != "eval":
            continue
        entry = plan.eval[job.group].entry
        if entry is None:
            entry = next((plan.train[trained[id].group].entry for id in job.needs if id in trained), None)
        if entry is not None:
            members.setdefault(entry.name, (entry, []))[1].append(job)
    return [EntryRuns(entry, tuple(runs)) for entry, runs in members.values()]


def add_to_board(runs: Sequence[EntryRuns], output: Path, board: Path, log: Callable[[str], None]) -> int:
    """Add each entry whose evaluations are all done, by the command itself; how many could not be added."""
    refused = 0
    for of_entry in runs:
        entry = of_entry.entry
        missing = [job for job in of_entry.jobs if not is_done(job, output)]
        if missing:
            undone = f"{len(missing)} of {counted(len(of_entry.jobs), 'evaluation')} not done: {missing[0].name}"
            log(f"{entry.name}: not added, {undone}")
            refused += 1
            continue
        described = entry.model_dump(exclude={"name", "flags"})
        flags = [word for flag in entry.flags for word in ("--flag", flag)]
        words = [
            "leaderboard", "add", *(str(job.folder(output)) for job in of_entry.jobs), "--entry", entry.name,
            "--board", str(board), *words_of(described), *flags,
        ]
        ended = subprocess.run([*PROGRAM, *words], capture_output=True, encoding="utf-8", errors="backslashreplace")
        lines = [line for line in ended.stderr.splitlines() if line.strip()]
        if ended.returncode:
            log(f"{entry.name}: {lines[-1].removeprefix('stsbench: error: ') if lines else 'leaderboard add failed'}")
            refused += 1
        else:
            log(f"{entry.name}: {counted(len(ended.stdout.splitlines()), 'record')} added")
    return refused
