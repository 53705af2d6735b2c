"""Which poolers over tokens are learned with a model, and where a model folder keeps one. Imports no torch: what identifies
a model is read before it is loaded."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from stsbench.errors import EncoderError


@dataclass(frozen=True)
class TokenPoolerKind:
    """A learned pooler over tokens, as recipes, folders and messages name it."""

    pooler: str  # the name among POOLERS, and of its settings in a recipe's backbone
    title: str  # in messages; a model folder keeps it in N_TITLE
    module: str  # its type in modules.json
    drops_ends: bool = False  # leaves out the first and the last token, so these have to be special


KINDS = {
    kind.pooler: kind
    for kind in (
        TokenPoolerKind(
            "text_cnn", "TextCNN", "stsbench.encoders.transformer.text_cnn_module.TextCNNPooling", drops_ends=True
        ),
        TokenPoolerKind("mean_cnn", "MeanCNN", "stsbench.encoders.transformer.token_pooling_module.MeanCNNPooling"),
    )
}
FILES = ("config.json", "model.safetensors")


def is_type_of(kind: str, name: str) -> bool:
    """Whether a type in modules.json is this package's class `name`, in whichever module a version kept it."""
    return kind.startswith("stsbench.") and kind.rpartition(".")[2] == name.rpartition(".")[2]


def kind_of_module(module: str) -> TokenPoolerKind | None:
    """The learned pooler whose type in modules.json this is."""
    return next((kind for kind in KINDS.values() if is_type_of(module, kind.module)), None)


def token_pooler_folder(folder: Path) -> tuple[TokenPoolerKind, Path] | None:
    """Which learned pooler a model folder holds, and where, by modules.json; None for none. EncoderError: its files are
    gone."""
    path = folder / "modules.json"
    if not path.is_file():
        return None
    try:
        modules = json.loads(path.read_text("utf-8"))
        kinds = ((kind_of_module(module["type"]), folder / module["path"]) for module in modules)
        kind, home = next(((kind, home) for kind, home in kinds if kind is not None), (None, folder))
    except (KeyError, TypeError, ValueError, OSError) as error:
        raise EncoderError(f"cannot read {path}: {error!r}") from error
    if kind is None:
        return None
    for name in FILES:
        if not (home / name).is_file():
            raise EncoderError(f"{folder} lacks the {kind.title} that its modules.json promises ({home.name}/{name})")
    return kind, home


def stored_token_pooler(folder: Path, pooler: str, name: str) -> Path:
    """Where the model `name` keeps its learned pooler. EncoderError: it has none, and one made up would be random."""
    stored, kind = token_pooler_folder(folder), KINDS[pooler]
    if stored is None or stored[0] != kind:
        raise EncoderError(
            f"--pooler {pooler}: {name} stores no {kind.title}, and it is learned: train one with backbone.pooler={pooler}, "
            "or choose another pooler"
        )
    return stored[1]
