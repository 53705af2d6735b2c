"""What the modules of a sentence-transformers folder amount to.

[Transformer, Pooling(cls|mean|max) or TextCNNPooling] with or without Normalize runs through our own encoder. The stored
max_seq_length is a training setting (256 for all-MiniLM-L6-v2, whose published figures come from no truncation), so the
model's position limit holds instead, and the spec records it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
    prompt: str | None = None  # the default one


def read_modules(folder: Path) -> Stored:
    """Read modules.json and what it names. EncoderError for broken files."""
    try:
        modules = _json(folder / "modules.json")
        kinds = [str(module["type"]).rsplit(".", 1)[-1] for module in modules]
        paths = [folder / module["path"] for module in modules]
        settings = _json(folder / "config_sentence_transformers.json")
        prompts, default = settings.get("prompts") or {}, settings.get("default_prompt_name")
        prompt = prompts.get(default) or None if default else None
        plain = kinds[:1] == ["Transformer"] or is_own(modules[0]["type"], PROMPT)  # its model lies there too
        transformer = paths[0] if plain and (paths[0] / "config.json").is_file() else None
        text_cnn = len(modules) > 1 and is_own(modules[1]["type"], TEXT_CNN) and transformer == folder
        known = (text_cnn or kinds[1:2] == ["Pooling"]) and kinds[2:] in ([], ["Normalize"])
        if transformer is None or not known or _json(transformer / "sentence_bert_config.json").get("do_lower_case"):
            return Stored(transformer, None, prompt=prompt)
        pooler = "text_cnn" if text_cnn else _pooler(_json(paths[1] / "config.json"), prompt)
    except (KeyError, TypeError, AttributeError, ValueError, OSError) as error:
        raise EncoderError(f"{folder}: cannot read its sentence-transformers modules: {error}") from error
    return Stored(transformer, pooler, normalize="Normalize" in kinds and pooler is not None, prompt=prompt)


def _pooler(config: dict[str, Any], prompt: str | None) -> str | None:
    modes = config.get("pooling_mode", [mode for key, mode in _LEGACY.items() if config.get(key)])
    modes = [modes] if isinstance(modes, str) else list(modes)
    if len(modes) != 1 or modes[0] not in ("cls", "mean", "max"):
        return None
    if prompt and config.get("include_prompt") is False:  # the prompt's tokens are left out of the mean: not ours
        return None
    return str(modes[0])


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
