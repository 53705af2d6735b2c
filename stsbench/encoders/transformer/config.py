"""One encoder, described once: what the user asks for and what the model folder stores, put together before any loading."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stsbench.encoders.base import EncoderOptions, EncoderSpec
from stsbench.encoders.forward.checkpoint import files_digest, tokenizer_digest, weight_files, weights_digest
from stsbench.encoders.forward.pooling import check_pooler
from stsbench.encoders.forward.text_cnn_files import FILES, stored_text_cnn, text_cnn_folder
from stsbench.encoders.prompt.prompt import PLAIN, PromptSettings
from stsbench.encoders.prompt.prompt_file import promised_tensors, prompt_file
from stsbench.encoders.transformer.exported import read_exported
from stsbench.encoders.transformer.find import resolve
from stsbench.encoders.transformer.minilm import find_minilm
from stsbench.encoders.transformer.modules import read_modules
from stsbench.errors import EncoderError

DTYPES = ("float32", "bfloat16")
# Architectures whose position limit follows from config.json; RoBERTa's kin count positions from the padding index on.
_PLAIN, _OFFSET = ("bert", "distilbert", "electra"), ("roberta", "xlm-roberta", "camembert", "mpnet")


@dataclass(frozen=True)
class EncoderConfig:
    """Everything that changes a vector of a transformer, and where it is loaded from. The spec derives from it."""

    name: str  # as the user wrote it
    folder: Path | None  # of the transformers model, or of all modules; None for a model in memory
    pooler: str | None  # None: sentence-transformers runs its own modules
    weights: str = "live"  # sha256; "live" for a model in memory, which may change
    tokenizer: str = ""  # sha256
    prompt: PromptSettings = PLAIN
    normalize: bool = False
    max_length: int | None = None  # tokens asked for or stored, special ones included; None: as many as there are positions
    positions: int | None = None  # by config.json; None where only the loaded model can tell
    dtype: str = "float32"
    notes: tuple[str, ...] = ()  # what a user should know before a run, a line each

    def spec(self, positions: int | None) -> EncoderSpec:
        """The record of this encoder. positions: of the model, None if it states none. EncoderError: max_length is above."""
        return EncoderSpec(
            name=self.name, kind="transformers" if self.pooler else "sentence-transformers", weights=self.weights,
            tokenizer=self.tokenizer, pooler=self.pooler, template=self.prompt.template, prefix=self.prompt.text_prompt,
            max_length=self._limit(positions), dtype=self.dtype, normalize=self.normalize,
            options=self.prompt.spec_options(),
        )  # fmt: skip

    def _limit(self, positions: int | None) -> int | None:
        """Tokens that a text is cut at; a trained prefix takes positions away."""
        shift = self.prompt.shift
        left = None if positions is None else positions - shift
        if self.max_length is not None and left is not None and self.max_length > left:
            why = f"that its prefix leaves of {positions} " if shift else ""
            raise EncoderError(f"--max-length {self.max_length} is more than the {left} {why}positions of {self.name}")
        return left if self.max_length is None else self.max_length


@dataclass(frozen=True)
class _Stored:
    """What a model folder says of its own encoder."""

    folder: Path | None  # of a transformers model; None: it holds none
    pooler: str | None = None
    normalize: bool = False
    max_length: int | None = None
    prompt: PromptSettings = PLAIN
    modules: Path | None = None  # the folder that sentence-transformers can run, whatever its modules


def resolve_config(name: str, options: EncoderOptions) -> EncoderConfig:
    """The encoder called `name`: `minilm`, a transformers or sentence-transformers folder, a training run or a Hub id.

    What a folder stores wins; options.pooler overrides it; neither is an EncoderError that lists the poolers. A template
    takes the place of a stored prompt, and a pooler that of a trained one, too: notes say so. EncoderError, one line, for
    whatever a user can put right.
    """
    _check(name, options)
    stored = _stored(name, options.offline)
    notes: tuple[str, ...] = ()
    prompt = stored.prompt
    if prompt.trained and (options.pooler is not None or options.template is not None):
        if options.pooler == "mask" and options.template is None:
            raise EncoderError(f"{name} stores a prompt: leave --pooler out to use it, or give a --template with it")
        option = "--template" if options.pooler is None else "--pooler"
        notes = (f"{option} sets the prompt that {name} was trained with aside: the model is tested without it",)
        prompt = PLAIN
    prompt = prompt.changed(options.template, options.full_stop)
    pooler, max_length = options.pooler or stored.pooler, options.max_length or stored.max_length
    config = EncoderConfig(
        name, stored.folder, pooler, prompt=prompt, normalize=stored.normalize, max_length=max_length, dtype=options.dtype,
        notes=notes,
    )  # fmt: skip
    if pooler is None and stored.modules is not None:
        return _as_library(replace(config, folder=stored.modules), options)
    return _with_files(config)


def _check(name: str, options: EncoderOptions) -> None:
    """EncoderError for options that are wrong whatever the model is: before anything is downloaded."""
    if options.pooler is not None:
        check_pooler(options.pooler, name)
    if options.dtype not in DTYPES:
        raise EncoderError(f"--dtype {options.dtype} is unknown (there are {', '.join(DTYPES)})")
    if options.batch_tokens is not None and options.batch_tokens < 1:
        raise EncoderError(f"--batch-tokens must be positive, not {options.batch_tokens}")


def _stored(name: str, offline: bool) -> _Stored:
    if name == "minilm":
        return _Stored(find_minilm(), "mean", normalize=True)
    folder = resolve(name, offline)
    trained = read_exported(folder)
    if trained is not None:  # by stsbench: its poolers and its lengths, and never two descriptions of one model
        prompt = PLAIN if trained.prompt is None else PromptSettings.of(trained.prompt)
        return _Stored(folder, trained.pooler, max_length=trained.max_length, prompt=prompt)
    if not (folder / "modules.json").is_file():
        return _Stored(folder)
    library = read_modules(folder)
    prompt = PromptSettings(text_prompt=library.prompt)
    return _Stored(library.transformer, library.pooler, library.normalize, prompt=prompt, modules=folder)


def _as_library(config: EncoderConfig, options: EncoderOptions) -> EncoderConfig:
    """A folder that sentence-transformers has to run itself: its modules know no template and no full stop."""
    assert config.folder is not None
    if stray := "--template" if options.template is not None else "--full-stop" if options.full_stop else None:
        raise EncoderError(f"{stray}: {config.name} runs its own modules; choose a --pooler with it")
    files = [
        path for path in sorted(config.folder.rglob("*"))
        if path.suffix in {".safetensors", ".bin"} or path.name in {"config.json", "modules.json"}
    ]
    return replace(config, weights=files_digest(files), tokenizer=tokenizer_digest(config.folder))


def _with_files(config: EncoderConfig) -> EncoderConfig:
    """With the digests of the files that the pooler reads, and the positions that config.json states."""
    name, folder, prompt = config.name, config.folder, config.prompt
    if folder is None:
        raise EncoderError(f"--pooler {config.pooler}: {name} has no transformers model to pool over")
    pooler = check_pooler(config.pooler, name)
    if pooler == "mask" and prompt.template is None:
        raise EncoderError("--pooler mask needs a --template that holds [MASK]")
    if pooler == "text_cnn":
        stored_text_cnn(folder, name)
    if not (folder / "config.json").is_file():
        raise EncoderError(f"{name} is not a model folder: it holds no config.json")
    weights, tokenizer = digests(folder, pooler, prompt)
    return replace(config, weights=weights, tokenizer=tokenizer, positions=stated_positions(folder))


def digests(folder: Path, pooler: str, prompt: PromptSettings) -> tuple[str, str]:
    """sha256 over the weights that the pooler and the prompt read, and over the tokenizer's files."""
    return encoder_digest(folder, pooler, prompt.stored() if prompt.trained else None), tokenizer_digest(folder)


def encoder_digest(folder: Path, pooler: str, prompt: Mapping[str, Any] | None = None) -> str:
    """sha256 over the weights and config.json that `pooler` reads: with text_cnn also those of a stored TextCNN.

    prompt: the settings of the folder's own prompt where it is used, so that its tensors count; None where it is set aside.
    EncoderError: they are not there.
    """
    if prompt is not None and promised_tensors(prompt):
        return files_digest([*weight_files(folder), folder / "config.json", prompt_file(folder)])
    head = text_cnn_folder(folder) if pooler == "text_cnn" else None
    if head is None:
        return weights_digest(folder)
    return files_digest([*weight_files(folder), folder / "config.json", *(head / name for name in FILES)])


def stated_positions(folder: Path) -> int | None:
    """Tokens that a checkpoint has positions for, read off config.json; None where loading the model must tell."""
    try:
        config = json.loads((folder / "config.json").read_text("utf-8"))
    except (OSError, ValueError):
        return None
    positions, kind = config.get("max_position_embeddings"), config.get("model_type")
    if not isinstance(positions, int) or kind not in (*_PLAIN, *_OFFSET):
        return None
    return positions if kind in _PLAIN else positions - config.get("pad_token_id", 1) - 1
