"""Which file of a folder is run, and which folder a file is of."""

from __future__ import annotations

from pathlib import Path

from stsbench.errors import EncoderError

SUFFIXES = {"onnx": ".onnx", "openvino": ".xml"}
_MARKS = ("modules.json", "config.json")


def chosen(kind: str, argument: str) -> tuple[Path, Path]:
    """The model folder and the graph in it that `KIND:argument` names: a file, or a folder that holds one.

    EncoderError, one line: no such file or folder, none or several graphs in it, or no settings around the file.
    """
    path, suffix = Path(argument).expanduser(), SUFFIXES[kind]
    if path.is_file():
        if path.suffix != suffix:
            raise EncoderError(f"{kind}:{argument}: not a {suffix} file")
        return _folder(path), path
    if not path.is_dir():
        raise EncoderError(f"{kind}:{argument}: there is no such folder or file; a Hub id has to be downloaded first")
    files = sorted(path.rglob(f"*{suffix}"))
    if not files:
        raise EncoderError(f"{kind}:{argument} holds no {suffix} file")
    if len(files) > 1:
        listed = ", ".join(file.relative_to(path).as_posix() for file in files)
        raise EncoderError(f"{kind}:{argument} holds {listed}: name one of them")
    return _folder(files[0], path), files[0]


def _folder(file: Path, top: Path | None = None) -> Path:
    """The nearest folder above a graph that has modules.json, else config.json."""
    above = [folder for folder in file.parents[:3] if top is None or folder == top or top in folder.parents]
    for mark in _MARKS:
        if folder := next((folder for folder in above if (folder / mark).is_file()), None):
            return folder
    raise EncoderError(f"{file}: no config.json or modules.json lies beside it or above it: its tokenizer is not known")
