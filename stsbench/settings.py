"""A setting with its default, meaning and source, as lists print it: of protocols, and of what processes vectors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, Field

from stsbench.config import values_of


def setting(default: Any, meaning: str, source: str, *, by: str = "") -> Any:
    """A field. default: `...` for a setting that must be given; source: the paper and section, or the code, it is from.

    by: the option or name that it is chosen by, where it cannot be changed alone: rows would carry another's name.
    """
    return Field(default, description=meaning, json_schema_extra={"source": source, "by": by})


@dataclass(frozen=True)
class Described:
    """One setting in words. default: as JSON; values: its type, words and bounds."""

    name: str
    values: str
    default: str
    meaning: str
    source: str


def described(model: type[BaseModel], settings: Mapping[str, Any]) -> list[Described]:
    """The fields of `model`, in order; `settings`: the values that stand as defaults, such as those of a variant."""
    return [
        Described(
            name, values_of(field), json.dumps(settings[name]), field.description or "",
            _extra(field.json_schema_extra, "source"),
        )
        for name, field in model.model_fields.items()
    ]


def chosen_by(model: type[BaseModel], name: str) -> str:
    """What `setting` was told of a field as `by`; "" for one that can be changed alone, or is not there."""
    field = model.model_fields.get(name)
    return "" if field is None else _extra(field.json_schema_extra, "by")


def _extra(extra: Any, key: str) -> str:
    return str(extra.get(key, "")) if isinstance(extra, dict) else ""
