"""A transformers model in memory, with its tokenizer, as the encoder of a folder that they are saved to."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from stsbench.encoders.model_folder import read_settings
from stsbench.errors import EncoderError


@contextmanager
def saved(pair: Sequence[Any]) -> Iterator[tuple[Path, str]]:
    """The folder that `(model, tokenizer)` are saved to for the time of the block, and what the model is called.

    The files depend on weights, settings and tokenizer alone: the same model is the same encoder in every process.
    EncoderError, one line: no such pair, or one that cannot be saved.
    """
    if len(pair) != 2 or not hasattr(pair[0], "state_dict") or not hasattr(pair[1], "save_pretrained"):
        kinds = ", ".join(type(part).__name__ for part in pair)
        raise EncoderError(f"({kinds}) is no encoder: give the pair (model, tokenizer) of transformers, and a pooler")
    model, tokenizer = pair
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        try:
            model.save_pretrained(folder)
            _untouched(tokenizer).save_pretrained(folder)
        except Exception as error:  # whatever a model of somebody's own raises
            raise EncoderError(f"{_name(model)} cannot be saved: {type(error).__name__}: {error}") from error
        _without_version(folder / "config.json")
        yield folder, _name(model)


def _without_version(file: Path) -> None:
    """Which transformers wrote it says nothing about the model."""
    settings = read_settings(file)
    settings.pop("transformers_version", None)
    file.write_text(json.dumps(settings, sort_keys=True), "utf-8")


def _untouched(tokenizer: Any) -> Any:
    """The tokenizer without what a call with truncation=True or padding=True has left switched on in it."""
    if not getattr(tokenizer, "is_fast", False):
        return tokenizer
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()
    return tokenizer


def _name(model: Any) -> str:
    """"BertModel of NAME"; of a path the last part only: a record names no folder of this machine."""
    source = getattr(getattr(model, "config", None), "_name_or_path", "") or ""
    path = Path(source)
    source = path.name if path.is_absolute() or source.startswith((".", "~")) else source
    return f"{type(model).__name__}{f' of {source}' if source else ''}"
