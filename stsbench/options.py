"""Options: fields of dataclasses that are options of commands and arguments of functions, declared once with default, help
and bounds; and rules on which options go together, documented and enforced in the same words everywhere."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, replace
from functools import wraps
from pathlib import Path
from types import MappingProxyType
from typing import Any, ParamSpec, Protocol, TypeVar, get_type_hints

from stsbench.errors import StsbenchError, UsageError
from stsbench.registry import did_you_mean, names, resolve, where


@dataclass(frozen=True)
class Where:
    """A condition on options. holds: a function of the object that has them; words: in words, such as "views 3 or more"."""

    holds: Callable[[Any], bool]
    words: str


@dataclass(frozen=True)
class Values:
    """A condition on the value of one option. holds: a function of the value; words: the condition in words."""

    holds: Callable[[Any], bool]
    words: str


GIVEN = Values(lambda value: value is not None and value is not False and value != (), "")  # 0 is given
"""The condition that an option is given, with any value."""
POSITIVE = Values(lambda value: value > 0, "above 0")
"""The condition that an option is above 0."""
Condition = Where | Mapping[str, Any]  # another option -> its value, a tuple of values, or Values: GIVEN, POSITIVE


@dataclass(frozen=True)
class Rule:
    """The rule of an option: what it goes with, and what it excludes.

    goes_with: conditions without which the option has no effect. needed: whether it must be given if they hold. excludes:
    options that it excludes, or a mapping to the values that it excludes. why: a reason for `needed` or `excludes`.
    """

    goes_with: Condition | Sequence[Condition] = ()
    needed: bool = False
    excludes: Mapping[str, Any] | Sequence[str] = ()
    why: str = ""

    @property
    def conditions(self) -> Sequence[Condition]:
        """Return the conditions of `goes_with`, also if it is a single one."""
        return [self.goes_with] if isinstance(self.goes_with, Where | Mapping) else self.goes_with

    @property
    def excluded(self) -> Mapping[str, Any]:
        """Return a mapping from excluded options to their excluded values."""
        return self.excludes if isinstance(self.excludes, Mapping) else dict.fromkeys(self.excludes, GIVEN)

    def among(self, names: Collection[str]) -> Rule:
        """Return the rule without the conditions and exclusions of options other than `names`."""
        asked = [part for part in self.conditions if isinstance(part, Where) or part.keys() <= set(names)]
        excluded = {name: values for name, values in self.excluded.items() if name in names}
        return replace(self, goes_with=asked, excludes=excluded)

    def words(self) -> str:
        """Return what the option goes with, in words, "" without a condition."""
        return "; ".join(_words(condition, in_recipe) for condition in self.conditions)


class Spelling(Protocol):
    """A function that writes an option: its name, or its name and value."""

    def __call__(self, name: str, *value: Any) -> str: ...


def in_recipe(name: str, *value: Any) -> str:
    """Return an option as written in a recipe: "view", "view dropout", "mask_ratio 0.1", "queue null"."""
    return " ".join([name, *map(recipe_value, value)])


def recipe_value(value: Any) -> str:
    """Return a value as written in a recipe."""
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(recipe_value, value))}]"
    if hasattr(value, "model_dump"):
        return f"{{{', '.join(in_recipe(f'{name}:', inner) for name, inner in value)}}}"
    if isinstance(value, float):
        return f"{value:g}"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def broken(
    options: Any, rules: Mapping[str, Rule], defaults: Mapping[str, Any], spell: Spelling = in_recipe
) -> str | None:
    """Return a line on the first rule that `options` break, None if they break none.

    options: an object with the options as attributes. rules, defaults: by the options' names. spell: writes an option.
    """
    for name, rule in rules.items():
        value, default = getattr(options, name), defaults[name]
        unmet = next((condition for condition in rule.conditions if not _holds(condition, options)), None)
        why = f": {rule.why}" if rule.why else ""
        if rule.needed and unmet is None and value in (None, ()):
            there = [spell(other, getattr(options, other)) for part in rule.conditions if isinstance(part, Mapping)
                     for other in part]
            return f"{' and '.join(there)} needs {spell(name)}{why}"
        if value == default:
            continue
        if unmet is not None:
            return _idle(name, value, default, unmet, options, spell)
        for other, values in rule.excluded.items():
            opposite = getattr(options, other)
            if opposite != defaults[other] if values is GIVEN else _allows(values, opposite):
                both = (spell(name), spell(other)) if values is GIVEN else (spell(name, value), spell(other, opposite))
                return f"{' and '.join(both)} exclude each other{why}"
    return None


def _idle(name: str, value: Any, default: Any, condition: Condition, options: Any, spell: Spelling) -> str:
    """Return a line on an option whose condition is not met."""
    words, recipe = _words(condition, spell), spell is in_recipe
    absent = isinstance(condition, Where) or GIVEN in condition.values()
    if absent and not recipe:
        return f"{spell(name)} needs {words}"
    now = f"without {words}" if absent or isinstance(condition, Where) else (
        f"with {' and '.join(spell(other, getattr(options, other)) for other in condition)}: it goes with {words}")
    back = f"leave it at {recipe_value(default)}" if recipe else "leave it out"
    return f"{spell(name, value)} has no effect {now}; {back}"


def _holds(condition: Condition, options: Any) -> bool:
    if isinstance(condition, Where):
        return condition.holds(options)
    return all(_allows(values, getattr(options, name)) for name, values in condition.items())


def _allows(values: Any, value: Any) -> bool:
    if isinstance(values, Values):
        return values.holds(value)
    return value in values if isinstance(values, tuple) else bool(value == values)


def _words(condition: Condition, spell: Spelling) -> str:
    if isinstance(condition, Where):
        return condition.words
    return " and ".join(_allowed(name, values, spell) for name, values in condition.items())


def _allowed(name: str, values: Any, spell: Spelling) -> str:
    if isinstance(values, Values):
        return f"{spell(name)} {values.words}".rstrip()
    first, *more = values if isinstance(values, tuple) else (values,)
    return " or ".join([", ".join([spell(name, first), *map(recipe_value, more[:-1])]), *map(recipe_value, more[-1:])])


P = ParamSpec("P")
T = TypeVar("T")


class OptionGroup:
    """The base class of dataclasses of options, which raises UsageError for options that break a rule (`check`)."""

    def __post_init__(self) -> None:
        check(self)


def option(
    default: Any, help: str, *, flag: str | None = None, metavar: str | None = None, least: int | None = None,
    choices: Sequence[str] = (), required: bool = False, advanced: bool = False, changes_vectors: bool = False,
    kinds: Sequence[str] = (), renamed: Mapping[str, str] | None = None, goes_with: Condition | Sequence[Condition] = (),
    needed: bool = False, excludes: Mapping[str, Any] | Sequence[str] = (), why: str = "",
) -> Any:
    """Return a dataclass field that is also an option of a command (cli/options.py).

    default: a value, or a type such as dict, which is called. flag: the flag, if it is not the field's name; metavar: the
    placeholder of its value; least: the least number; choices: all allowed values; required: on the command line; advanced:
    only --help-all lists it. For an encoder's options: changes_vectors: kinds of encoders that lack the option refuse it;
    kinds: the only kinds that have it. renamed: an earlier name in Python -> what is written now. goes_with, needed,
    excludes, why: as in `stsbench.options.Rule`; `check` raises an error for options that break the rule.
    """
    known = {
        "help": help, "flag": flag, "metavar": metavar, "least": least, "choices": choices, "required": required,
        "advanced": advanced, "changes_vectors": changes_vectors, "kinds": tuple(kinds), "renamed": dict(renamed or {}),
        "rule": Rule(goes_with, needed, excludes, why),
    }
    return field(default_factory=default, metadata=known) if isinstance(default, type) else field(
        default=default, metadata=known
    )


@dataclass(frozen=True, kw_only=True)
class SetOptions(OptionGroup):
    """The location of data sets."""

    data_dir: Path | None = option(None, "Folder in SentEval's layout.")
    sample: bool = option(False, "The small data set inside the package.", excludes=("data_dir",))


def flag_name(entry: Field[Any]) -> str:
    """Return the flag of an option's field, such as --data-dir."""
    return str(entry.metadata["flag"] or f"--{entry.name.replace('_', '-')}")


def check(options: Any) -> None:
    """Raise UsageError, one line, for the first option that is below its bound, none of its choices, or breaks a rule.

    options: a dataclass with fields that `option` made; rules on options that it does not have are ignored. The error is the
    same for options of a command, a function or a plan.
    """
    entries = {entry.name: entry for entry in fields(options) if "rule" in entry.metadata}
    for name, entry in entries.items():
        value, least, choices = getattr(options, name), entry.metadata["least"], entry.metadata["choices"]
        if value is not None and least is not None and value < least:
            raise UsageError(f"{flag_name(entry)} must be at least {least}, not {value}")
        if isinstance(value, float) and not math.isfinite(value):
            raise UsageError(f"{flag_name(entry)} must be a finite number, not {value}")
        if choices and value is not None and value not in choices:
            # Users of other programs write their names, such as fp16 for dtype=float16.
            _, equals, word = entry.metadata["renamed"].get(str(value), "").partition("=")
            meant = f"; write {flag_name(entry)} {word}" if equals else ""
            raise UsageError(f"{flag_name(entry)} {value} is unknown{meant or did_you_mean(str(value), choices)}")

    def flag(name: str, *values: Any) -> str:
        plain = flag_name(entries[name])
        if not values or values[0] is True:
            return plain
        return plain.replace("--", "--no-", 1) if values[0] is False else f"{plain} {values[0]}"

    rules = {name: entry.metadata["rule"].among(entries) for name, entry in entries.items()}
    if line := broken(options, rules, {name: field_default(entry) for name, entry in entries.items()}, flag):
        raise UsageError(line)


def field_default(entry: Field[Any]) -> Any:
    """Return the default of a dataclass's field."""
    return entry.default_factory() if callable(entry.default_factory) else entry.default


def extensible(group: str) -> Callable[[type[T]], type[T]]:
    """Return a decorator that gives a frozen dataclass the fields of every dataclass among the entry points `group`.

    Extensions thus add options, after the core's, without being named in the core, and their methods override the core's.
    The decorator raises StsbenchError if two of the dataclasses have an option or method of the same name.
    """

    def add(core: type[T]) -> type[T]:
        more = [resolve(group, name) for name in names(group)]
        taken: dict[str, type] = {}
        for kind in (core, *more):
            methods = [name for name in vars(kind) if kind is not core and callable(getattr(kind, name)) and name[0] != "_"]
            for name in (*(entry.name for entry in fields(kind)), *methods):
                if (other := taken.setdefault(name, kind)) is not kind:
                    raise StsbenchError(f"{where(kind)} has the option {name} of {where(other)}: give it another name")
        about = {"__module__": core.__module__, "__qualname__": core.__qualname__, "__doc__": core.__doc__}
        return dataclass(frozen=True, kw_only=True)(type(core.__name__, (*reversed(more), core), about))

    return add


def takes(
    *groups: type, without: Sequence[str] = (), also: Callable[[], Iterable[str]] = tuple,
    renamed: Mapping[str, str] = MappingProxyType({}),
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Return a decorator that replaces **named in a function's signature by the options of these dataclasses.

    without: options that are not arguments; also: returns further arguments that the function takes; renamed: names that
    people write -> the argument to write, besides those of the options' own `renamed`. An option may be given by its flag's
    word, too. The function raises TypeError for an unknown argument, with a suggestion, and for an argument that is given by
    both its names.
    """
    entries = {entry.name: (entry, group) for group in groups for entry in fields(group) if entry.name not in without}
    meant = {old: [new] for old, new in renamed.items()}
    words: dict[str, str] = {}
    for name, (entry, _) in entries.items():
        if "rule" in entry.metadata and (word := flag_name(entry).strip("-").replace("-", "_")) not in entries:
            words[word] = name
        for old, new in entry.metadata.get("renamed", {}).items():
            meant.setdefault(old, []).append(new)

    def add(function: Callable[P, T]) -> Callable[P, T]:
        signature = inspect.signature(function)
        written = [value for value in signature.parameters.values() if value.kind is not inspect.Parameter.VAR_KEYWORD]
        hints = {group: get_type_hints(group) for group in groups}
        more = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=hints[group][name],
                              default=field_default(entry))
            for name, (entry, group) in entries.items() if name not in signature.parameters
        ]
        known = {*entries, *(value.name for value in written)}
        kinds = inspect.Parameter
        first = [one.name for one in written if one.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)]
        several = any(one.kind is kinds.VAR_POSITIONAL for one in written)

        @wraps(function)
        def checked(*args: P.args, **named: P.kwargs) -> T:
            for word in named.keys() & words.keys() - known:
                if words[word] in named:
                    raise TypeError(f"{function.__name__}() got {words[word]} twice, as {word}, too")
                named[words[word]] = named.pop(word)
            stray = named.keys() - known
            slips = []
            for name in sorted(stray - {*also()} if stray else stray):
                why = f"; write {' or '.join(meant[name])}" if name in meant else did_you_mean(name, sorted(known))
                slips.append(f"{function.__name__}() got an unexpected keyword argument '{name}'{why}")
            if len(args) > len(first) and not several:
                others = ", ".join(f"{name}=" for name in list(signature.parameters)[len(first):][:4])
                only = ", ".join(first) or "nothing"
                slips.insert(0, f"{function.__name__}() takes {only} without a name: name the others, such as {others}")
            if slips:
                raise TypeError("; ".join(slips))
            return function(*args, **named)

        vars(checked).update(__signature__=signature.replace(parameters=[*written, *more]), flag_words=words)
        return checked

    return add
