"""Loading of encoders by the name that a user writes after --model, KIND:ARGUMENT; each kind is a class, an entry point."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from stsbench.encoders.base import Encoder, EncoderOptions, EncoderSpec
from stsbench.errors import EncoderError, StsbenchError
from stsbench.notebook import load_tqdm
from stsbench.options import takes
from stsbench.registry import calling, names, namesakes, resolve, where
from stsbench.torch_state import fresh_torch

if TYPE_CHECKING:
    from stsbench.extensions.arguments import EncoderArguments

GROUP = "stsbench.encoders"
_DEFAULT = "transformers"  # the kind of a name without KIND: a Hub id, a folder, minilm
_DEFAULTS = {entry.name: entry.default for entry in fields(EncoderOptions) if entry.name != "model"}


@takes(EncoderOptions, without=["model"])
def load_encoder(
    model: Any, options: EncoderOptions | None = None, *, fingerprint: str | None = None, **named: Unpack[EncoderArguments]
) -> Encoder:
    """Return the encoder called `model`: KIND:ARGUMENT, e.g. lexical:tfidf, or a transformer by its Hub id, folder or short
    name.

    model: a name as after --model, or a folder's Path; the pair (model, tokenizer) of transformers, as they are now; a
    function from a list of texts to vectors, or an object with such a method `encode`, as a SentenceTransformer; an encoder
    of mteb; an Encoder, which is returned as it is. options, or some of them by name: EncoderOptions, for a name or a pair.
    fingerprint: identifies a function or an object, to be changed whenever its vectors change; by default its vectors of 32
    texts identify it.

    EncoderError, one line: an unknown name, a pair without a pooler, or an option that changes the vectors of transformers
    and has no effect on the kind of encoder asked for.

    >>> from stsbench import load_encoder
    >>> load_encoder("lexical:token-set").encode("a red cat").sum()
    np.float32(3.0)
    """
    chosen: Any = {name: value for name, value in named.items() if value != _DEFAULTS[name]}
    if isinstance(model, os.PathLike):
        model = os.fspath(model)
    if not isinstance(model, str | tuple):
        if options is not None or chosen:
            idle = ", ".join(sorted(chosen)) or "options"
            raise EncoderError(f"load_encoder: {idle} would have no effect on what is no name of a model: set it there")
        if isinstance(model, Encoder) and fingerprint is None:
            return model
    if fingerprint is not None and isinstance(model, str | tuple | Encoder):
        raise EncoderError("fingerprint is for a function or an object with `encode`: other encoders have one of their own")
    if isinstance(model, tuple):
        pair = replace(options or EncoderOptions(), **chosen).of_this_machine()
        replace(pair, model="a pair (model, tokenizer)").refuse_kinds(_DEFAULT)
        loaded: Encoder = resolve(GROUP, _DEFAULT).wrap(model, pair)
        return loaded
    if not isinstance(model, str):
        known: Encoder = resolve(GROUP, "python").wrap(model, fingerprint)
        return known
    kind, colon, argument = model.partition(":")
    if model in kinds() and not Path(model).exists():
        raise EncoderError(f"{model} is a kind of encoder: write {model}:ARGUMENT")
    if not colon or kind not in kinds():
        # A misspelt lexcal:token-set should not go to the Hub, whose ids hold no colon; a single letter is a Windows drive.
        if colon and len(kind) > 1 and not Path(model).exists():
            close = difflib.get_close_matches(kind, kinds(), n=1)
            hint = f"did you mean '{close[0]}:'?" if close else f"known are {', '.join(f'{name}:' for name in kinds())}"
            raise EncoderError(f"unknown kind of encoder '{kind}:' in '{model}'; {hint}")
        kind, argument = _DEFAULT, model
    elif not argument:
        raise EncoderError(f"'{model}' names nothing after the colon")
    cls = resolve(GROUP, kind)
    if not (isinstance(cls, type) and issubclass(cls, Encoder)):
        raise EncoderError(f"the encoder kind '{kind}' is {cls!r}, not a class derived from stsbench.encoders.base.Encoder")
    asked = replace(options or EncoderOptions(), model=model, **chosen)
    if cls.computes_in != "server":
        asked = asked.of_this_machine()
    asked.refuse_kinds(kind)
    load_tqdm()
    with fresh_torch():  # loading computes, too: it initialises weights, and tries some models out
        encoder = calling(cls, "load", lambda: cls.load(argument, asked), raising=EncoderError)
    if not isinstance(encoder, Encoder):
        raise EncoderError(f"{where(cls)}: load must return an Encoder, not {type(encoder).__name__}")
    if not isinstance(getattr(encoder, "spec", None), EncoderSpec):
        raise EncoderError(f"{where(type(encoder))} does not set self.spec to an EncoderSpec")
    if model == "minilm" or kind != _DEFAULT:
        meaning = "the embedded all-MiniLM-L6-v2" if model == "minilm" else f"an encoder of the kind {kind}"
        encoder.notes = (*namesakes(model, meaning), *encoder.notes)
    return encoder


def loaded_encoder(model: Any, options: EncoderOptions) -> Encoder:
    """Return the encoder called `model`, loaded with these options; for an encoder, a function or an object with `encode`,
    what `load_encoder` returns, identified.

    EncoderError: as `load_encoder`, and where options were set for what is loaded already.
    """
    if isinstance(model, str | os.PathLike):
        return load_encoder(model, options)
    for entry in fields(EncoderOptions):
        if getattr(options, entry.name) != entry.default:
            raise EncoderError(f"{entry.name} has no effect on an encoder that is already loaded: give it to load_encoder")
    return load_encoder(model).identified()


def text_similarities(model: Any) -> tuple[str, ...]:
    """Return `Encoder.text_similarities` of a model, given as to `load_encoder`, without loading it."""
    kind, colon, _ = model.partition(":") if isinstance(model, str) else ("", "", "")
    by: tuple[str, ...] = getattr(resolve(GROUP, kind) if colon and kind in kinds() else model, "text_similarities", ())
    return by


def kinds() -> list[str]:
    """Return the kinds of encoders, sorted: the built-in ones and those of installed plug-ins."""
    return names(GROUP)


def usage() -> Iterator[str]:
    """Yield a line for each kind, the default first: how it is written after --model, or why it fails to load."""
    for kind in sorted(kinds(), key=lambda kind: kind != _DEFAULT):
        try:
            yield getattr(resolve(GROUP, kind), "usage", "") or f"{kind}:ARGUMENT"
        except StsbenchError as error:
            yield str(error)
