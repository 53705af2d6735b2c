"""Does a plan end with every result, each once, while its jobs are killed at random?

    python benchmarks/killed_jobs.py --jobs 40 --workers 2 [--kill-every 3] [--ray local|ADDRESS | --nodes 2]

The jobs are trainings of a tiny random model, a few steps each, on an invented text. A thread kills a running one, drawn at
random, by SIGKILL at random moments, --kill-every seconds on average. --nodes starts a Ray of several nodes on this machine,
a job at a time on each; then a killed thing is in turn a job, Ray's worker that waits for a job, and a whole node, which
another one replaces. Afterwards the same plan is run again without kills. Printed: tries, kills, results, how often each
training ended by its log, and what the second run started. Jobs are forks of one process that has imported everything
(tests/support/job_server.py): processes of the real command, without its start.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import itertools
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
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
    parser.add_argument("--nodes", type=int, default=0, help="Nodes of a Ray of this machine.")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    os.environ["HF_DEACTIVATE_ASYNC_LOAD"] = "1"
    os.environ["PYTHONPATH"] = sys.path[0]  # for Ray's workers
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112  (its name; at Ray's 15 workers starve on a busy machine)
    nodes = Nodes(options.nodes) if options.nodes else None  # in another working folder than the plan's
    if nodes:
        options.ray, options.workers = nodes.cluster.address, options.nodes
    os.chdir(tempfile.mkdtemp(prefix="killed-jobs-"))
    os.environ["STSBENCH_CACHE"] = str(Path.cwd() / "cache")
    import tiny_models
    from job_server import JobServer
    from plans import jobs_of, training, write

    from stsbench.extensions.jobs.state import tries

    tiny_models.build(Path("tiny"), pooler=False)
    Path("text.txt").write_text("\n".join(tiny_models.sentences(200, longest=9)) + "\n", "utf-8")
    grid = {f"r{i}": training(max_steps=options.steps, seeds=list(range(options.jobs // 4)),
                              set={"selection.every": 2, "training.learning_rate": 1e-5 * (i + 1)}) for i in range(4)}
    jobs = list(jobs_of(write({"train": grid})).values())
    with JobServer(Path.cwd()) as start:
        began = time.monotonic()
        kills = run(jobs, options, start, nodes)
        seconds = time.monotonic() - began
        started = sum(tries(job, Path("out")) for job in jobs)
        run(jobs, argparse.Namespace(**{**vars(options), "kill_every": 0}), start)
    again = sum(tries(job, Path("out")) for job in jobs) - started
    ends = [path.read_text("utf-8").count('"kind": "end"') for path in Path("out").glob("*/log.jsonl")]
    results = len(list(Path("out").glob("*/train.json")))
    by = f"Ray of {options.nodes} nodes" if nodes else f"Ray {options.ray}" if options.ray else "local pool"
    print(f"{len(jobs)} jobs, {options.workers} workers, {by}: {seconds:.0f} s")
    counted = ", ".join(f"{number} {what}s killed" for what, number in sorted(kills.items())) or "nothing killed"
    print(f"{started} tries, {counted}, {results} results; how often trainings ended: {dict(Counter(ends))}")
    print(f"the same plan again: {again} tries")
    sys.exit(0 if results == len(jobs) and set(ends) == {1} and not again else 1)


def run(jobs: list[Any], options: argparse.Namespace, start: Any, nodes: Nodes | None = None) -> Counter[str]:
    """Run the jobs while some are killed; how often what was."""
    from plans import place

    from stsbench.extensions.jobs.pool import LocalPool, RayPool
    from stsbench.extensions.jobs.schedule import run_jobs

    here = place()
    if options.ray:
        pool: Any = RayPool(options.ray, options.workers, here, start=start)
        if nodes:
            nodes.note_driver()
    else:
        pool = LocalPool(options.workers, here, start)
    ended, kills = threading.Event(), Counter[str]()
    killer = threading.Thread(target=kill, args=(options, nodes, ended, kills))
    killer.start()
    try:
        standings = run_jobs(jobs, pool, Path("out"), lambda line: print(line, flush=True))
    finally:
        ended.set()
        killer.join()
    print(Counter(standing.where for standing in standings.values()))
    return kills


def kill(options: argparse.Namespace, nodes: Nodes | None, ended: threading.Event, kills: Counter[str]) -> None:
    """Kill something now and then, until `ended`."""
    draw = random.Random(options.seed)
    turns = itertools.cycle(["job", "node", "job", "worker"] if nodes else ["job"])
    what = next(turns)
    while options.kill_every and not ended.wait(draw.expovariate(1 / options.kill_every)):
        if what == "node" and nodes:
            nodes.replace_one(draw)
        else:
            running = nodes.waiting() if what == "worker" and nodes else jobs_running()
            try:
                os.kill(draw.choice(running), signal.SIGKILL)
            except (IndexError, ProcessLookupError):  # nothing runs at this moment
                continue
        kills[what] += 1
        what = next(turns)


def jobs_running() -> list[int]:
    """Process ids of running jobs."""
    pids = []
    for path in Path("out/.jobs").glob("*.pid"):
        with contextlib.suppress(OSError, ValueError):  # it ends at this moment
            pids.append(int(path.read_text("utf-8")))
    return pids


class Nodes:
    """A Ray of this machine: a head without processors, and so many nodes with one each."""

    def __init__(self, number: int) -> None:
        from ray.cluster_utils import Cluster

        # Not shutdown_at_exit: it sets signal handlers, and the thread that replaces a node may not.
        head = {"num_cpus": 0, "include_dashboard": False}
        self.cluster = Cluster(initialize_head=True, head_node_args=head, shutdown_at_exit=False)
        atexit.register(self.cluster.shutdown)
        for _ in range(number):
            self.cluster.add_node(num_cpus=1)

    def note_driver(self) -> None:
        """Note by which node this process speaks to Ray, as long as it does."""
        import ray

        self._driver = ray.get_runtime_context().get_node_id()

    def replace_one(self, draw: random.Random) -> None:
        """Kill every process of a node, not the one that this process speaks to Ray by, and start another node."""
        removable = [node for node in self.cluster.list_all_nodes()[1:] if node.node_id != self._driver]
        self.cluster.remove_node(draw.choice(removable), allow_graceful=False)
        self.cluster.add_node(num_cpus=1)

    def waiting(self) -> list[int]:
        """Process ids of Ray's workers that wait for a job."""
        raylets = {raylet.process.pid for node in self.cluster.worker_nodes for raylet in node.all_processes["raylet"]}
        pids = []
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                parent = int((path / "stat").read_text("utf-8").rpartition(")")[2].split()[1])
                if parent in raylets and (path / "cmdline").read_bytes().startswith(b"ray::attempt"):
                    pids.append(int(path.name))
        return pids


if __name__ == "__main__":
    main()
