"""A transformers folder: what identifies it, and how it is loaded without anything made up on the way."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stsbench.encoders.forward.dropout import set_dropout
from stsbench.errors import EncoderError
from stsbench.files import sha256_file

_SINGLE = ("model.safetensors", "pytorch_model.bin")  # in the order in which from_pretrained looks for them
_SUFFIXES = {".json", ".txt", ".model", ".bpe"}  # what tokenizers are stored in
_NOT_TOKENIZER = {
    "config.json", "modules.json", "README.txt", "sentence_bert_config.json", "config_sentence_transformers.json",
    "generation_config.json", "data_config.json", "train_script.json", "trainer_state.json", "model_index.json",
    "training_args.json", "all_results.json", "train_results.json", "eval_results.json", "stsbench.json",
}


def weight_files(folder: Path) -> list[Path]:
    """The weight files that from_pretrained reads; EncoderError if there are none or a shard is missing."""
    for name in _SINGLE:
        if (folder / name).is_file():
            return [folder / name]
        index = folder / f"{name}.index.json"
        if index.is_file():
            shards = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
            missing = [shard for shard in shards if not (folder / shard).is_file()]
            if missing:
                raise EncoderError(f"{folder}: weight file {missing[0]} is missing")
            return [folder / shard for shard in shards]
    raise EncoderError(f"{folder} holds no weights (model.safetensors or pytorch_model.bin)")


def weights_digest(folder: Path) -> str:
    """sha256 over the contents of every weight file and config.json."""
    return files_digest([*weight_files(folder), folder / "config.json"])


def tokenizer_digest(folder: Path) -> str:
    """sha256 over the contents of the tokenizer's files."""
    return files_digest(
        sorted(
            path for path in folder.iterdir()
            if path.suffix in _SUFFIXES and path.name not in _NOT_TOKENIZER and not path.name.endswith(".index.json")
        )
    )


def files_digest(paths: list[Path]) -> str:
    """sha256 over the names and contents of `paths`, in their order."""
    sha = hashlib.sha256()
    for path in paths:
        sha.update(f"{path.name} {sha256_file(path)}\n".encode())
    return sha.hexdigest()


def load_model(folder: Path, name: str, dtype: str, dropout: float | None = None) -> tuple[Any, set[str]]:
    """The encoder in eval mode with `dtype` weights, and the names of weights that the checkpoint lacks.

    An encoder-decoder gives its encoder. EncoderError: no config.json, an unknown architecture, broken files, or a
    missing weight outside the pooler (transformers would initialise it at random and only log a line). dropout: the rate,
    on hidden states and on attention, in the place of the config's.
    """
    if not (folder / "config.json").is_file():
        raise EncoderError(f"{name} is not a model folder: it holds no config.json")
    weight_files(folder)
    import torch
    from transformers import AutoConfig, AutoModel

    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
        if dropout is not None:
            set_dropout(config, dropout, name)
        with quiet():
            # float32 first: transformers would otherwise keep a half-precision checkpoint's own type
            model, info = AutoModel.from_pretrained(
                folder, config=config, dtype=torch.float32, output_loading_info=True, local_files_only=True
            )
    except EncoderError:
        raise
    except Exception as error:  # safetensors, torch and transformers each have their own kinds
        raise EncoderError(f"cannot load {name}: {first_line(error)}") from error
    if getattr(model.config, "is_encoder_decoder", False):
        model = model.get_encoder()
        missing: set[str] = {key for key in info["missing_keys"] if not key.startswith("decoder.")}
    else:
        missing = set(info["missing_keys"])
    made_up = sorted(key for key in missing if not key.startswith("pooler."))
    if made_up:
        raise EncoderError(
            f"{name} lacks {len(made_up)} of its weights, e.g. {made_up[0]}: they would be random numbers"
        )
    return model.eval().to(getattr(torch, dtype)).requires_grad_(False), missing


def load_tokenizer(folder: Path, name: str) -> Any:
    """The folder's tokenizer; EncoderError if there is none."""
    from transformers import AutoTokenizer

    try:
        with quiet():
            return AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception as error:
        raise EncoderError(f"cannot load the tokenizer of {name}: {first_line(error)}") from error


def position_limit(model: Any, tokenizer: Any) -> int | None:
    """Tokens that the model has positions for, special ones included; None if it states no limit.

    The model's own number comes first: a stored model_max_length is often a training setting.
    """
    positions = getattr(model.config, "max_position_embeddings", None)
    if isinstance(positions, int) and positions > 0:
        table = getattr(getattr(model, "embeddings", None), "position_embeddings", None)
        padding = getattr(table, "padding_idx", None)  # RoBERTa and MPNet count from the padding index on
        return positions if padding is None else positions - padding - 1
    stated = getattr(tokenizer, "model_max_length", None)
    return int(stated) if stated is not None and stated < 1_000_000 else None


@contextmanager
def quiet() -> Iterator[None]:
    """No load report and no bar of transformers' own: what matters in them is checked here."""
    from transformers.utils import logging

    level, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bar:
            logging.enable_progress_bar()


def first_line(error: Exception) -> str:
    """The first line of an error's message that says anything."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
