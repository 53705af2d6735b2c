"""Which options go together: declared beside each option, listed and refused in the same words everywhere."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol


@dataclass(frozen=True)
class Where:
    """A condition. holds: of the object with the options as attributes; words: what it asks for, as "views 3 or more"."""

    holds: Callable[[Any], bool]
    words: str


@dataclass(frozen=True)
class Values:
    """A condition on the value of one option. holds: of the value; words: what it asks for."""

    holds: Callable[[Any], bool]
    words: str


GIVEN = Values(lambda value: value is not None and value is not False and value != (), "")  # 0 is given
"""Of an option: it is given, whatever its value."""
POSITIVE = Values(lambda value: value > 0, "above 0")
"""Of an option: it is above 0."""
Condition = Where | Mapping[str, Any]  # other option -> its value, a tuple of such, or Values: GIVEN, POSITIVE


@dataclass(frozen=True)
class Rule:
    """What an option goes with, and what it excludes.

    goes_with: conditions, without which it has no effect. needed: where they hold it must be given. excludes: options that
    may not be given beside it, or a mapping to the values that they may not have. why: a remark on `needed` or `excludes`.
    """

    goes_with: Condition | Sequence[Condition] = ()
    needed: bool = False
    excludes: Mapping[str, Any] | Sequence[str] = ()
    why: str = ""

    @property
    def conditions(self) -> Sequence[Condition]:
        """Those of `goes_with`."""
        return [self.goes_with] if isinstance(self.goes_with, Where | Mapping) else self.goes_with

    @property
    def excluded(self) -> Mapping[str, Any]:
        """Option -> the values that it may not have."""
        return self.excludes if isinstance(self.excludes, Mapping) else dict.fromkeys(self.excludes, GIVEN)

    def among(self, names: Collection[str]) -> Rule:
        """Return what of the rule is of these options alone."""
        asked = [part for part in self.conditions if isinstance(part, Where) or part.keys() <= set(names)]
        excluded = {name: values for name, values in self.excluded.items() if name in names}
        return replace(self, goes_with=asked, excludes=excluded)

    def words(self) -> str:
        """Return what the option goes with, "" where that is anything."""
        return "; ".join(_words(condition, in_recipe) for condition in self.conditions)


class Spelling(Protocol):
    """How an option is written: its name, and with a value both."""

    def __call__(self, name: str, *value: Any) -> str: ...


def in_recipe(name: str, *value: Any) -> str:
    """Return an option as a recipe has it: "view", "view dropout", "mask_ratio 0.1", "queue null"."""
    return " ".join([name, *map(recipe_value, value)])


def recipe_value(value: Any) -> str:
    """Return a value as a recipe has it."""
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
    """Return the line on the first rule that `options` break, None where they keep all.

    options: has each as an attribute. rules, defaults: by name of an option. spell: how an option and its value are written.
    """
    return next(_broken(options, rules, defaults, spell), None)


def _broken(options: Any, rules: Mapping[str, Rule], defaults: Mapping[str, Any], spell: Spelling) -> Iterator[str]:
    for name, rule in rules.items():
        value, default = getattr(options, name), defaults[name]
        unmet = next((condition for condition in rule.conditions if not _holds(condition, options)), None)
        why = f": {rule.why}" if rule.why else ""
        if rule.needed and unmet is None and value in (None, ()):
            there = [spell(other, getattr(options, other)) for part in rule.conditions if isinstance(part, Mapping)
                     for other in part]
            yield f"{' and '.join(there)} needs {spell(name)}{why}"
        if value == default:
            continue
        if unmet is not None:
            yield _idle(name, value, default, unmet, options, spell)
        for other, values in rule.excluded.items():
            opposite = getattr(options, other)
            if opposite != defaults[other] if values is GIVEN else _allows(values, opposite):
                both = (spell(name), spell(other)) if values is GIVEN else (spell(name, value), spell(other, opposite))
                yield f"{' and '.join(both)} exclude each other{why}"


def _idle(name: str, value: Any, default: Any, condition: Condition, options: Any, spell: Spelling) -> str:
    """The line on an option whose condition is not met."""
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
