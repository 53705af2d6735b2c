"""What a setting may be: every protocol checks all of its settings before anything is encoded."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stsbench.errors import StsbenchError
from stsbench.registry import did_you_mean

MOST = 2**32 - 1  # the largest seed that numpy's older generators take
LONGEST = 80  # characters of a wrong value that are shown


@dataclass(frozen=True)
class Kind:
    """One kind of setting. what: in words, after "must be"; known: the words it chooses from.

    take: a value -> the same as it is recorded; ValueError for one that cannot be used.
    """

    what: str
    take: Callable[[Any], Any]
    known: tuple[str, ...] = ()


def checked(protocol: str, settings: Mapping[str, Any], kinds: Mapping[str, Kind]) -> dict[str, Any]:
    """`settings`, in their order, as they are recorded. Raises StsbenchError, one line, for the first that cannot be."""
    return {key: _taken(protocol, key, value, kinds) for key, value in settings.items()}


def _taken(protocol: str, key: str, value: Any, kinds: Mapping[str, Kind]) -> Any:
    if key not in kinds:
        raise StsbenchError(f"protocol {protocol} has no setting '{key}'{did_you_mean(str(key), kinds)}")
    kind = kinds[key]
    try:
        return kind.take(value)
    except ValueError:
        shown = repr(value)
        shown = shown if len(shown) <= LONGEST else shown[:LONGEST] + "..."
        raise StsbenchError(f"{protocol}: {key} must be {kind.what}, not {shown}{_hint(value, kind)}") from None


def _hint(value: Any, kind: Kind) -> str:
    """A known word close to the first unknown one; nothing else, since the message lists the known ones."""
    words = value if isinstance(value, list | tuple) else [value]
    unknown = next((word for word in words if isinstance(word, str) and word not in kind.known), None)
    hint = did_you_mean(unknown, kind.known) if unknown and kind.known else ""
    return hint if hint.startswith("; did") else ""


def whole(least: int = 0) -> Kind:
    """A whole number from `least` to MOST; not true or false, and not 2.0."""

    def take(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST:
            raise ValueError
        return value

    return Kind(f"a whole number from {least} to {MOST}", take)


def real(above: float = -math.inf, below: float = math.inf) -> Kind:
    """A finite number between the two, which it may not equal; recorded as a float, so that 2 and 2.0 are one setting."""

    def take(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError
        try:
            found = float(value)
        except OverflowError as error:
            raise ValueError from error
        if not above < found < below:
            raise ValueError
        return found

    if above == -math.inf:
        return Kind("a number", take)
    return Kind(f"a number above {above:g}" if below == math.inf else f"a number between {above:g} and {below:g}", take)


def word(known: Sequence[str]) -> Kind:
    """One of `known`."""

    def take(value: Any) -> str:
        if not isinstance(value, str) or value not in known:
            raise ValueError
        return value

    *others, last = known
    return Kind(f"{', '.join(others)} or {last}" if others else last, take, tuple(known))


def string(what: str = "a text", blank: bool = False) -> Kind:
    """Any text; an empty one where `blank` allows it."""

    def take(value: Any) -> str:
        if not isinstance(value, str) or not (value or blank):
            raise ValueError
        return value

    return Kind(what, take)


def optional(kind: Kind) -> Kind:
    """That kind, or nothing at all."""
    return Kind(kind.what, lambda value: None if value is None else kind.take(value), kind.known)


def truth() -> Kind:
    """True or false."""

    def take(value: Any) -> bool:
        if not isinstance(value, bool):
            raise ValueError
        return value

    return Kind("true or false", take)


def several(kind: Kind, none: bool = False) -> Kind:
    """A list of different values of one kind; one value alone is a list of one. Empty only where `none` allows it."""

    def take(value: Any) -> list[Any]:
        found = [kind.take(each) for each in (value if isinstance(value, list | tuple) else [value])]
        if len(set(found)) < len(found) or not (found or none):
            raise ValueError
        return found

    return Kind(f"a list of different values, each {kind.what}", take, kind.known)
