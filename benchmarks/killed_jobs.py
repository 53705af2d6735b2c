"""Does a plan end with every result, each once, while its jobs are killed at random?

    python benchmarks/killed_jobs.py --jobs 40 --workers 2 [--kill-every 6] [--ray local|ADDRESS]

The jobs are trainings of a tiny random model, a few steps each, on an invented text. A thread kills a running one, drawn at
random, by SIGKILL at random moments, --kill-every seconds on average. Then the same plan is run again without kills.
Printed: tries, kills, results, how often each training ended by its log, and what the second run started. Jobs are forks
of one process that has imported everything (tests/support/job_server.py): processes of the real command, without its start.
"""

from __future__ import annotations

import argparse
import collections
import os
import random
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))


def main() -> None:
    """Run the plan twice, print what happened; exit code 1 unless all is as it should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=40)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--kill-every", type=float, default=3.0, help="Seconds between kills, on average; 0: none.")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--ray", metavar="local|ADDRESS")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    os.environ["HF_DEACTIVATE_ASYNC_LOAD"] = "1"
    os.environ["PYTHONPATH"] = sys.path[0]  # for Ray's workers
    os.chdir(tempfile.mkdtemp(prefix="killed-jobs-"))
    os.environ["STSBENCH_CACHE"] = str(Path.cwd() / "cache")
    import tiny_models
    from job_server import JobServer
    from plans import jobs_of, training, write

    tiny_models.build(Path("tiny"), pooler=False)
    Path("text.txt").write_text("\n".join(tiny_models.sentences(200, longest=9)) + "\n", "utf-8")
    grid = {f"r{i}": training(max_steps=options.steps, seeds=list(range(options.jobs // 4)),
                              set={"selection.every": 2, "training.learning_rate": 1e-5 * (i + 1)}) for i in range(4)}
    jobs = list(jobs_of(write({"train": grid})).values())
    with JobServer(Path.cwd()) as start:
        began = time.monotonic()
        kills = run(jobs, options, start)
        seconds = time.monotonic() - began
        tries = count(jobs)
        run(jobs, argparse.Namespace(**{**vars(options), "kill_every": 0}), start)
    ends = [path.read_text("utf-8").count('"kind": "end"') for path in Path("out").glob("*/log.jsonl")]
    results = len(list(Path("out").glob("*/train.json")))
    by = f"Ray {options.ray}" if options.ray else "local pool"
    print(f"{len(jobs)} jobs, {options.workers} workers, {by}: {seconds:.0f} s")
    print(f"{tries} tries, {kills} kills, {results} results; how often trainings ended: {dict(collections.Counter(ends))}")
    print(f"the same plan again: {count(jobs) - tries} tries")
    sys.exit(0 if results == len(jobs) and set(ends) == {1} and count(jobs) == tries else 1)


def run(jobs: list[Any], options: argparse.Namespace, start: Any) -> int:
    """Run the jobs while some are killed; how many were."""
    from plans import place

    from stsbench.jobs.pool import LocalPool
    from stsbench.jobs.ray_pool import RayPool
    from stsbench.jobs.schedule import run_jobs

    here = place()
    if options.ray:
        pool: Any = RayPool(options.ray, options.workers, here, start=start)
    else:
        pool = LocalPool(options.workers, here, start)
    ended, kills = threading.Event(), []
    killer = threading.Thread(target=kill, args=(options, ended, kills))
    killer.start()
    try:
        standings = run_jobs(jobs, pool, Path("out"), lambda line: print(line, flush=True))
    finally:
        ended.set()
        killer.join()
        pool.stop()
    print(collections.Counter(each.where for each in standings.values()))
    return len(kills)


def kill(options: argparse.Namespace, ended: threading.Event, kills: list[int]) -> None:
    """Kill a job now and then, until `ended`."""
    draw = random.Random(options.seed)
    while options.kill_every and not ended.wait(draw.expovariate(1 / options.kill_every)):
        running = [path for path in Path("out/.jobs").glob("*.pid") if path.is_file()]
        for path in draw.sample(running, min(1, len(running))):
            try:
                os.kill(int(path.read_text("utf-8")), 9)
                kills.append(1)
            except (OSError, ValueError):
                continue


def count(jobs: list[Any]) -> int:
    """How many processes were started, by the jobs' logs."""
    logs = (Path("out/.jobs") / f"{job.id}.log" for job in jobs)
    return sum(log.read_bytes().count(b"$ stsbench ") for log in logs if log.exists())


if __name__ == "__main__":
    main()
