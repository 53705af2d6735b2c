"""What `--protocol` names: registered protocols, one aggregation of them (`sts:wmean`), papers' presets, or `all`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import yaml

from stsbench.errors import StsbenchError
from stsbench.evaluation import chosen_tasks, pick_tasks
from stsbench.protocol import Protocol
from stsbench.registry import did_you_mean, names, resolve, resolve_all

# Part of the command line's contract, not of this version: `all` names each of them as left out.
PLANNED = ("regression", "transfer", "transfer:sklearn", "retrieval", "geometry", "mteb")


@dataclass(frozen=True)
class Planned:
    """One protocol to run. label: as the user named it; tasks: task -> set id; note: what the preset leaves out."""

    label: str
    protocol: Protocol
    tasks: dict[str, str]
    note: str = ""


def presets() -> dict[str, dict[str, Any]]:
    """Paper -> its preset (paper, protocol, settings, tasks, left_out), by name."""
    found = {}
    for file in sorted(resources.files("stsbench.protocols").joinpath("presets").iterdir(), key=lambda item: item.name):
        if file.name.endswith(".yaml"):
            found[file.name.removesuffix(".yaml")] = yaml.safe_load(file.read_text("utf-8"))
    return found


def plan(
    protocols: Sequence[str], tasks: Sequence[str] | None, settings: dict[str, Any]
) -> tuple[list[Planned], dict[str, str]]:
    """The protocols to run, and those left out with the reason. `settings` (similarity, ...) override a preset's.

    Raises StsbenchError, with a suggestion, for an unknown protocol, aggregation or task.
    """
    registered, papers = names("stsbench.protocols"), presets()
    chosen: dict[str, Planned] = {}
    left_out: dict[str, str] = {}
    for name in protocols:
        if name == "all":
            kinds = resolve_all("stsbench.protocols")
            everything = {task: task for kind in kinds.values() for task in kind.tasks()}
            pick_tasks(everything, tasks, "any protocol")  # a task that no protocol knows is a mistake
            for each, kind in kinds.items():
                has = {task.lower() for task in kind.tasks()}
                mine = [task for task in tasks if task.lower() in has] if tasks else None
                if mine == []:
                    left_out[each] = f"it has none of the tasks {', '.join(tasks or ())}"
                else:
                    chosen[each] = _planned(each, kind, mine, settings)
            left_out.update({each: "not in this version of stsbench" for each in PLANNED if each not in registered})
        elif name in papers:
            paper = papers[name]
            kind = resolve("stsbench.protocols", paper["protocol"])
            within = chosen_tasks(kind, paper.get("tasks"))
            outside = [task for task in chosen_tasks(kind, tasks) if tasks and task not in within]
            if outside:
                raise StsbenchError(f"protocol '{name}' does not score {', '.join(outside)} so: {paper['left_out']}")
            own = {**paper.get("settings", {}), **settings}
            chosen[name] = _planned(name, kind, tasks or list(within), own, paper.get("left_out", ""))
        elif name in registered:
            chosen[name] = _planned(name, resolve("stsbench.protocols", name), tasks, settings)
        elif name.partition(":")[0] in registered and ":" in name:
            base, _, aggregation = name.partition(":")
            own = {**settings, "aggregations": [aggregation]}
            chosen[name] = _planned(name, resolve("stsbench.protocols", base), tasks, own)
        elif name in PLANNED or name.partition(":")[0] in PLANNED:
            raise StsbenchError(f"protocol '{name}' is not in this version of stsbench; it has: {', '.join(registered)}")
        else:
            known = [*registered, "sts:all", "sts:mean", "sts:wmean", "all", *papers]
            raise StsbenchError(f"unknown protocol '{name}'{did_you_mean(name, known)}")
    return list(chosen.values()), left_out


def _planned(
    label: str, kind: type[Protocol], tasks: Sequence[str] | None, settings: dict[str, Any], note: str = ""
) -> Planned:
    # `sts:mean` stays `sts` in the rows, where the aggregation has a column of its own; a paper's name stands there.
    return Planned(label, kind(settings, label.partition(":")[0]), chosen_tasks(kind, tasks), note)
