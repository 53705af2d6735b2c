"""A setting with its default, meaning and source, as lists print it: of protocols, and of what processes vectors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, Field

from stsbench.config import values_of


def setting(default: Any, meaning: str, source: str) -> Any:
    """A field. default: `...` for a setting that must be given; source: the paper and section, or the code, it is from."""
    return Field(default, description=meaning, json_schema_extra={"source": source})


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
            name, values_of(field), json.dumps(settings[name]), field.description or "", _source(field.json_schema_extra)
        )
        for name, field in model.model_fields.items()
    ]


def _source(extra: Any) -> str:
    return str(extra.get("source", "")) if isinstance(extra, dict) else ""
