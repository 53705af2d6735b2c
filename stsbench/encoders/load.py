"""From what a user writes after --model to an encoder: its kind is an entry point, and the kind's class does the rest."""

from __future__ import annotations

import difflib
import os
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from stsbench.encoders.base import Encoder, EncoderOptions, EncoderSpec
from stsbench.errors import EncoderError
from stsbench.plugins import calling, where
from stsbench.registry import did_you_mean, names, namesakes, resolve
from stsbench.torch_state import fresh_torch

GROUP = "stsbench.encoders"
_DEFAULT = "transformers"  # the kind of a name without one: a Hub id, a folder, minilm


def load_encoder(model: Any, options: EncoderOptions | None = None, **named: Any) -> Encoder:
    """The encoder called `model`: KIND:ARGUMENT, e.g. lexical:tfidf, or a transformer by its Hub id, folder or short name.

    A folder may be a Path; a function, or an object with `encode`, is one that computes with it.
    named: fields of EncoderOptions, e.g. pooler="cls". Raises EncoderError for a name nothing is known under, and for an
    option that would change the vectors of a transformer but means nothing to the kind asked for.
    """
    if isinstance(model, os.PathLike):
        model = os.fspath(model)
    if not isinstance(model, str):
        if options is not None or named:
            idle = ", ".join(sorted(named)) or "options"
            raise EncoderError(f"load_encoder: {idle} would have no effect on what is no name of a model: set it there")
        loaded: Encoder = model if isinstance(model, Encoder) else resolve(GROUP, "python").of(model)
        return loaded
    if unknown := sorted(named.keys() - {option.name for option in fields(EncoderOptions)}):
        known = [option.name for option in fields(EncoderOptions)]
        raise EncoderError(f"load_encoder has no option '{unknown[0]}'{did_you_mean(unknown[0], known)}")
    kind, colon, argument = model.partition(":")
    if model in kinds() and not Path(model).exists():
        raise EncoderError(f"{model} is a kind of encoder: write {model}:ARGUMENT")
    if not colon or kind not in kinds():
        _reject_unknown_kind(model, kind if colon else "")
        kind, argument = _DEFAULT, model
    elif not argument:
        raise EncoderError(f"'{model}' names nothing after the colon")
    cls = resolve(GROUP, kind)
    if not (isinstance(cls, type) and issubclass(cls, Encoder)):
        raise EncoderError(f"the encoder kind '{kind}' is {cls!r}, not a class derived from stsbench.encoders.base.Encoder")
    asked = replace(options or EncoderOptions(), model=model, **named)
    with fresh_torch():  # weights are made, and some models tried out, while they are loaded
        encoder = calling(cls, "load", lambda: cls.load(argument, asked), raising=EncoderError)
    if not isinstance(encoder, Encoder):
        raise EncoderError(f"{where(cls)}: load must return an Encoder, not {type(encoder).__name__}")
    if not isinstance(getattr(encoder, "spec", None), EncoderSpec):
        raise EncoderError(f"{where(type(encoder))} does not set self.spec to an EncoderSpec")
    if model == "minilm" or kind != _DEFAULT:
        meaning = "the embedded all-MiniLM-L6-v2" if model == "minilm" else f"an encoder of the kind {kind}"
        encoder.notes = (*namesakes(model, meaning), *encoder.notes)
    return encoder


def kinds() -> list[str]:
    """The words that may stand before the colon, sorted: the built-in kinds and those of installed plug-ins."""
    return names(GROUP)


def _reject_unknown_kind(model: str, kind: str) -> None:
    """A misspelt `lexcal:token-set` should not go to the Hub, whose ids never hold a colon; a drive letter may."""
    if len(kind) > 1 and not Path(model).exists():
        close = difflib.get_close_matches(kind, kinds(), n=1)
        known = ", ".join(f"{name}:" for name in kinds())
        hint = f"did you mean '{close[0]}:'?" if close else f"known are {known}"
        raise EncoderError(f"unknown kind of encoder '{kind}:' in '{model}'; {hint}")
