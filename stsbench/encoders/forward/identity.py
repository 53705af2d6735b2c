"""What identifies a model folder: every file below it that could change a vector, and those that `opened` finds besides."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from stsbench.files import sha256_file

# What no library reads a model from, unless a settings file or a graph names it, or something opens it (opened.py). All else
# counts: a file too many costs an encoding, a file too few a wrong number.
_FOLDERS = {".git", ".cache", "__pycache__"}  # .cache: what the Hub's client notes of a download
_SUFFIXES = {".md", ".png", ".jpg", ".jpeg", ".gif", ".svg", ".webp", ".pdf"}
_NAMES = {".gitattributes", ".gitignore", ".DS_Store"}
_SETTINGS = ("config.json", "modules.json", "index.json")  # the ends of the names of files that name others
_LOCATION = re.compile(rb"\x0a\x08location\x12")  # of ONNX's external data, as protobuf writes the key before its value


def model_files(folder: Path) -> list[Path]:
    """Every regular file below `folder` but README, other Markdown and pictures, sorted; links are followed."""
    files = [path for path in walk(folder) if path.is_file()]
    named = [path.read_text("utf-8", "replace") for path in files if path.name.endswith(_SETTINGS)]
    graphs = [str(data) for path in files if path.suffix == ".onnx" for data in external_data(path)]
    return sorted(path for path in files if not _besides(path.relative_to(folder), " ".join([*named, *graphs])))


def external_data(graph: Path) -> list[Path]:
    """The files that a .onnx file names for its tensors, those of nested graphs included."""
    content, names = graph.read_bytes(), set()
    for found in _LOCATION.finditer(content):
        length, begin = content[found.end()] & 127, found.end() + 1
        if content[found.end()] & 128:  # a length of two bytes; a path has no more
            length, begin = length | content[begin] << 7, begin + 1
        names.add(content[begin:begin + length].decode("utf-8", "replace"))
    return [graph.parent / name for name in sorted(names) if "\0" not in name]


def folder_digest(folder: Path, bases: Iterable[Path] = (), opened: Iterable[Path] = ()) -> str:
    """sha256 over the paths and contents of model_files(folder), and of the folders that it builds on.

    opened: files beside those; one outside of all folders counts by its name and content, wherever it lies.
    """
    sha, opened = hashlib.sha256(), set(opened)
    for root in (folder, *bases):
        sha.update(b"folder\n")
        inside = {path for path in opened if path.is_relative_to(root)}
        opened -= inside
        for path in sorted({*model_files(root), *inside}):
            sha.update(f"{path.relative_to(root).as_posix()} {sha256_file(path)}\n".encode("utf-8", "surrogateescape"))
    for line in sorted(f"outside {path.name} {sha256_file(path)}\n" for path in opened):
        sha.update(line.encode("utf-8", "surrogateescape"))
    return sha.hexdigest()


def walk(folder: Path) -> Iterator[Path]:
    """Every file below `folder`, through links too."""
    visited: set[str] = set()
    for root, folders, names in os.walk(folder, followlinks=True):
        real = os.path.realpath(root)
        if real in visited:  # a link that leads back up
            folders.clear()
            continue
        visited.add(real)
        yield from (Path(root, name) for name in names)


def _besides(path: Path, named: str) -> bool:
    """Whether a file is on the list above, and neither it nor its folder is named in a settings file or a graph."""
    for part in path.parts[:-1]:
        if part in _FOLDERS:
            return part not in named
    return (path.name in _NAMES or path.suffix.lower() in _SUFFIXES) and path.name not in named
