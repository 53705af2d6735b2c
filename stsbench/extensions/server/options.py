"""Options of encoders that a server runs, and the further fields of its requests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from stsbench.encoders.traits import ROLES
from stsbench.errors import EncoderError
from stsbench.options import OptionGroup, Values, option
from stsbench.parsing import parse_json, read_json_object

if TYPE_CHECKING:
    from stsbench.encoders.options import EncoderOptions


_OF, _OF_ANY = ("openai",), ("openai", "judge")
_BY_TASK = Values(lambda prompt: prompt in ("none", "card", "mteb"), "")
WIDTH = "dimensions"  # field of a request: dimensions of the vectors
_OTHER = "text"  # key for texts without a role, as under sts
_CHOICE = {*ROLES, _OTHER}
_OWN = {"model": "it is NAME in openai:NAME", "input": "it is the texts", "encoding_format": "it is chosen here",
        "messages": "it is the text of --judge-prompt"}


@dataclass(frozen=True, kw_only=True)
class ServerOptions(OptionGroup):
    """Where a server answers, and what it is asked for."""

    query_prompt: str | None = option(
        None, "Text before queries that go to a server, in the place of --prompt.", kinds=_OF,
        excludes={"prompt": _BY_TASK},
    )
    document_prompt: str | None = option(
        None, "Text before documents that go to a server, in the place of --prompt.", kinds=_OF,
        excludes={"prompt": _BY_TASK},
    )
    extra_body: str | Path | Mapping[str, Any] | None = option(
        None, "Further fields of the requests to a server, as dimensions: a JSON object, or a file that holds one. A value "
        'by role is {"query": ..., "document": ..., "text": ...}, text for all others.', metavar="JSON|FILE", kinds=_OF_ANY,
        renamed={"dimensions": 'extra_body={"dimensions": N}'},
    )
    base_url: str | None = option(
        None, "Where the server of openai:NAME answers, e.g. http://127.0.0.1:8080/v1. Default: the variable "
        "OPENAI_BASE_URL, else OpenAI's. Its key is the variable OPENAI_API_KEY.", metavar="URL", kinds=_OF_ANY,
    )
    requests: int = option(4, "Requests to a server at a time.", least=1, kinds=_OF_ANY)
    price: float | None = option(
        None, "What a server takes for a million tokens, to count the cost.", metavar="MONEY", kinds=_OF_ANY, least=0,
    )
    judge_prompt: str | Path | None = option(
        None, "What judge:NAME is asked of each pair, a text file with {a} and {b} where its texts go. The answer is to "
        "hold one number.", metavar="FILE", kinds=("judge",),
    )


if TYPE_CHECKING:

    class EncoderServerOptions(EncoderOptions, ServerOptions):
        """EncoderOptions as they are while this extension is installed."""


class ServerArguments(TypedDict, total=False):
    """The options as keyword arguments, for editors and type checkers; a test compares the two."""

    base_url: str | None
    requests: int
    price: float | None
    query_prompt: str | None
    document_prompt: str | None
    extra_body: str | Path | Mapping[str, Any] | None
    judge_prompt: str | Path | None


def read_fields(asked: str | Path | Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the fields of --extra-body, which is a JSON object, a file that holds one, or a mapping; {} for None.

    Raises EncoderError, one line, for other values, a field that is set otherwise, or a value by role that lacks a role.
    """
    text = str(asked) if isinstance(asked, str | Path) else ""
    try:
        fields = (dict(asked) if isinstance(asked, Mapping) else {} if asked is None else None if not text.strip() else
                  parse_json(text) if isinstance(asked, str) and text.lstrip().startswith(("{", "[")) else
                  read_json_object(Path(text).expanduser(), EncoderError))
        json.dumps(fields, allow_nan=False)
    except (ValueError, TypeError) as error:
        raise EncoderError(f"--extra-body is not valid JSON: {error}") from None
    if not isinstance(fields, dict):
        raise EncoderError('--extra-body must be a JSON object, as {"truncate": "END"}, or a file that holds one')
    for name, value in fields.items():
        if name in _OWN:
            raise EncoderError(f"--extra-body: {name} is no further field: {_OWN[name]}")
        if by_role(value) and value.keys() != _CHOICE:
            lacking, more = sorted(_CHOICE - value.keys()), sorted(value.keys() - _CHOICE)
            wrong = f"lacks {' and '.join(lacking)}" if lacking else f"holds {more[0]}, too"
            raise EncoderError(f"--extra-body: {name} is given by role and {wrong}: write query, document and text (for "
                               "texts without a role, as sts reads them), null where the field is not to be sent")
    width = fields.get(WIDTH)
    if width is not None and (not isinstance(width, int) or isinstance(width, bool) or width < 1):
        raise EncoderError(f"--extra-body: {WIDTH} is how many numbers a vector has, not {json.dumps(width)}")
    return fields


def by_role(value: Any) -> bool:
    """Return whether a field's value depends on the text's role."""
    return isinstance(value, Mapping) and bool(_CHOICE & value.keys())


def role_fields(fields: Mapping[str, Any], role: str | None) -> dict[str, Any]:
    """Return the fields of a request for texts of a role, "query", "document" or None, without those that are null for
    this role."""
    chosen = {name: value[role if role in ROLES else _OTHER] if by_role(value) else value for name, value in fields.items()}
    return {name: value for name, value in chosen.items() if value is not None or not by_role(fields[name])}


def fields_in_words(fields: Mapping[str, Any]) -> str:
    """Return the fields for each role as text, for messages."""
    return ", ".join(f"{role} {json.dumps(role_fields(fields, role), ensure_ascii=False)}" for role in (*ROLES, _OTHER))
