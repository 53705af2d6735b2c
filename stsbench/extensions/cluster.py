"""Connect to a Ray cluster, or start Ray on this machine, and divide it among tasks of equal size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import chdir
from pathlib import Path
from types import ModuleType
from typing import Any

from stsbench.errors import StsbenchError

LOCAL = "local"


class Cluster:
    """A connection to Ray, of which a process has one at a time. threads, gpus: per task; room: number of tasks that fit."""

    def __init__(self, address: str, tasks: int | None, threads: int, gpus: float | None) -> None:
        """Connect. address: `local` starts a Ray that ends with this process; tasks: tasks at once, None: as many as fit;
        threads: per task, fewer on small nodes; gpus: per task, may be below 1, None: one where Ray has any.

        Raises StsbenchError where Ray is not installed or cannot be reached, or no node has what a task needs.
        """
        self.ray = _ray()
        options: dict[str, Any] = {"log_to_driver": False, "address": address}
        if address == LOCAL:
            processors = (tasks or 1) * threads if gpus == 0 else None  # None: all that Ray finds
            options |= {"configure_logging": False, "include_dashboard": False, "num_cpus": processors}
        try:
            with chdir(Path.cwd().anchor):  # Ray's workers would import modules from the working folder first
                self.ray.init(**options)
        except Exception as error:  # Ray raises a plain Exception where a node does not start in time
            raise StsbenchError(f"--ray {address}: {' '.join(str(error).split())}") from error
        resources = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        nodes = [(node.get("CPU", 0), node.get("GPU", 0)) for node in resources]
        self.gpus = float(any(gpus >= 1 for _, gpus in nodes)) if gpus is None else gpus
        self.threads, self.room = shares(nodes, threads, self.gpus)
        if not self.room:
            self.ray.shutdown()
            raise StsbenchError(f"--ray {address}: no node has a {'GPU' if self.gpus else 'processor'} for a task")

    def remote(self, function: Callable[..., Any], **options: Any) -> Any:
        """Return a Ray function whose `remote(...)` starts a task of this size. Its process is kept for the next task, which
        Ray does not do by itself for tasks with a GPU. options: further ones of Ray."""
        return self.ray.remote(num_cpus=self.threads, num_gpus=self.gpus, max_calls=0, **options)(function)


def shares(nodes: Sequence[tuple[float, float]], threads: int, gpus: float) -> tuple[int, int]:
    """Return (threads per task, number of tasks that fit) for nodes with these (processors, GPUs). gpus: per task.

    A task has `threads`, or fewer if some node has fewer per task: a task that only larger nodes can run would wait forever
    when these are lost.
    """
    on_one = int(1 / gpus + 1e-9) if gpus else 0  # tasks per GPU: 3 for .3, as a task is not spread over two GPUs
    able = [(processors, int(devices) * on_one) for processors, devices in nodes
            if processors >= 1 and (devices >= 1 or not gpus)]
    threads = min([threads, *(max(1, int(processors // max(1, tasks))) for processors, tasks in able)])
    return threads, sum(int(min(tasks if gpus else processors, processors // threads)) for processors, tasks in able)


def _ray() -> ModuleType:
    try:
        import ray
    except ImportError as error:
        raise StsbenchError("--ray needs Ray: pip install 'stsbench[ray]'") from error
    module: ModuleType = ray
    return module
