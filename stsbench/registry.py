"""Names to objects, lazily, through entry points: built-in protocols and methods use the same mechanism as plugins."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from stsbench.errors import StsbenchError

DEFAULT_PROTOCOL = "sts"  # what is measured where nobody names a protocol, and what a leaderboard opens with


def did_you_mean(name: str, known: Iterable[str], before: str = "") -> str:
    """'; did you mean ...?' with the closest known names, else those that begin with `name`, else '; known: ...'.

    before: what stands before the closest ones where they are given, as `data.`.
    """
    names = list(known)
    lower = {candidate.lower(): candidate for candidate in names}
    close = [lower[match] for match in difflib.get_close_matches(name.lower(), lower, n=2, cutoff=0.6)]
    if not close and len(name) > 1:
        close = [lower[candidate] for candidate in lower if candidate.startswith(name.lower())][:2]
    return f"; did you mean {' or '.join(before + match for match in close)}?" if close else f"; known: {', '.join(names)}"


def namesakes(name: str, meaning: str, before: str = "") -> tuple[str, ...]:
    """A line where the working folder holds something that is called as a built-in name, which was taken: how to get it.

    meaning: of the built-in one; before: what stands before the name where it is given, as `sts:`.
    """
    path = Path(name)
    if not path.exists():
        return ()
    kind = "folder" if path.is_dir() else "file"
    return (f"{before}{name} is {meaning}; for the {kind} of that name in this folder write {before}./{name}",)


@cache
def _points(group: str) -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=group)}


def names(group: str) -> list[str]:
    """The registered names of a group such as "stsbench.protocols", sorted."""
    return sorted(_points(group))


def resolve(group: str, name: str) -> Any:
    """The object registered as `name`. Raises StsbenchError for an unknown name or a plugin that fails to import."""
    kind = group.rpartition(".")[2].replace("ies", "ys").rstrip("s")
    point = _points(group).get(name)
    if point is None:
        raise StsbenchError(f"unknown {kind} '{name}'{did_you_mean(name, names(group))}")
    try:
        return point.load()
    except Exception as error:
        raise StsbenchError(f"the {kind} '{name}' ({point.value}) failed to load: {error!r}") from error


def lazy_names(
    package: str, modules: Mapping[str, str], absent: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and the `__dir__` of a package whose names load on first use.

    modules: name -> the module beside the package's __init__.py that has it; absent: a name that one may look for -> why the
    package lacks it, which the AttributeError says.
    """

    def get(name: str) -> Any:
        if name in modules:
            return getattr(import_module(f"{package}.{modules[name]}"), name)
        why = f"; {absent[name]}" if absent and name in absent else ""
        raise AttributeError(f"module '{package}' has no attribute '{name}'{why}")

    def listed() -> list[str]:
        return sorted([*modules, *(name for name in vars(sys.modules[package]) if name.startswith("__"))])

    return get, listed
