"""The base of a method's own choices. Imports no torch, so that recipes can be checked and listed quickly."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Options(BaseModel):
    """A method's choices, as in a recipe's `options`; an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)
