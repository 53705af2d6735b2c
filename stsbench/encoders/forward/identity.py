"""What identifies a model folder: every file below it that could change a vector."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from stsbench.files import sha256_file

# What no library reads a model from, unless a settings file names it. All else counts: a file too many costs an encoding,
# a file too few a wrong number.
_FOLDERS = {".git", ".cache", "__pycache__"}  # .cache: what the Hub's client notes of a download
_SUFFIXES = {".md", ".png", ".jpg", ".jpeg", ".gif", ".svg", ".webp", ".pdf"}
_NAMES = {".gitattributes", ".gitignore", ".DS_Store"}
_SETTINGS = ("config.json", "modules.json", "index.json")  # the ends of the names of files that name others


def model_files(folder: Path) -> list[Path]:
    """Every regular file below `folder` but README, other Markdown and pictures, sorted; links are followed."""
    files = [path for path in walk(folder) if path.is_file()]
    named = " ".join(path.read_text("utf-8", "replace") for path in files if path.name.endswith(_SETTINGS))
    return sorted(path for path in files if not _besides(path.relative_to(folder), named))


def folder_digest(folder: Path, bases: Iterable[Path] = ()) -> str:
    """sha256 over the paths and contents of model_files(folder), and of the folders that it builds on."""
    sha = hashlib.sha256()
    for root in (folder, *bases):
        sha.update(b"folder\n")
        for path in model_files(root):
            sha.update(f"{path.relative_to(root).as_posix()} {sha256_file(path)}\n".encode("utf-8", "surrogateescape"))
    return sha.hexdigest()


def walk(folder: Path) -> Iterable[Path]:
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
    """Whether a file is on the list above, and neither it nor its folder is named in a settings file."""
    for part in path.parts[:-1]:
        if part in _FOLDERS:
            return part not in named
    return (path.name in _NAMES or path.suffix.lower() in _SUFFIXES) and path.name not in named
