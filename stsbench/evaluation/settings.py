"""A protocol's settings: a frozen pydantic model, each field with its type, default, meaning and source.

    class TopSettings(Settings):
        share: Fraction = setting(0.1, "the share of the pairs that counts", "our choice")

Every setting is checked before anything is encoded. The values as a record holds them are `checked(...)`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from stsbench.config import validate, values_of
from stsbench.errors import StsbenchError
from stsbench.registry import did_you_mean

LARGEST = 2**32 - 1  # the largest seed that numpy's older generators take
T = TypeVar("T")


class Settings(BaseModel):
    """The settings of one protocol, in the order of its records."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


SettingsModel = type[Settings]


def setting(default: Any, meaning: str, source: str) -> Any:
    """A field. default: `...` for a setting that must be given; source: the paper and section, or the code, it is from."""
    return Field(default, description=meaning, json_schema_extra={"source": source})


def requirement(text: str) -> PydanticCustomError:
    """What a validator raises: the line reads "PROTOCOL: KEY `text`, not VALUE"."""
    return PydanticCustomError("requirement", "{text}", {"text": text})


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str | bool | int | float) else value


def _different(values: list[T]) -> list[T]:
    if len(set(values)) < len(values):
        raise requirement("must be a list of different values")
    return values


def _filled(values: list[T]) -> list[T]:
    if not values:
        raise requirement("must be a list of at least one value")
    return values


Whole = Annotated[int, Field(ge=0, le=LARGEST)]
Count = Annotated[int, Field(ge=1, le=LARGEST)]
Fraction = Annotated[float, Field(gt=0, lt=1)]
Factor = Annotated[float, Field(gt=0, lt=1e12)]  # of a loss or a penalty: far more would overflow float32
Text = Annotated[str, Field(min_length=1)]
# Different values of one type; one value alone is a list of one.
AnyOf = Annotated[list[T], BeforeValidator(_listed), AfterValidator(_different)]
SomeOf = Annotated[list[T], BeforeValidator(_listed), AfterValidator(_different), AfterValidator(_filled)]


def checked(model: SettingsModel, settings: Mapping[str, Any], protocol: str) -> dict[str, Any]:
    """All settings of `model` as a record holds them, those not in `settings` by their defaults.

    Raises StsbenchError, one line naming protocol and setting, for the first that is unknown or wrong.
    """
    for key in settings:
        if key not in model.model_fields:
            raise no_such_setting(protocol, str(key), model.model_fields)
    return validate(model, settings, protocol).model_dump()


def no_such_setting(protocol: str, key: str, known: Iterable[str]) -> StsbenchError:
    return StsbenchError(f"protocol {protocol} has no setting '{key}'{did_you_mean(key, sorted(known))}")


@dataclass(frozen=True)
class Described:
    """One setting in words. default: as JSON; values: its type, words and bounds."""

    name: str
    values: str
    default: str
    meaning: str
    source: str


def described(model: SettingsModel, settings: Mapping[str, Any]) -> list[Described]:
    """The fields of `model`, in order; `settings`: the values that stand as defaults, such as those of a variant."""
    return [
        Described(
            name, values_of(field), json.dumps(settings[name]), field.description or "", _source(field.json_schema_extra)
        )
        for name, field in model.model_fields.items()
    ]


def _source(extra: Any) -> str:
    return str(extra.get("source", "")) if isinstance(extra, dict) else ""
