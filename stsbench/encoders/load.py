"""From what a user writes after --model to an encoder."""

from __future__ import annotations

import difflib
from pathlib import Path

from stsbench.encoders.base import Encoder
from stsbench.errors import EncoderError

KINDS = ("lexical", "words", "vectors", "python")


def load_encoder(
    model: str,
    *,
    pooler: str | None = None,
    template: str | None = None,
    max_length: int | None = None,
    dtype: str = "float32",
    device: str | None = None,
    batch_tokens: int | None = None,
    offline: bool = False,
    full_stop: bool | None = None,
) -> Encoder:
    """The encoder called `model`: `lexical:NAME`, `words:FILE`, `vectors:FILE.npz`, `python:MODULE:CALLABLE`, or a
    transformer by its Hub id, folder or short name.

    Raises EncoderError for a name nothing is known under, and for an option that would change the vectors of a
    transformer but means nothing to the kind asked for. `device`, `batch_tokens` and `offline` change no vector, so
    kinds that have no use for them ignore them.
    """
    kind, colon, argument = model.partition(":")
    if not colon or kind not in KINDS:
        _reject_unknown_kind(model, kind if colon else "")
        from stsbench.encoders.transformer.load_transformer import load_transformer

        return load_transformer(
            model,
            pooler=pooler,
            template=template,
            max_length=max_length,
            dtype=dtype,
            device=device,
            batch_tokens=batch_tokens,
            offline=offline,
            full_stop=full_stop,
        )
    if not argument:
        raise EncoderError(f"'{model}' names nothing after the colon")
    changed = {
        "--pooler": pooler is not None,
        "--template": template is not None,
        "--full-stop": full_stop is not None,
        "--max-length": max_length is not None,
        "--dtype": dtype != "float32",
    }
    if stray := [option for option, given in changed.items() if given]:
        raise EncoderError(f"{stray[0]} does not apply to {model}: it is for transformers only")
    return _load_light(kind, argument)


def _load_light(kind: str, argument: str) -> Encoder:
    """Encoders that need no torch; each imported only when asked for."""
    if kind == "lexical":
        from stsbench.encoders.light.lexical import LEXICAL

        if argument not in LEXICAL:
            raise EncoderError(f"unknown encoder 'lexical:{argument}'{_suggest(argument, list(LEXICAL), 'lexical:')}")
        return LEXICAL[argument]()
    if kind == "words":
        from stsbench.encoders.light.words import load_words

        return load_words(argument)
    if kind == "vectors":
        from stsbench.encoders.light.vectors import StoredVectors

        return StoredVectors(Path(argument))
    from stsbench.encoders.light.callable import load_callable

    return load_callable(argument)


def _reject_unknown_kind(model: str, kind: str) -> None:
    """A misspelt `lexcal:token-set` should not go to the Hub, whose ids never hold a colon; a drive letter may."""
    if len(kind) > 1 and not Path(model).exists():
        raise EncoderError(f"unknown kind of encoder '{kind}:' in '{model}'{_suggest(kind, list(KINDS), '', ':')}")


def _suggest(word: str, known: list[str], before: str = "", after: str = "") -> str:
    close = difflib.get_close_matches(word, known, n=1)
    names = ", ".join(f"{before}{name}{after}" for name in known)
    return f"; did you mean '{before}{close[0]}{after}'?" if close else f"; known are {names}"
