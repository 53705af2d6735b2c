"""The scheduler: runs every job once, after those that it depends on, also where several processes work on one plan."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from stsbench.extensions.jobs.expand import Job
from stsbench.extensions.jobs.pool import Outcome, Pool
from stsbench.extensions.jobs.state import Standing, Where, checkpoints, is_done, note_path, short, tries
from stsbench.wording import counted

TRIES = 5  # a job that is killed so often in a row without progress has failed
STARTS = 20  # the same for losses of the worker or machine before the job's process has started: not the job's fault
POLL = 0.5  # seconds between checks of a job that another worker has, doubled each time up to ten times as long
LOOK = 1.0  # seconds between checks of running jobs, where a feed may stop some
Log = Callable[[str], None]


class Feed(Protocol):
    """A source of further jobs while others run: a sweep."""

    def more(self) -> list[Job]:
        """Return further jobs, for a worker that has nothing to do; [] when there are none left."""
        ...

    def name(self, job: Job) -> str:
        """Return a job's name in log lines."""
        ...

    def ended(self, job: Job, standing: Standing) -> None:
        """Take note that a job has ended; `standing` says how."""
        ...

    def given_up(self) -> list[Job]:
        """Return running jobs to stop: those that were pruned (`state.prune`)."""
        ...


def run_jobs(
    jobs: Sequence[Job], pool: Pool, output: Path, log: Log, feed: Feed | None = None
) -> dict[str, Standing]:
    """Run all jobs, and return job id -> its state: done, failed (with its error), stopped or pruned.

    jobs: each after those that it depends on; a dependency that is not among them has to be done already.
    """
    try:
        return _Schedule(jobs, pool, output, log, feed).run()
    finally:
        pool.stop()


@dataclass
class Losses:
    """How often in a row a job was lost. tries: since its last checkpoint; starts: since its process last started."""

    tries: int = 0
    starts: int = 0
    _checkpoints: frozenset[str] = frozenset()
    _launched: int = 0

    def count(self, checkpoints: frozenset[str], launched: int) -> None:
        """Count a loss. checkpoints: names of the present ones; launched: number of processes started for the job so far."""
        self.starts = 1 if launched > self._launched else self.starts + 1
        if checkpoints != self._checkpoints:
            self.tries = 0
        self.tries += launched > self._launched
        self._checkpoints, self._launched = checkpoints, launched


class _Schedule:
    """The jobs of one call and their states."""

    def __init__(self, jobs: Sequence[Job], pool: Pool, output: Path, log: Log, feed: Feed | None) -> None:
        self.pool, self.output, self.log, self.feed = pool, output, log, feed
        self.exhausted = feed is None  # the feed has no more jobs
        self.jobs = {job.id: job for job in jobs}
        self.ended: dict[str, Standing] = {}
        self.losses: dict[str, Losses] = {}
        self.running: set[str] = set()
        self.again: dict[str, float] = {}  # id of a job that another worker has -> time of the next check
        self.pause: dict[str, float] = {}  # id of such a job -> seconds of the last wait

    def run(self) -> dict[str, Standing]:
        for job in self.jobs.values():
            if is_done(job, self.output):
                self.ended[job.id] = Standing("done")
        if self.ended:
            self.log(f"{counted(len(self.ended), 'job')} of {len(self.jobs)} done already")
        elif self.jobs:
            self.log(f"{counted(len(self.jobs), 'job')}, none done yet")
        while len(self.ended) < len(self.jobs) or not self.exhausted:
            self._stop_what_waits()
            for job in self._next(self.pool.workers - len(self.running)):
                self.running.add(job.id)
                if job.id not in self.again and job.id not in self.losses:
                    self.log(f"{self._name(job)}: started; what it prints is in {note_path(self.output, job, 'log')}")
                self.pool.submit(job)
            for job in self.feed.given_up() if self.feed else ():
                self.pool.cancel(job)
            if self.running:
                for job, outcome in self.pool.wait(self._until_next_look()):
                    self.running.discard(job.id)
                    self._take(job, outcome)
            elif len(self.ended) < len(self.jobs):
                time.sleep(self._until_next_look())
        return self.ended

    def _next(self, free: int) -> list[Job]:
        """Return at most `free` jobs to start now, asking the feed for more where too few are ready."""
        ready = self._ready()
        while len(ready) < free and self.feed is not None and not self.exhausted:
            new = [job for job in self.feed.more() if job.id not in self.jobs]
            self.exhausted = not new
            self.jobs |= {job.id: job for job in new}
            ready = self._ready()
        return ready[:free]

    def _ready(self) -> list[Job]:
        now = time.monotonic()
        return [
            job for job in self.jobs.values()
            if job.id not in self.ended and job.id not in self.running and self.again.get(job.id, 0) <= now
            and all(id not in self.jobs or (id in self.ended and self.ended[id].where == "done") for id in job.needs)
        ]

    def _stop_what_waits(self) -> None:
        for job in self.jobs.values():
            bad = [id for id in job.needs if id in self.ended and self.ended[id].where != "done"]
            if bad and job.id not in self.ended:
                self._end(job, Standing("stopped", f"needs {short(bad[0])}"))

    def _until_next_look(self) -> float:
        waiting = [moment for id, moment in self.again.items() if id not in self.ended and id not in self.running]
        longest = 60.0 if self.feed is None else LOOK
        return max(0.05, min([longest, *(moment - time.monotonic() for moment in waiting)]))

    def _take(self, job: Job, outcome: Outcome) -> None:
        if outcome.how == "busy":
            pause = self.pause[job.id] = min(2 * self.pause.get(job.id, POLL / 2), 10 * POLL)
            self.again[job.id] = time.monotonic() + pause
            return
        if outcome.how == "lost":
            losses = self.losses.setdefault(job.id, Losses())
            losses.count(checkpoints(job, self.output), tries(job, self.output))
            if losses.tries < TRIES and losses.starts < STARTS:
                after = f" after {outcome.seconds:.0f} s" if outcome.seconds else ""
                self.log(f"{self._name(job)}: {outcome.line}{after}, tried again")
                return
            times = f"at {TRIES} tries" if losses.tries >= TRIES else f"before its start, {STARTS} times"
            outcome = Outcome("failed", f"{outcome.line} {times}", outcome.seconds)
        where: Where = "done" if outcome.how == "done" else "pruned" if outcome.how == "pruned" else "failed"
        took = f" in {outcome.seconds:.0f} s" if outcome.ran else ""
        of = f" ({len(self.ended) + 1} of {len(self.jobs)})" if self.exhausted else ""  # else the total is unknown
        self.log(f"{self._name(job)}: {outcome.line or outcome.how}{took}{of}")
        self._end(job, Standing(where, outcome.line))

    def _name(self, job: Job) -> str:
        return self.feed.name(job) if self.feed is not None else job.name

    def _end(self, job: Job, standing: Standing) -> None:
        self.ended[job.id] = standing
        if self.feed is not None:
            self.feed.ended(job, standing)
