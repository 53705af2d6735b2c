"""Where a model that training needs is read from: what a recipe may write for one, and the folder it stands for."""

from __future__ import annotations

from pathlib import Path

from stsbench.errors import EncoderError


def backbone_folder(name: str, offline: bool = False, option: str = "--backbone") -> Path:
    """The transformers folder that a recipe's backbone.model stands for: also `minilm`, a training run, and a
    sentence-transformers folder, whose transformer is meant. option: what an EncoderError calls the setting."""
    from stsbench.encoders.transformer.declared import read_declared
    from stsbench.encoders.transformer.find import resolve

    if name == "minilm":
        from stsbench.encoders.transformer.minilm import find_minilm

        return find_minilm()
    try:
        folder = resolve(name, offline)
    except EncoderError as error:
        hint = "; null is the encoder's own checkpoint" if option == "options.generator" else ""
        raise type(error)(str(error).replace("--model", option) + hint) from error
    if (folder / "modules.json").is_file():
        declared = read_declared(folder)
        if declared.transformer is None:
            raise EncoderError(f"{name} has no transformers model that could be trained")
        if declared.library_only:
            stray = ", ".join(declared.library_only)
            raise EncoderError(f"{option} {name} declares {stray} for its transformer, which a training does not honour")
        return declared.transformer
    return folder
