"""Options of a model behind a server, beside those of every encoder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from stsbench.options import OptionGroup, option
from stsbench.rules import Values

if TYPE_CHECKING:
    from stsbench.encoders.options import EncoderOptions

_OF = ("openai",)
_BY_TASK = Values(lambda prompt: prompt in ("none", "card", "mteb"), "")


@dataclass(frozen=True, kw_only=True)
class ServerOptions(OptionGroup):
    """Where a server answers, and what it is asked for."""

    query_prompt: str | None = option(
        None, "Text before queries that go to a server, in the place of --prompt.", kinds=_OF, rare=True,
        excludes={"prompt": _BY_TASK},
    )
    document_prompt: str | None = option(
        None, "Text before documents that go to a server, in the place of --prompt.", kinds=_OF, rare=True,
        excludes={"prompt": _BY_TASK},
    )
    extra_body: str | Path | Mapping[str, Any] | None = option(
        None, "Further fields of the requests to a server, as dimensions: a JSON object, or a file that holds one. A value "
        'by role is {"query": ..., "document": ..., "text": ...}, text for all others.', metavar="JSON|FILE", kinds=_OF,
        rare=True,
        renamed={"dimensions": 'extra_body={"dimensions": N}'},
    )
    base_url: str | None = option(
        None, "Where the server of openai:NAME answers, e.g. http://127.0.0.1:8080/v1. Default: the variable "
        "OPENAI_BASE_URL, else OpenAI's. Its key is the variable OPENAI_API_KEY.", metavar="URL", kinds=_OF, rare=True,
    )
    requests: int = option(4, "Requests to a server at a time.", least=1, kinds=_OF, rare=True)
    price: float | None = option(
        None, "What a server takes for a million tokens, to count the cost.", metavar="MONEY", kinds=_OF, rare=True, least=0,
    )


if TYPE_CHECKING:

    class Asked(EncoderOptions, ServerOptions):
        """EncoderOptions as they are while this extension is installed."""


class ServerArguments(TypedDict, total=False):
    """The same as arguments of a function, for editors and type checkers; a test compares the two."""

    base_url: str | None
    requests: int
    price: float | None
    query_prompt: str | None
    document_prompt: str | None
    extra_body: str | Path | Mapping[str, Any] | None
