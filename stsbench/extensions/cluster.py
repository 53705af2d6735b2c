"""A Ray cluster, or a Ray on this machine: connected to, and shared out to tasks of one size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import chdir
from pathlib import Path
from types import ModuleType
from typing import Any

from stsbench.errors import StsbenchError

LOCAL = "local"


class Cluster:
    """A connection, one at a time. threads, gpus: of a task; room: for so many tasks."""

    def __init__(self, address: str, tasks: int | None, threads: int, gpus: float | None) -> None:
        """address: `local` starts a Ray that ends with this process; tasks: at once, None: as many as there is room for;
        threads: of each, if every node has as many; gpus: of each, or a part of one, None: one where Ray has some.

        Raises StsbenchError where Ray is not installed or not there, or no node has what a task needs.
        """
        self.ray = _ray()
        options: dict[str, Any] = {"log_to_driver": False, "address": address}
        if address == LOCAL:
            processors = (tasks or 1) * threads if gpus == 0 else None  # None: Ray counts them
            options |= {"configure_logging": False, "include_dashboard": False, "num_cpus": processors}
        try:
            with chdir(Path.cwd().anchor):  # Ray puts the working folder first where its workers look for modules
                self.ray.init(**options)
        except Exception as error:  # Ray raises a bare one where a node does not come up in time
            raise StsbenchError(f"--ray {address}: {' '.join(str(error).split())}") from error
        resources = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        nodes = [(node.get("CPU", 0), node.get("GPU", 0)) for node in resources]
        self.gpus = float(any(gpus >= 1 for _, gpus in nodes)) if gpus is None else gpus
        self.threads, self.room = shares(nodes, threads, self.gpus)
        if not self.room:
            self.ray.shutdown()
            raise StsbenchError(f"--ray {address}: no node has a {'GPU' if self.gpus else 'processor'} for a task")

    def remote(self, function: Callable[..., Any], **options: Any) -> Any:
        """Return a function whose `remote(...)` starts a task of this size, in a process that stays for the next: else Ray
        starts a new one for each where there is a GPU. options: more of Ray's."""
        return self.ray.remote(num_cpus=self.threads, num_gpus=self.gpus, max_calls=0, **options)(function)


def shares(nodes: Sequence[tuple[float, float]], threads: int, gpus: float) -> tuple[int, int]:
    """Return (threads of a task, room for tasks) of nodes with so many (processors, GPUs). gpus: of a task.

    A task has `threads`, unless a node has fewer, or fewer for each task on its GPUs: one that only larger nodes can run
    waits forever when these are lost.
    """
    on_one = int(1 / gpus + 1e-9) if gpus else 0  # tasks on a GPU: 3 of .3, since none is spread over two
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
