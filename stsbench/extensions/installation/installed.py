"""Packages against what stsbench declares to need, the devices that torch sees, and the embedding cache."""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from stsbench.encoders.cache.cache import EmbeddingCache
from stsbench.files import cache_root

_DEVELOPERS = "dev"  # the extra that nobody misses


@dataclass(frozen=True)
class Package:
    """One package. version: None where it is not installed; required: such as ">=2.4"; extra: the extra that brings it."""

    name: str
    version: str | None
    required: str
    extra: str | None = None

    @property
    def problem(self) -> str | None:
        """What is wrong with it, in one line. A package of an extra may be absent."""
        needed = f"{self.name}{self.required}"
        if self.version is None:
            return None if self.extra else f"{needed} is not installed: pip install '{needed}'"
        if SpecifierSet(self.required).contains(self.version, prereleases=True):
            return None
        return f"{self.name} {self.version} is installed, and {needed} is needed: pip install '{needed}'"


def system() -> str:
    """Python and the operating system in one line."""
    return f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"


def packages(distribution: str = "stsbench") -> list[Package]:
    """What the distribution declares to need, in its order, and then what its extras bring."""
    about = metadata.metadata(distribution)
    extras = [name for name in about.get_all("Provides-Extra") or () if name != _DEVELOPERS]
    needed, optional = [], {}
    for requirement in map(Requirement, metadata.requires(distribution) or ()):
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            needed.append(_package(requirement, None))
            continue
        for extra in extras:
            if requirement.marker.evaluate({"extra": extra}):
                optional[requirement.name] = _package(requirement, extra)
    return [*needed, *(package for name, package in optional.items() if name not in {required.name for required in needed})]


def _package(requirement: Requirement, extra: str | None) -> Package:
    try:
        version = metadata.version(requirement.name)
    except metadata.PackageNotFoundError:
        version = None
    return Package(requirement.name, version, str(requirement.specifier), extra)


def devices() -> list[str]:
    """What torch computes on, a line each; the first is what a command takes unless --device says otherwise.

    Raises whatever `import torch` does.
    """
    import torch

    lines = list(_accelerators())
    blind = torch.version.cuda and not torch.cuda.is_available()
    note = f"; torch is built for CUDA {torch.version.cuda} and sees no CUDA device" if blind else ""
    return [*lines, f"cpu ({_memory()}, {torch.get_num_threads()} of {os.cpu_count()} cores in use{note})"]


def _accelerators() -> Iterator[str]:
    import torch

    for number in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        about = torch.cuda.get_device_properties(number)
        bf16 = "bf16" if torch.cuda.is_bf16_supported() else "no bf16"
        yield f"cuda:{number} ({about.name}, {about.total_memory / 1e9:.1f} GB, {bf16})"
    if torch.backends.mps.is_available():
        yield "mps"


def _memory() -> str:
    try:
        return f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 1e9:.1f} GB of memory"
    except (ValueError, OSError, AttributeError):  # Windows
        return "memory unknown"


@dataclass(frozen=True)
class Cache:
    """The embedding cache: its folder, what it holds, and why it cannot be written, if so."""

    folder: Path
    bytes: int
    encoders: int
    problem: str | None


def embedding_cache() -> Cache:
    """The cache that commands use unless --cache says otherwise."""
    folder = cache_root() / "embeddings"
    store = EmbeddingCache(folder)
    return Cache(folder, store.size(), len(store.encoders()), _not_writable(folder))


def _not_writable(folder: Path) -> str | None:
    """Why no file can be made in the folder, or in the nearest one above that exists; None where one can."""
    nearest = next(parent for parent in (folder, *folder.parents) if parent.exists())
    try:
        with tempfile.TemporaryFile(dir=nearest):
            return None
    except OSError as error:
        return f"{folder} cannot be written: {error.strerror or error}; $STSBENCH_CACHE names another folder"
