"""sentence-transformers folders: what their modules say, and a backend for those that need the library itself.

[Transformer, Pooling(cls|mean|max) or TextCNNPooling] with or without Normalize runs through our own encoder. The stored
max_seq_length is a training setting (256 for all-MiniLM-L6-v2, whose published figures come from no truncation), so the
model's position limit holds instead, and the spec records it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stsbench.encoders.base import Encoded, Encoder, EncoderSpec, Progress
from stsbench.encoders.forward.checkpoint import files_digest, first_line, position_limit, tokenizer_digest
from stsbench.encoders.forward.text_cnn_files import TYPE as TEXT_CNN
from stsbench.encoders.forward.text_cnn_files import is_own
from stsbench.encoders.transformer.exported import PROMPT
from stsbench.errors import EncoderError

_LEGACY = {  # sentence-transformers before version 6 stored one switch per mode
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}


@dataclass(frozen=True)
class Stored:
    """What a folder's modules amount to."""

    transformer: Path | None  # the folder of the transformers model, None if the first module is another kind
    pooler: str | None  # one of ours; None: only sentence-transformers itself can run the modules
    normalize: bool = False
    prefix: str | None = None  # the default prompt


def read_modules(folder: Path) -> Stored:
    """Read modules.json and what it names. EncoderError for broken files."""
    try:
        modules = _json(folder / "modules.json")
        kinds = [str(module["type"]).rsplit(".", 1)[-1] for module in modules]
        paths = [folder / module["path"] for module in modules]
        settings = _json(folder / "config_sentence_transformers.json")
        prompts, default = settings.get("prompts") or {}, settings.get("default_prompt_name")
        prefix = prompts.get(default) or None if default else None
        plain = kinds[:1] == ["Transformer"] or is_own(modules[0]["type"], PROMPT)  # its model lies there too
        transformer = paths[0] if plain and (paths[0] / "config.json").is_file() else None
        text_cnn = len(modules) > 1 and is_own(modules[1]["type"], TEXT_CNN) and transformer == folder
        known = (text_cnn or kinds[1:2] == ["Pooling"]) and kinds[2:] in ([], ["Normalize"])
        if transformer is None or not known or _json(transformer / "sentence_bert_config.json").get("do_lower_case"):
            return Stored(transformer, None, prefix=prefix)
        pooler = "text_cnn" if text_cnn else _pooler(_json(paths[1] / "config.json"), prefix)
    except (KeyError, TypeError, AttributeError, ValueError, OSError) as error:
        raise EncoderError(f"{folder}: cannot read its sentence-transformers modules: {error}") from error
    return Stored(transformer, pooler, normalize="Normalize" in kinds and pooler is not None, prefix=prefix)


def _pooler(config: dict[str, Any], prefix: str | None) -> str | None:
    modes = config.get("pooling_mode", [mode for key, mode in _LEGACY.items() if config.get(key)])
    modes = [modes] if isinstance(modes, str) else list(modes)
    if len(modes) != 1 or modes[0] not in ("cls", "mean", "max"):
        return None
    if prefix and config.get("include_prompt") is False:  # the prompt's tokens are left out of the mean: not ours
        return None
    return str(modes[0])


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


class SentenceTransformerEncoder(Encoder):
    """A folder run by sentence-transformers itself, with its own modules and default prompt."""

    def __init__(
        self, folder: Path, *, name: str, max_length: int | None, dtype: str, device: str | None, prefix: str | None
    ) -> None:
        """EncoderError when the library is not installed or cannot load the folder."""
        try:
            import torch
            from sentence_transformers import SentenceTransformer
        except ImportError as error:
            raise EncoderError(f"{name} needs sentence-transformers: pip install 'stsbench[st]'") from error
        try:
            self.model = SentenceTransformer(
                str(folder), device=device, local_files_only=True, model_kwargs={"dtype": getattr(torch, dtype)}
            ).eval()
        except Exception as error:  # the library's modules raise whatever they like
            raise EncoderError(f"cannot load {name}: {first_line(error)}") from error
        limit = self._limit(max_length, name)
        if limit is not None:
            self.model.max_seq_length = limit
        self.prefix = prefix
        weights = [
            path for path in sorted(folder.rglob("*"))
            if path.suffix in {".safetensors", ".bin"} or path.name in {"config.json", "modules.json"}
        ]
        self.spec = EncoderSpec(
            name=name, kind="sentence-transformers", weights=files_digest(weights),
            tokenizer=tokenizer_digest(folder), prefix=prefix, max_length=limit, dtype=dtype,
        )

    def run(self, texts: Sequence[str], progress: Progress | None = None) -> Encoded:
        """float32 (n, d) vectors from the stored modules."""
        parts, chunk = [], 1024
        for start in range(0, len(texts), chunk):
            part = list(texts[start:start + chunk])
            parts.append(np.asarray(self.model.encode(part, show_progress_bar=False), dtype=np.float32))
            if progress:
                progress(len(part))
        width = self.model.get_embedding_dimension() or 0
        vectors = np.concatenate(parts) if parts else np.zeros((0, width), dtype=np.float32)
        return Encoded(vectors, np.array([self._cut(text) for text in texts], dtype=np.bool_))

    def _limit(self, max_length: int | None, name: str) -> int | None:
        inner = getattr(self.model[0], "auto_model", None)
        positions = None if inner is None else position_limit(inner, self.model.tokenizer)
        if max_length is not None and positions is not None and max_length > positions:
            raise EncoderError(f"--max-length {max_length} is more than the {positions} positions of {name}")
        return max_length if max_length is not None else positions

    def _cut(self, text: str) -> bool:
        # a token holds one character or more, so most texts are cleared without tokenising them a second time
        limit = self.spec.max_length
        if limit is None or len(text) + len(self.prefix or "") + 2 <= limit:
            return False
        ids = self.model.tokenizer((self.prefix or "") + text, truncation=False, add_special_tokens=True)["input_ids"]
        return len(ids) > limit
