"""Settings of protocols, methods, recipes and post-processing: each with its default, meaning, source and rule.

    class NoiseOptions(Settings):
        noise: Literal["none", "gaussian"] = setting("none", "added to the second view", "Doe et al. 2024, section 3")
        scale: float = setting(0.1, "its standard deviation", "Doe et al. 2024, table 2", goes_with={"noise": "gaussian"})
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from stsbench.config import allowed_values, model_in
from stsbench.options import Condition, Rule, broken


class Settings(BaseModel):
    """A pydantic model of settings, in the order of records; unknown keys and settings that break a rule are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="after")
    def _go_together(self) -> Self:
        if line := broken(self, *setting_rules(type(self))):
            raise ValueError(line)
        return self


def setting(
    default: Any, meaning: str, source: str = "", *, by: str = "", goes_with: Condition | Sequence[Condition] = (),
    needed: bool = False, excludes: Mapping[str, Any] | Sequence[str] = (), why: str = "", **bounds: Any,
) -> Any:
    """Return a field of Settings.

    default: `...` for a setting that must be given. source: the paper and section, or the code, it is from. by: the option
    or name that chooses its value, if it cannot be changed alone, as rows would have a wrong name. goes_with, needed,
    excludes, why: as in `Rule`. bounds: pydantic's, such as gt=0.
    """
    rule = Rule(goes_with, needed, excludes, why)
    extra: Any = {"source": source, "by": by} | ({"rule": rule} if rule != Rule() else {})
    return Field(default, description=meaning, json_schema_extra=extra, **bounds)


@dataclass(frozen=True)
class Described:
    """A setting in words. default: as JSON, "" if it must be given; values: its type, choices and bounds; goes_with: the
    condition without which it has no effect, or ""."""

    name: str
    values: str
    default: str
    meaning: str
    source: str
    goes_with: str

    def __str__(self) -> str:
        """Return the setting as an item of a list."""
        facts = [self.meaning, f"It goes with {self.goes_with}" if self.goes_with else "",
                 f"Source: {self.source}" if self.source else ""]
        default = f" = {self.default}" if self.default else ""
        return f"- {self.name}{default} ({self.values}): {'. '.join(filter(None, facts))}."


def described(model: type[BaseModel], settings: Mapping[str, Any]) -> list[Described]:
    """Return the fields of `model` in words, in order. settings: the values shown as defaults, such as a variant's."""
    rules, _ = setting_rules(model)
    return [
        Described(
            name, allowed_values(field), json.dumps(settings[name]) if name in settings else "", field.description or "",
            _extra(field.json_schema_extra, "source"), rules[name].words() if name in rules else "",
        )
        for name, field in model.model_fields.items()
    ]


def setting_defaults(model: type[BaseModel]) -> dict[str, Any]:
    """Return the defaults of `model` as JSON values, without settings that must be given."""
    defaults = {name: field.get_default(call_default_factory=True)
                for name, field in model.model_fields.items() if not field.is_required()}
    return {name: value.model_dump(mode="json") if isinstance(value, BaseModel) else value
            for name, value in defaults.items()}


def sections(model: type[BaseModel], above: str = "") -> dict[str, type[BaseModel]]:
    """Return the models inside `model`, at any depth, by dotted key; each precedes the models inside it."""
    inner = {f"{above}{name}": model_in(field.annotation) for name, field in model.model_fields.items()}
    return {key: section for name, part in inner.items() if part is not None
            for key, section in {name: part, **sections(part, f"{name}.")}.items()}


def choosing_setting(model: type[BaseModel], name: str) -> str:
    """Return the argument `by` of a field's `setting`, the option that chooses its value; "" without one."""
    field = model.model_fields.get(name)
    return "" if field is None else _extra(field.json_schema_extra, "by")


@cache
def setting_rules(model: type[BaseModel]) -> tuple[dict[str, Rule], dict[str, Any]]:
    """Return the rules of a model's settings, and the defaults of all of them, each by its name."""
    fields = model.model_fields
    extras: dict[str, Any] = {name: field.json_schema_extra for name, field in fields.items()}
    rules = {name: extra["rule"] for name, extra in extras.items() if isinstance(extra, dict) and "rule" in extra}
    defaults = {name: field.get_default(call_default_factory=True) for name, field in fields.items()}
    return rules, defaults


def _extra(extra: Any, key: str) -> str:
    return str(extra.get(key, "")) if isinstance(extra, dict) else ""
