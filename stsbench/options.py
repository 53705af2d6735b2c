"""Fields of a dataclass that are options of a command, too: default, help and bounds of each stand there alone."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, get_type_hints

from stsbench.errors import StsbenchError, UsageError
from stsbench.registry import did_you_mean, names, resolve, where
from stsbench.rules import Condition, Rule, broken

P = ParamSpec("P")
T = TypeVar("T")


class OptionGroup:
    """The base of a dataclass of options: what its fields, those of all its parts, do not allow is a UsageError."""

    def __post_init__(self) -> None:
        check(self)


def option(
    default: Any, help: str, *, flag: str | None = None, metavar: str | None = None, least: int | None = None,
    choices: Sequence[str] = (), required: bool = False, rare: bool = False, changing: bool = False,
    kinds: Sequence[str] = (), renamed: Mapping[str, str] | None = None, goes_with: Condition | Sequence[Condition] = (),
    needed: bool = False, excludes: Mapping[str, Any] | Sequence[str] = (), why: str = "",
) -> Any:
    """Return a field that is an option of a command, too, which cli/options.py makes of it.

    default: a type such as dict stands for what it makes. flag: where it is not the field's name; metavar: of its value;
    least: of a number; choices: all values that it may have; required: on the command line; rare: --help-all alone lists
    it. Of an encoder's options: changing: it changes vectors, so that kinds of encoders without it refuse it; kinds: the
    only ones that have it. renamed: name in Python that an earlier version had -> what is written now. goes_with, needed,
    excludes, why: as `stsbench.rules.Rule` has them; `check` refuses what breaks them.
    """
    known = {
        "help": help, "flag": flag, "metavar": metavar, "least": least, "choices": choices, "required": required,
        "rare": rare, "changing": changing, "kinds": tuple(kinds), "renamed": dict(renamed or {}),
        "rule": Rule(goes_with, needed, excludes, why),
    }
    return field(default_factory=default, metadata=known) if isinstance(default, type) else field(
        default=default, metadata=known
    )


@dataclass(frozen=True, kw_only=True)
class SetOptions(OptionGroup):
    """Where data sets are."""

    data_dir: Path | None = option(None, "Folder in SentEval's layout.")
    sample: bool = option(False, "The small data set inside the package.", excludes=("data_dir",))


def flag_of(entry: Field[Any]) -> str:
    """Return the flag of a field that is an option."""
    return str(entry.metadata["flag"] or f"--{entry.name.replace('_', '-')}")


def check(options: Any) -> None:
    """Raise UsageError, one line, for the first option that is below its bound, none of its choices, or breaks a rule.

    options: a dataclass with fields that `option` made; a rule on options that it does not have is not asked. The line is
    the same whoever gave them: a command, a caller, a plan.
    """
    entries = {entry.name: entry for entry in fields(options) if "rule" in entry.metadata}
    for name, entry in entries.items():
        value, least, choices = getattr(options, name), entry.metadata["least"], entry.metadata["choices"]
        if value is not None and least is not None and value < least:
            raise UsageError(f"{flag_of(entry)} must be at least {least}, not {value}")
        if isinstance(value, float) and not math.isfinite(value):
            raise UsageError(f"{flag_of(entry)} must be a finite number, not {value}")
        if choices and value is not None and value not in choices:
            raise UsageError(f"{flag_of(entry)} {value} is unknown{did_you_mean(str(value), choices)}")

    def flag(name: str, *values: Any) -> str:
        plain = flag_of(entries[name])
        if not values or values[0] is True:
            return plain
        return plain.replace("--", "--no-", 1) if values[0] is False else f"{plain} {values[0]}"

    rules = {name: entry.metadata["rule"].among(entries) for name, entry in entries.items()}
    if line := broken(options, rules, {name: default_of(entry) for name, entry in entries.items()}, flag):
        raise UsageError(line)


def default_of(entry: Field[Any]) -> Any:
    """Return the default of a dataclass's field."""
    return entry.default_factory() if callable(entry.default_factory) else entry.default


def extensible(group: str) -> Callable[[type[T]], type[T]]:
    """Return a decorator that gives a frozen dataclass the fields of every dataclass among the entry points `group`.

    An extension's options are so fields behind the core's, which does not name them. The decorator raises StsbenchError for
    a name that is taken: its default would take the place of another one's.
    """

    def add(core: type[T]) -> type[T]:
        more = [resolve(group, name) for name in names(group)]
        taken: dict[str, type] = {}
        for kind in (core, *more):
            for entry in fields(kind):
                if (other := taken.setdefault(entry.name, kind)) is not kind:
                    raise StsbenchError(f"{where(kind)} has the option {entry.name} of {where(other)}: give it another name")
        about = {"__module__": core.__module__, "__qualname__": core.__qualname__, "__doc__": core.__doc__}
        return dataclass(frozen=True, kw_only=True)(type(core.__name__, (*reversed(more), core), about))

    return add


def takes(*groups: type, without: Sequence[str] = ()) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Return a decorator that writes the options of these dataclasses into a function's signature, in the place of **named.

    without: options that are not arguments. The word of an option's flag stands for its name. The function raises TypeError
    for an argument that is none of them, naming the one that is meant, and for one that is given by both words.
    """
    entries = {entry.name: (entry, group) for group in groups for entry in fields(group) if entry.name not in without}
    renamed: dict[str, list[str]] = {}
    words: dict[str, str] = {}
    for name, (entry, _) in entries.items():
        if "rule" in entry.metadata and (word := flag_of(entry).strip("-").replace("-", "_")) not in entries:
            words[word] = name
        for old, new in entry.metadata.get("renamed", {}).items():
            renamed.setdefault(old, []).append(new)

    def add(function: Callable[P, T]) -> Callable[P, T]:
        signature = inspect.signature(function)
        written = [value for value in signature.parameters.values() if value.kind is not inspect.Parameter.VAR_KEYWORD]
        hints = {group: get_type_hints(group) for group in groups}
        more = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=hints[group][name],
                              default=default_of(entry))
            for name, (entry, group) in entries.items() if name not in signature.parameters
        ]
        known = {*entries, *(value.name for value in written)}

        @wraps(function)
        def checked(*args: P.args, **named: P.kwargs) -> T:
            for word in named.keys() & words.keys() - known:
                if words[word] in named:
                    raise TypeError(f"{function.__name__}() got {words[word]} twice, as {word}, too")
                named[words[word]] = named.pop(word)
            for name in named.keys() - known:
                why = f"; write {' or '.join(renamed[name])}" if name in renamed else did_you_mean(name, known)
                raise TypeError(f"{function.__name__}() got an unexpected keyword argument '{name}'{why}")
            return function(*args, **named)

        vars(checked).update(__signature__=signature.replace(parameters=[*written, *more]), flag_words=words)
        return checked

    return add
