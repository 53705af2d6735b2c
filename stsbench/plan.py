"""What `--protocol` names: registered protocols, variants of them (`sts:wmean`), papers' presets, or `all`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import yaml

from stsbench.errors import StsbenchError
from stsbench.protocol import Protocol
from stsbench.registry import did_you_mean, names, resolve, resolve_all

GROUP = "stsbench.protocols"
Settings = Mapping[str, Mapping[str, Any]]  # protocol name, or "" for every protocol that knows the setting -> settings


@dataclass(frozen=True)
class Planned:
    """One protocol to run. label: as the user named it; tasks: task -> set id; note: what the preset leaves out."""

    label: str
    protocol: Protocol
    tasks: dict[str, str]
    note: str = ""


def presets() -> dict[str, dict[str, Any]]:
    """Paper -> its preset (paper, left_out, parts: protocol, settings, tasks of each), by name."""
    found = {}
    for file in sorted(resources.files("stsbench.protocols").joinpath("presets").iterdir(), key=lambda item: item.name):
        if file.name.endswith(".yaml"):
            read = yaml.safe_load(file.read_text("utf-8"))
            if "parts" not in read:
                read["parts"] = [{key: read.pop(key) for key in ("protocol", "tasks", "settings") if key in read}]
            found[file.name.removesuffix(".yaml")] = read
    return found


def kinds() -> dict[str, type[Protocol]]:
    """Every protocol that loads, by name, in their order."""
    found = resolve_all(GROUP).items()
    return dict(sorted(found, key=lambda item: (item[1].position, item[0])))


def plan(
    protocols: Sequence[str], tasks: Sequence[str] | None, settings: Settings
) -> tuple[list[Planned], dict[str, str]]:
    """The protocols to run, and those left out with the reason. `settings` override a preset's and a variant's.

    Raises StsbenchError, with a suggestion, for an unknown protocol, variant, task or setting.
    """
    registered, papers = names(GROUP), presets()
    chosen: dict[str, Planned] = {}
    left_out: dict[str, str] = {}
    for name in protocols:
        base, colon, word = name.partition(":")
        if name == "all":
            for each in _everything(tasks, settings, left_out):
                chosen[each.label] = each
        elif name in papers:
            for number, each in enumerate(_paper(name, papers[name], tasks, settings)):
                chosen[f"{name}#{number}"] = each
        elif base in registered:
            kind = resolve(GROUP, base)
            chosen[name] = _planned(name, kind, tasks, kind.variant(word) if colon else {}, settings)
        else:
            known = [*registered, *(f"{each}:{word}" for each, word in _variants()), "all", *papers]
            raise StsbenchError(f"unknown protocol '{name}'{did_you_mean(name, known)}")
    _all_used(settings, [each.protocol for each in chosen.values()])
    return list(chosen.values()), left_out


def pick_tasks(known: Mapping[str, str], wanted: Sequence[str] | None, owner: str) -> dict[str, str]:
    """Task -> set id of the `wanted` tasks, in the order of `known`; names are matched regardless of case.

    None wants them all. Raises StsbenchError, with a suggestion, for a task that `owner` does not have.
    """
    if wanted is None:
        return dict(known)
    lower = {name.lower(): name for name in known}
    for name in wanted:
        if name.lower() not in lower:
            raise StsbenchError(f"unknown task '{name}' of {owner}{did_you_mean(name, known)}")
    asked = {lower[name.lower()] for name in wanted}
    return {name: id for name, id in known.items() if name in asked}


def _variants() -> Iterator[tuple[str, str]]:
    for name, kind in kinds().items():
        yield from ((name, word) for word in kind.variants)


def _everything(tasks: Sequence[str] | None, settings: Settings, left_out: dict[str, str]) -> Iterator[Planned]:
    """Every protocol, in each form that stands for `all`, with those of `tasks` that it has."""
    parts = []
    for name, kind in kinds().items():
        for word in kind.in_all:
            label = f"{name}:{word}" if word else name
            parts.append(_planned(label, kind, None, kind.variant(word) if word else {}, settings))
        for word in kind.variants:
            if kind.labels_variants and word not in kind.in_all:
                left_out[f"{name}:{word}"] = f"another form of {name}: run by name only"
    pick_tasks({task: id for part in parts for task, id in part.tasks.items()}, tasks, "any protocol")
    for part in parts:
        has = {task.lower() for task in part.tasks}
        mine = [task for task in tasks if task.lower() in has] if tasks else None
        if mine == []:
            left_out[part.label] = f"it has none of the tasks {', '.join(tasks or ())}"
        else:
            yield Planned(part.label, part.protocol, pick_tasks(part.tasks, mine, part.label))


def _paper(name: str, paper: Mapping[str, Any], tasks: Sequence[str] | None, settings: Settings) -> Iterator[Planned]:
    """The parts of one paper's preset, all under the paper's name."""
    parts = []
    for part in paper["parts"]:
        kind = resolve(GROUP, part["protocol"])
        parts.append(_planned(name, kind, part.get("tasks"), part.get("settings", {}), settings))
    everything = {task: id for part in parts for task, id in part.tasks.items()}
    try:
        wanted = pick_tasks(everything, tasks, f"protocol {name}")
    except StsbenchError as error:
        raise StsbenchError(f"{error}; {name}: {paper['left_out']}" if "left_out" in paper else str(error)) from None
    for part in parts:
        if mine := {task: id for task, id in part.tasks.items() if task in wanted}:
            yield Planned(name, part.protocol, mine, paper.get("left_out", ""))


def _planned(
    label: str, kind: type[Protocol], tasks: Sequence[str] | None, own: Mapping[str, Any], settings: Settings
) -> Planned:
    known = kind(own).settings
    given = {**settings.get("", {}), **settings.get(kind.name, {})}
    mine = {key: value for key, value in given.items() if key in known}  # `_all_used` finds those that nobody takes
    base, colon, _ = label.partition(":")
    # `sts:mean` stays `sts` in the rows, where the aggregation has a column of its own; a paper's name stands there.
    protocol = kind({**own, **mine}, label if colon and kind.labels_variants else base)
    return Planned(label, protocol, pick_tasks(protocol.tasks(), tasks, f"protocol {label}"))


def _all_used(settings: Settings, protocols: Sequence[Protocol]) -> None:
    """A setting that no protocol of the plan takes would be ignored: that is an error."""
    for owner, given in settings.items():
        takers = [each for each in protocols if owner in ("", each.name)]
        known = {key for each in takers for key in each.settings}
        for key in given:
            if key in known:
                continue
            if owner and takers:
                raise StsbenchError(f"protocol {owner} has no setting '{key}'{did_you_mean(key, sorted(known))}")
            run = ", ".join(dict.fromkeys(each.name for each in protocols))
            option = f"{owner}.{key}" if owner else "--" + key.replace("_", "-")
            raise StsbenchError(f"{option} does not apply to protocol {run}")
