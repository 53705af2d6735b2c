"""From a registered name to a protocol's class. What its author got wrong is found here, before anything is encoded."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import cache
from typing import Any

from stsbench.errors import StsbenchError
from stsbench.evaluation.protocol import Protocol
from stsbench.evaluation.schema import Array, Metric, Names
from stsbench.plugins import calling, check_written, where
from stsbench.registry import names, resolve

GROUP = "stsbench.protocols"


def load_protocol(name: str) -> type[Protocol]:
    """The class registered as `name`. Raises StsbenchError, one line, where it cannot be loaded or used."""
    return _checked(name, resolve(GROUP, name))


def kinds() -> dict[str, type[Protocol]]:
    """Every protocol that can be used, by name, in their order; for one that cannot, a warning."""
    usable: dict[str, type[Protocol]] = {}
    for name in names(GROUP):
        try:
            usable[name] = load_protocol(name)
        except StsbenchError as error:
            warnings.warn(str(error), stacklevel=2)
    return dict(sorted(usable.items(), key=lambda item: (item[1].position, item[0])))


@cache
def _checked(name: str, kind: Any) -> type[Protocol]:
    """`kind`, if it is a whole protocol of that name whose defaults and variants can be used."""
    if not (isinstance(kind, type) and issubclass(kind, Protocol)):
        raise StsbenchError(f"entry point {name}: {kind!r} is not a class derived from stsbench.evaluation.Protocol")
    check_written(kind)
    for key, form in (("name", str), ("version", int)):
        if not isinstance(getattr(kind, key, None), form):
            raise StsbenchError(f"{where(kind)} does not set {key} to {'a string' if form is str else 'a whole number'}")
    if kind.name != name:
        raise StsbenchError(f"entry point {name}: {kind.__name__}.name is '{kind.name}'")
    for key, of, example in (("metrics", Metric, "Metric(better=...)"), ("arrays", Array, 'Array("float", "n")'),
                             ("names", Names, "Names()")):
        declared = getattr(kind, key, None)
        if not isinstance(declared, Mapping) or not all(isinstance(value, of) for value in declared.values()):
            raise StsbenchError(f"{where(kind)} does not declare its {key}: set {key} to a dictionary, name -> {example}")
    if not kind.metrics:
        raise StsbenchError(f"{where(kind)} does not declare its metrics: a score of none could be shown")
    _build(kind, "", "default settings")
    for word in kind.variants:
        _build(kind, word, f"variant '{word}'")
    return kind


def _build(kind: type[Protocol], word: str, what: str) -> None:
    """Build the protocol, or its variant `word`, and name its tasks; an error says `what` is wrong with which class."""
    settings, label = (kind.variant(word), f"{kind.name}:{word}") if word else ({}, None)
    try:
        built = calling(kind, "__init__", lambda: kind(settings, label))
    except StsbenchError as error:
        raise StsbenchError(f"{where(kind)}: {what}: {error}") from error
    tasks = calling(kind, "tasks", built.tasks)
    if not isinstance(tasks, dict):
        raise StsbenchError(f"{where(kind)}: tasks must return a dict, task -> id of its set, not {type(tasks).__name__}")
