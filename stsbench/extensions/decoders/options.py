"""The option of encoders by which vectors are read off a causal language model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from stsbench.options import GIVEN, OptionGroup, Values, option

if TYPE_CHECKING:
    from stsbench.encoders.options import EncoderOptions


@dataclass(frozen=True, kw_only=True)
class DecoderOptions(OptionGroup):
    """The option --preset."""

    preset: str | None = option(
        None, "How vectors are read off a causal model: NAME, NAME:FORM or NAME:FORM,SETTING=VALUE,... "
        "(`stsbench list encoders` names them). --layer takes the place of the preset's.", changes_vectors=True,
        excludes={"prompt": Values(lambda prompt: prompt not in (None, "card"), ""), "template": GIVEN, "pooler": GIVEN,
                  "full_stop": GIVEN}, why="the preset decides it",
    )


if TYPE_CHECKING:

    class EncoderDecoderOptions(EncoderOptions, DecoderOptions):
        """EncoderOptions as they are while this extension is installed."""


class DecoderArguments(TypedDict, total=False):
    """The option as a keyword argument, for editors and type checkers; a test compares the two."""

    preset: str | None
