"""An extension of mkdocstrings: the examples of docstrings are code, which Markdown does not know them for."""

from __future__ import annotations

from typing import Any

import griffe
from api import fenced


class Doctests(griffe.Extension):
    def on_object(self, *, obj: Any, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
