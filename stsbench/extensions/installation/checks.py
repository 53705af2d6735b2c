"""Checks of an installation: packages, devices, the embedding cache, data, what can be measured, and the Hub."""

from __future__ import annotations

import http.client
import os
import platform
import tempfile
import threading
import time
import urllib.error
import urllib.request
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from stsbench.data.fetch.download import hub_url
from stsbench.data.fetch.sources import locate
from stsbench.data.sets.catalog import Entry, catalog, entries
from stsbench.encoders.cache.cache import EmbeddingCache
from stsbench.errors import DataError, StsbenchError
from stsbench.evaluation.plan import Planned, plan
from stsbench.files import cache_root, data_root

_DEVELOPERS = "dev"  # the extra for work on stsbench itself, which the report leaves out
_OFF = ("1", "true", "yes", "on")


@dataclass(frozen=True)
class Package:
    """One package. version: None where it is not installed; required: such as ">=2.4"; extra: the extra that brings it."""

    name: str
    version: str | None
    required: str
    extra: str | None = None

    @property
    def problem(self) -> str | None:
        """Return what is wrong with the package, in one line. A package of an extra may be absent."""
        needed = f"{self.name}{self.required}"
        if self.version is None:
            return None if self.extra else f"{needed} is not installed: pip install '{needed}'"
        if SpecifierSet(self.required).contains(self.version, prereleases=True):
            return None
        return f"{self.name} {self.version} is installed, and {needed} is needed: pip install '{needed}'"


def system() -> str:
    """Return Python and the operating system in one line."""
    return f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"


def packages(distribution: str = "stsbench") -> list[Package]:
    """Return the packages that the distribution requires, in its order, and then those of its extras."""
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
    """Return torch's devices, a line each; the first is the default of --device.

    Raises any error of `import torch`.
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
    """The state of the embedding cache: its folder, its size, and why it cannot be written, if so."""

    folder: Path
    bytes: int
    encoders: int
    problem: str | None


def embedding_cache() -> Cache:
    """Return the state of the default embedding cache, used without --cache."""
    folder = cache_root() / "embeddings"
    store = EmbeddingCache(folder)
    return Cache(folder, store.size(), len(store.encoders()), _not_writable(folder))


def _not_writable(folder: Path) -> str | None:
    """Return why no file can be created in the folder, or in its nearest existing parent; None if one can."""
    nearest = next(parent for parent in (folder, *folder.parents) if parent.exists())
    try:
        with tempfile.TemporaryFile(dir=nearest):
            return None
    except OSError as error:
        return f"{folder} cannot be written: {error.strerror or error}; $STSBENCH_CACHE names another folder"


@dataclass(frozen=True)
class DataFolder:
    """A folder in which data are searched. problem: what is wrong with it, if anything."""

    folder: Path
    named: str  # "--data-dir", "$STSBENCH_DATA" or "user cache"
    problem: str | None = None


def folders(data_dir: Path | None = None) -> list[DataFolder]:
    """Return the folders in which data are searched, in order; an explicit folder is the only one."""
    if data_dir is not None:
        return [DataFolder(data_dir, "--data-dir", None if data_dir.is_dir() else f"--data-dir {data_dir}: no such folder")]
    listed = []
    if configured := os.environ.get("STSBENCH_DATA"):
        folder = Path(configured)
        problem = None if folder.is_dir() else f"$STSBENCH_DATA names {folder}, which is not a folder"
        listed.append(DataFolder(folder, "$STSBENCH_DATA", problem))
    return [*listed, DataFolder(data_root(), "user cache")]


@dataclass(frozen=True)
class SetLocation:
    """Where all files of one set are; None, and why, where they are not."""

    id: str
    text_version: str
    folder: Path | None
    reason: str = ""


def sets(data_dir: Path | None = None) -> list[SetLocation]:
    """Return every set of the catalog, in its order. Files are looked for, and not read: `stsbench data verify` does
    that."""
    return [_set_location(item, data_dir) for item in entries()]


def _set_location(item: Entry, data_dir: Path | None) -> SetLocation:
    try:
        located = locate(item, data_dir=data_dir, offline=True)
    except DataError as error:
        return SetLocation(item.id, item.text_version, None, str(error))
    return SetLocation(item.id, item.text_version, located.root)


@dataclass
class Measurable:
    """What `--protocol all` would do: protocol -> tasks, protocol -> tasks without data, and what it leaves out and why."""

    measured: dict[str, list[str]] = field(default_factory=dict)
    without_data: dict[str, list[str]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def measurable(located: list[SetLocation]) -> Measurable:
    """By SentEval's text, as `eval` does without --text. located: what `sets` returns."""
    result = Measurable()
    there = {item.id for item in located if item.text_version == "senteval" and item.folder}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        planned, result.left_out = plan(["all"], None, {})
    result.problems = [str(warning.message) for warning in caught]
    for protocol in planned:
        split = {task: id in there or _loads_outside_catalog(protocol, id) for task, id in protocol.tasks.items()}
        if with_data := [task for task, ready in split.items() if ready]:
            result.measured[protocol.label] = with_data
        if without := [task for task, ready in split.items() if not ready]:
            result.without_data[protocol.label] = without
    return result


def _loads_outside_catalog(planned: Planned, set_id: str) -> bool:
    """Return whether a plug-in's set, which the catalog lacks, can be loaded."""
    if set_id in {item.id for item in entries()}:
        return False
    try:
        return planned.protocol.load(set_id) is not None
    except StsbenchError:
        return False


def missing_lines(located: list[SetLocation]) -> Iterator[str]:
    """Yield a line for each text version: how many of its sets are available, and which are missing."""
    for version in dict.fromkeys(item.text_version for item in located):
        of_version = [item for item in located if item.text_version == version]
        absent = [item.id for item in of_version if item.folder is None]
        line = f"{version} text: {len(of_version) - len(absent)} of {len(of_version)} sets"
        yield line if not absent else f"{line}; not {', '.join(absent)}"


@dataclass(frozen=True)
class Hub:
    """The state of the Hub: "reached", "unreachable", or "not asked"; detail: response time, or the reason."""

    endpoint: str
    state: str
    detail: str


def ask_hub(offline: bool = False, timeout: float = 4.0) -> Hub:
    """Check that the Hub, or $HF_ENDPOINT, answers a HEAD request for the first file of `stsbench data fetch`.

    timeout: seconds, including the DNS look-up. No request is sent with `offline` or $HF_HUB_OFFLINE.
    """
    url = hub_url(catalog().archive)
    endpoint = url.partition("/datasets/")[0]
    if offline or os.environ.get("HF_HUB_OFFLINE", "").lower() in _OFF:
        return Hub(endpoint, "not asked", "--offline" if offline else "$HF_HUB_OFFLINE is set")
    if not url.startswith(("http://", "https://")):
        return Hub(endpoint, "unreachable", "HF_ENDPOINT must start with http:// or https://")
    answers: list[tuple[str, str]] = []
    # In a daemon thread, as urllib's timeout does not bound the DNS look-up.
    asking = threading.Thread(target=lambda: answers.append(_ask(url, timeout)), daemon=True)
    asking.start()
    asking.join(timeout + 0.5)
    return Hub(endpoint, *(answers[0] if answers else ("unreachable", f"no answer within {timeout:g} s")))


def _ask(url: str, timeout: float) -> tuple[str, str]:
    began = time.monotonic()
    request = urllib.request.Request(url, headers={"User-Agent": "stsbench", "Range": "bytes=0-0"})
    try:
        with urllib.request.urlopen(request, timeout=timeout):
            return "reached", f"answered in {time.monotonic() - began:.1f} s"
    except urllib.error.HTTPError as error:
        error.close()
        return "unreachable", f"it answers HTTP {error.code} {error.reason}"
    except urllib.error.URLError as error:
        slow = isinstance(error.reason, TimeoutError)
        return "unreachable", f"no answer within {timeout:g} s" if slow else f"no connection ({error.reason})"
    except TimeoutError:
        return "unreachable", f"no answer within {timeout:g} s"
    except (OSError, http.client.HTTPException) as error:
        return "unreachable", f"no connection ({error or type(error).__name__})"
