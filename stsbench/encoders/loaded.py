"""The encoder that a function of Python is asked to use: a name with options, or one that is loaded already."""

from __future__ import annotations

import os
from dataclasses import fields
from typing import Any

from stsbench.encoders.base import Encoder
from stsbench.encoders.load import load_encoder
from stsbench.encoders.options import EncoderOptions
from stsbench.errors import EncoderError


def loaded_encoder(model: Any, options: EncoderOptions) -> Encoder:
    """The encoder called `model`, loaded with these options; an encoder, a function or an object with `encode` as it is.

    EncoderError: as `load_encoder`, and where options were set for what is loaded already.
    """
    if isinstance(model, str | os.PathLike):
        return load_encoder(model, options)
    for entry in fields(EncoderOptions):
        if getattr(options, entry.name) != entry.default:
            raise EncoderError(f"{entry.name} has no effect on an encoder that is already loaded: give it to load_encoder")
    return load_encoder(model).identified()
