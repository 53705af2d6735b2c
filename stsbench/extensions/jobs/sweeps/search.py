"""A sweep as it is asked for: the options of `stsbench sweep`, and of `stsbench.sweep`, as what is searched and how."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, get_args

from stsbench.config import parse_yaml, shown, validate
from stsbench.errors import UsageError
from stsbench.extensions.jobs.plan_file import Defaults, TrainGroup
from stsbench.extensions.jobs.sweeps.space import Space, read_space, space_of_grid
from stsbench.extensions.jobs.sweeps.study import Sampler
from stsbench.extensions.jobs.sweeps.sweep import Sweep
from stsbench.options import SetOptions
from stsbench.training.runs.options import KEYS

_NAMED = {name: key for name, key in KEYS.items() if name != "seed"}
Grid = Sequence[str] | Mapping[str, Sequence[Any]]


def search_of(
    method: str, space: str | Mapping[str, Any] | None, grid: Grid, sampler: str | None, trials: int | None, seeds: int,
    seed: int, prune: bool, options: Mapping[str, Any],
) -> Sweep:
    """What the options ask for, in no folder yet.

    space: a file, a name, or key -> values or a range; grid: KEY=VALUE,VALUE words, or key -> values; options: those of the
    trainings. Raises UsageError for options that do not go together, StsbenchError for a value that cannot be.
    """
    if bool(space) == bool(grid):
        raise UsageError("say what is searched: either --space FILE, or --grid KEY=VALUE,VALUE")
    SetOptions(data_dir=options["data_dir"], sample=options["sample"])
    searched = _space(method, space, grid)
    kind: Any = sampler or ("grid" if searched.finite else "tpe")
    if kind not in get_args(Sampler):
        raise UsageError(f"--sampler {shown(kind)}: it is one of {', '.join(get_args(Sampler))}")
    if kind == "grid" and not searched.finite:
        raise UsageError("--sampler grid needs lists of values: the space has ranges")
    if (kind == "grid") == (trials is not None):
        raise UsageError("--trials goes with --sampler random or tpe, which need it; a grid is tried as a whole")
    if twice := [option for option, key in _NAMED.items() if key in searched.space and options[option] is not None]:
        raise UsageError(f"--{twice[0].replace('_', '-')}: {_NAMED[twice[0]]} is searched")
    group = {
        **{key: options[key] for key in (*_NAMED, "recipe", "device") if options[key] not in (None, "")}, "method": method,
        "set": _sets(options["sets"], searched), "seeds": list(range(seed, seed + seeds)),
    }
    defaults = {key: options[key] for key in ("data_dir", "sample", "offline")}
    return Sweep(validate(TrainGroup, group, "sweep"), validate(Defaults, defaults, "sweep"), searched, kind, trials, prune,
                 Path())


def _space(method: str, space: str | Mapping[str, Any] | None, grid: Grid) -> Space:
    if isinstance(space, Mapping):
        return validate(Space, {"space": space}, "space")
    if space:
        return read_space(method, space)
    if isinstance(grid, Mapping):
        if unordered := [key for key, values in grid.items() if isinstance(values, Set)]:
            raise UsageError(f"grid: {unordered[0]} has a set, whose order changes with each process: give a list")
        listed = {key: list(values) if isinstance(values, Iterable) and not isinstance(values, str) else values
                  for key, values in grid.items()}
        return validate(Space, {"space": listed}, "grid")
    return space_of_grid(grid)


def _sets(words: Sequence[str], searched: Space) -> dict[str, Any]:
    sets: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise UsageError(f"--set {word}: write it as key.sub=value")
        if key in searched.space:
            raise UsageError(f"--set {word}: {key} is searched")
        sets[key] = parse_yaml(value, f"--set {word}")
    return sets
