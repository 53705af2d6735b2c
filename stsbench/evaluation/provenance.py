"""Where a number came from: versions, revision, device, command."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tomllib
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import stsbench

_CHANGES = "+changes"
_PACKAGES = ("stsbench", "torch", "transformers", "sentence-transformers", "tokenizers", "numpy", "scipy", "scikit-learn")

_CODE = ("stsbench/", "methods/", "protocols/", "leaderboard/")


@cache  # each record asks for all of them
def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def git_revision() -> str | None:
    """The checkout's revision, with '+changes' when a file of it is changed or there are new ones in its code (but for what
    the leaderboard's commands write); None outside a checkout of stsbench."""
    root = Path(stsbench.__file__).resolve().parents[1]
    if not (root / ".git").exists():  # installed: some other project's revision would mislead
        return None
    try:
        revision = _git(root, "rev-parse", "HEAD")
        written = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["tool"]["stsbench"]["written"]
        changes = _git(root, "status", "--porcelain", "--", ".", *(f":(exclude){path}" for path in written)).splitlines()
    except (OSError, subprocess.CalledProcessError, KeyError):
        return None
    # A user's texts, runs and models beside the code are not part of it.
    dirty = any(not line.startswith("?? ") or line[3:].strip('"').startswith(_CODE) for line in changes)
    return revision.strip() + (_CHANGES if dirty else "")


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=root, capture_output=True, encoding="utf-8", errors="backslashreplace", check=True
    ).stdout


def why_not_repeatable(revision: object) -> str | None:
    """Why nobody can repeat what was measured by this revision (as `git_revision` gives it); None where they can."""
    if isinstance(revision, str) and revision.endswith(_CHANGES):
        return f"a checkout with uncommitted changes or new files in its code ({revision[:12]}): nobody can repeat it"
    return None


def device_name() -> str:
    """The accelerator's name when torch is loaded and has one, else the processor's architecture."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        return str(torch.cuda.get_device_name())
    return f"cpu ({platform.machine()}, {os.cpu_count()} cores)"


def provenance(**more: Any) -> dict[str, Any]:
    """Versions, revision, platform and device of this process, and whatever the caller adds (seeds, command, seconds)."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "device": device_name(),
        "versions": {name: version for name in _PACKAGES if (version := _version(name))},
        "git": git_revision(),
        **more,
    }
