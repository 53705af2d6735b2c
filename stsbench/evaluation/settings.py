"""A protocol's settings: a frozen pydantic model, each field with its type, default, meaning and source.

    class TopSettings(Settings):
        share: Fraction = setting(0.1, "the share of the pairs that counts", "our choice")

Every setting is checked before anything is encoded. The values as a record holds them are `checked(...)`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from stsbench.config import validate
from stsbench.errors import StsbenchError
from stsbench.registry import did_you_mean
from stsbench.settings import Described, described, setting
from stsbench.settings import Settings as Base

__all__ = [
    "LARGEST", "AnyOf", "Count", "Described", "Factor", "Fraction", "Settings", "SettingsModel", "SomeOf", "Text", "Whole",
    "checked", "described", "no_such_setting", "requirement", "setting",
]

LARGEST = 2**32 - 1  # the largest seed that numpy's older generators take
T = TypeVar("T")


class Settings(Base):
    """The settings of one protocol, in the order of its records."""

    model_config = ConfigDict(validate_default=True)


SettingsModel = type[Settings]


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
"""A whole number from 0."""
Count = Annotated[int, Field(ge=1, le=LARGEST)]
"""A whole number from 1."""
Fraction = Annotated[float, Field(gt=0, lt=1)]
"""A number between 0 and 1, both left out."""
Factor = Annotated[float, Field(gt=0, lt=1e12)]
"""A positive factor of a loss or a penalty. Far more would overflow float32."""
Text = Annotated[str, Field(min_length=1)]
"""A text that is not empty."""
AnyOf = Annotated[list[T], BeforeValidator(_listed), AfterValidator(_different)]
"""Different values of one type, or none. One value alone is a list of one."""
SomeOf = Annotated[list[T], BeforeValidator(_listed), AfterValidator(_different), AfterValidator(_filled)]
"""Different values of one type, at least one. One value alone is a list of one."""


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
