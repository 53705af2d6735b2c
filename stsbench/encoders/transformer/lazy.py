"""Encoders of the kind `transformers`, whose weights are loaded late: texts that are all in the cache need no torch."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from stsbench.encoders.base import Counts, Encoded, Encoder, EncoderOptions, Progress, TokenTable
from stsbench.encoders.forward.checkpoint import load_token_table, quiet
from stsbench.encoders.forward.identity import BLIND, Opened
from stsbench.encoders.model_folder import read_settings
from stsbench.encoders.post.chain import read_post
from stsbench.encoders.post.encoder import PostProcessed
from stsbench.encoders.transformer.config import EncoderConfig, check_cut, resolve_config
from stsbench.errors import EncoderError

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

    from stsbench.encoders.transformer.parts import Parts
    from stsbench.encoders.transformer.transformer import TransformerEncoder


@contextmanager
def saved(pair: Sequence[Any]) -> Iterator[tuple[Path, str]]:
    """Yield a temporary folder in which `(model, tokenizer)` are saved for the block, and the model's name.

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
        except Exception as error:  # a user's own model may raise anything
            raise EncoderError(f"{_name(model)} cannot be saved: {type(error).__name__}: {error}") from error
        settings = read_settings(folder / "config.json")
        settings.pop("transformers_version", None)  # it says nothing about the model
        (folder / "config.json").write_text(json.dumps(settings, sort_keys=True), "utf-8")
        yield folder, _name(model)


def _untouched(tokenizer: Any) -> Any:
    """Return the tokenizer without truncation and padding, which an earlier call may have left switched on."""
    if not getattr(tokenizer, "is_fast", False):
        return tokenizer
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()
    return tokenizer


def _name(model: Any) -> str:
    """Return "BertModel of NAME"; of a path only the last part, since records name no folders of this machine."""
    source = getattr(getattr(model, "config", None), "_name_or_path", "") or ""
    path = Path(source)
    source = path.name if path.is_absolute() or source.startswith((".", "~")) else source
    return f"{type(model).__name__}{f' of {source}' if source else ''}"


class _Loader:
    """Loads the parts of a model once for all its prompts and roles."""

    def __init__(self, config: EncoderConfig, options: EncoderOptions) -> None:
        self.config, self.options = config, options
        self.opened = Opened(config.sources, native=config.runs_code)

    @cached_property
    def parts(self) -> Parts:
        """Return the parts. EncoderError: they cannot be loaded, the files changed since the config took their digest, or
        the digest does not cover an opened file."""
        from stsbench.encoders.transformer.parts import load_parts

        with self.opened:
            parts = load_parts(self.config, self.options.device, self.options.attention)
        known, name = self.config.weights, self.config.name
        if self.opened.digest(name, known) != known and not self.config.runs_code:
            raise EncoderError(f"{name} is read from a file that its fingerprint does not cover, as its name is a picture's "
                               "or README's, or that of a hidden folder: rename it")
        return parts


class LazyEncoder(Encoder):
    """A TransformerEncoder that is loaded at the first text that has to be encoded."""

    usage = "minilm, a Hub id, a transformers or sentence-transformers folder"

    def __init__(self, config: EncoderConfig, options: EncoderOptions, loader: _Loader | None = None) -> None:
        """options: where and in which batches it runs; all else is in `config`. loader: of the same model, to be shared.

        It is loaded at once where only the model can tell its positions, and with a reading or a chosen layer.
        """
        self.config, self.options = config, options
        self._loader = loader or _Loader(config, options)
        self._built: TransformerEncoder | None = None
        self.notes, self.traits = config.notes, replace(config.traits, attention=options.attention)
        self.dimension = min((size for size in (config.width, config.truncate_dim) if size and config.width), default=None)
        if config.positions is None or config.reading is not None or config.layer is not None:
            self._built = self._build()
            self.dimension = self._built.dimension
        self.spec = config.spec(config.positions) if self._built is None else self._built.spec

    @classmethod
    def load(cls, argument: str, options: EncoderOptions) -> Encoder:
        """Return the encoder of `minilm`, a folder, a training run or a Hub id; sentence-transformers runs modules that our
        forward pass does not know."""
        config = resolve_config(argument, options)
        if config.pooler is None:
            from stsbench.encoders.transformer.sentence_transformer import SentenceTransformerEncoder

            if options.attention != "auto":
                raise EncoderError(
                    f"--attention {options.attention} is for our own forward pass, and sentence-transformers runs {argument}"
                    ": leave it out, or choose a --pooler"
                )
            library = SentenceTransformerEncoder(config, options.device)
            check_cut(argument, options, library.width)
            return library
        check_cut(argument, options, config.width)
        encoder = cls(config, options)
        if config.runs_code:
            with encoder._loader.opened as opened:  # what code of the folder's own opens is known once it has run
                encoder.ready()
            weights = opened.digest(config.name, config.weights)
            encoder = cls(replace(config, weights=weights), options, encoder._loader)
            if opened.blind:
                encoder.cacheable, encoder.notes = False, (*encoder.notes, f"{config.name}: {BLIND}")
        return encoder if config.post is None else PostProcessed(encoder, *read_post(config.post))

    @classmethod
    def wrap(cls, pair: Sequence[Any], options: EncoderOptions) -> LazyEncoder:
        """Return the encoder of a model in memory and its tokenizer as they are now: later training does not change it."""
        with quiet(), saved(pair) as (folder, name):
            asked = replace(options, device=options.device or str(next(pair[0].parameters()).device))
            try:
                config = replace(resolve_config(str(folder), asked), name=name)
                check_cut(name, asked, config.width)
                encoder = cls(config, asked)
                encoder.built  # noqa: B018 - loaded while the files are there
            except EncoderError as error:
                raise EncoderError(str(error).replace(str(folder), name)) from error
        return encoder

    @property
    def parts(self) -> Parts:
        """Return model, tokenizer and heads, loaded when they are first asked for."""
        return self._loader.parts

    @property
    def device(self) -> torch.device:
        """Return the device of the model, or the one that it will be loaded to."""
        from stsbench.encoders.transformer.parts import choose_device

        device: torch.device = choose_device(self.options.device) if self._built is None else self._built.device
        return device

    @property
    def stride(self) -> int:  # type: ignore[override]
        """Return `Encoder.stride`: larger where a device computes while the next texts are tokenised."""
        return 1 if self.device.type == "cpu" else 16

    @property
    def engine(self) -> str:  # type: ignore[override]
        """Return what runs the model, and, once it is loaded, by which pass."""
        return "our own forward pass" if self._built is None else self._built.engine

    def ready(self) -> None:
        """Load the model and find out by which pass it runs."""
        self.built.ready()
        self.notes = (*self.notes, *(line for line in self.built.notes if line not in self.notes))
        if self.built.equal_lengths:
            self.keep_lengths_apart()

    @property
    def built(self) -> TransformerEncoder:
        """Return the loaded encoder. EncoderError where its vectors would be cached under another encoder's fingerprint."""
        if self._built is None:
            encoder = self._build()
            if encoder.spec != self.spec:
                raise EncoderError(
                    f"the config.json of {self.spec.name} misstates its positions: the model cuts texts at "
                    f"{encoder.spec.max_length} tokens instead of {self.spec.max_length}"
                )
            self._built = encoder
        return self._built

    def run(self, texts: Sequence[str], progress: Progress | None = None) -> Encoded:
        """Return vectors of n distinct texts."""
        self.ready()
        with self._loader.opened:
            encoded = self.built.run(texts, progress)
        self._loader.opened.check(self.config.name)
        return encoded

    def token_vectors(self, texts: Sequence[str]) -> tuple[list[NDArray[np.float32]], NDArray[np.bool_]]:
        """Return the token vectors of the model, which is loaded for this."""
        self.ready()
        with self._loader.opened:
            vectors = self.built.token_vectors(texts)
        self._loader.opened.check(self.config.name)
        return vectors

    def counts(self, texts: Sequence[str]) -> Counts:
        """Return the counts of the model, which is loaded for this."""
        return self.built.counts(texts)

    def for_role(self, role: str | None, prompt: str | None = None) -> Encoder:
        """Return the same model with the prompt that its folder stores for a role, or with `prompt`."""
        config = self.config.for_role(role, prompt)
        return self if config == self.config else LazyEncoder(config, self.options, self._loader)

    def with_prompt(self, prompt: str) -> Encoder:
        """Return the same model with one prompt before all texts."""
        return LazyEncoder(self.config.with_prompt(prompt), self.options, self._loader)

    def with_dropout(self, seed: int) -> Encoder:
        """Return the same model in transformers' training mode, with another vector of a text at every call."""
        from stsbench.encoders.transformer.live import WithDropout

        return WithDropout(self.config, self._loader.parts, self.options.batch_tokens, seed)

    def token_table(self, which: str) -> TokenTable:
        """Return the table as the folder stores it, whatever --dtype the model computes in."""
        folder = self.config.folder
        if folder is None or not folder.is_dir():
            raise EncoderError(f"{self.spec.name} was given in memory: its {which} embedding is read from a folder; save it")
        return load_token_table(folder, self.spec.name, which, self.config.trust_remote_code)

    def _build(self) -> TransformerEncoder:
        from stsbench.encoders.transformer.transformer import TransformerEncoder

        encoder = TransformerEncoder(
            self.config, self._loader.parts, batch_tokens=self.options.batch_tokens, attention=self.options.attention
        )
        check_cut(self.config.name, self.options, encoder.width)
        return encoder
