"""What runs next: every job once, each after those that it needs, however many others work on the same plan."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from stsbench.jobs.attempt import Outcome
from stsbench.jobs.job import Job
from stsbench.jobs.pool import Pool
from stsbench.jobs.state import Standing, is_done, short
from stsbench.wording import counted

TRIES = 5  # of a job whose process is killed, by one caller: what kills it may do so every time
POLL = 0.5  # seconds; between looks at a job that another worker has, ten times that at most
Log = Callable[[str], None]


def run_jobs(jobs: Sequence[Job], pool: Pool, output: Path, log: Log) -> dict[str, Standing]:
    """Job id -> done, failed (with its error) or stopped, when there is nothing left to do.

    jobs: each behind those that it needs; what a job needs and is not among them has to be done already.
    """
    try:
        return _Schedule(jobs, pool, output, log).run()
    except BaseException:
        pool.stop()
        raise


class _Schedule:
    """The jobs of one call, and where they stand."""

    def __init__(self, jobs: Sequence[Job], pool: Pool, output: Path, log: Log) -> None:
        self.pool, self.output, self.log = pool, output, log
        self.jobs = {job.id: job for job in jobs}
        self.ended: dict[str, Standing] = {}
        self.tried: dict[str, int] = {}
        self.running: set[str] = set()
        self.again: dict[str, float] = {}  # id of a job that another worker has -> when to look again
        self.pause: dict[str, float] = {}  # and for how long it was waited last

    def run(self) -> dict[str, Standing]:
        for job in self.jobs.values():
            if is_done(job, self.output):
                self.ended[job.id] = Standing("done")
        if self.ended:
            self.log(f"{counted(len(self.ended), 'job')} of {len(self.jobs)} done already")
        while len(self.ended) < len(self.jobs):
            self._stop_what_waits()
            for job in self._ready()[: self.pool.workers - len(self.running)]:
                self.running.add(job.id)
                self.pool.submit(job)
            if self.running:
                for job, outcome in self.pool.wait(self._until_next_look()):
                    self.running.discard(job.id)
                    self._take(job, outcome)
            elif len(self.ended) < len(self.jobs):
                time.sleep(self._until_next_look())
        return self.ended

    def _ready(self) -> list[Job]:
        now = time.monotonic()
        return [
            job for job in self.jobs.values()
            if job.id not in self.ended and job.id not in self.running and self.again.get(job.id, 0) <= now
            and all(self._is_done(id) for id in job.needs)
        ]  # fmt: skip

    def _is_done(self, id: str) -> bool:
        return id not in self.jobs or (id in self.ended and self.ended[id].where == "done")

    def _stop_what_waits(self) -> None:
        for job in self.jobs.values():
            bad = [id for id in job.needs if id in self.ended and self.ended[id].where != "done"]
            if bad and job.id not in self.ended:
                self.ended[job.id] = Standing("stopped", f"needs {short(bad[0])}")

    def _until_next_look(self) -> float:
        waiting = [moment for id, moment in self.again.items() if id not in self.ended and id not in self.running]
        return max(0.05, min([moment - time.monotonic() for moment in waiting], default=60.0))

    def _take(self, job: Job, outcome: Outcome) -> None:
        if outcome.how == "busy":
            pause = self.pause[job.id] = min(2 * self.pause.get(job.id, POLL / 2), 10 * POLL)
            self.again[job.id] = time.monotonic() + pause
            return
        if outcome.how == "lost":
            self.tried[job.id] = self.tried.get(job.id, 0) + 1
            if self.tried[job.id] < TRIES:
                self.log(f"{job.name}: {outcome.line} after {outcome.seconds:.0f} s, tried again")
                return
            outcome = Outcome("failed", f"{outcome.line} at {TRIES} tries", outcome.seconds)
        self.ended[job.id] = Standing("done" if outcome.how == "done" else "failed", outcome.line)
        took = f" in {outcome.seconds:.0f} s" if outcome.ran else ""
        self.log(f"{job.name}: {'done' if outcome.how == 'done' else outcome.line}{took} "
                 f"({len(self.ended)} of {len(self.jobs)})")  # fmt: skip
