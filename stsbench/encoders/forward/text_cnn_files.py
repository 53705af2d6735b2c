"""Where a model folder keeps its TextCNN. Imports no torch: what identifies a model is read before it is loaded."""

from __future__ import annotations

import json
from pathlib import Path

from stsbench.errors import EncoderError

TYPE = "stsbench.encoders.transformer.text_cnn_module.TextCNNPooling"  # in modules.json
FILES = ("config.json", "model.safetensors")


def is_own(kind: str, ours: str) -> bool:
    """Whether a type in modules.json is this package's class `ours`, in whichever module a version kept it."""
    return kind.startswith("stsbench.") and kind.rpartition(".")[2] == ours.rpartition(".")[2]


def text_cnn_folder(folder: Path) -> Path | None:
    """Where a model folder keeps its TextCNN, by modules.json; None where it has none. EncoderError: its files are gone."""
    path = folder / "modules.json"
    if not path.is_file():
        return None
    try:
        modules = json.loads(path.read_text("utf-8"))
        home: Path | None = next((folder / module["path"] for module in modules if is_own(module["type"], TYPE)), None)
    except (KeyError, TypeError, ValueError, OSError) as error:
        raise EncoderError(f"cannot read {path}: {error!r}") from error
    if home is None:
        return None
    for name in FILES:
        if not (home / name).is_file():
            raise EncoderError(f"{folder} lacks the TextCNN that its modules.json promises ({home.name}/{name})")
    return home


def stored_text_cnn(folder: Path, name: str) -> Path:
    """Where the model `name` keeps its TextCNN. EncoderError: it has none, and one made up would be random."""
    home = text_cnn_folder(folder)
    if home is None:
        raise EncoderError(
            f"--pooler text_cnn: {name} stores no TextCNN, and it is learned: train one with backbone.pooler=text_cnn, or "
            "choose another pooler"
        )
    return home
