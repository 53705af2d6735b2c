"""Provenance of records: versions, revision and device; and overlap of training and test texts, as sentences."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import stsbench
from stsbench.encoders.traits import texts_not_compared, texts_shared
from stsbench.evaluation.records import Record

CHANGES = "+changes"
_PACKAGES = ("stsbench", "torch", "transformers", "sentence-transformers", "tokenizers", "numpy", "scipy", "scikit-learn")

_CODE = ("stsbench/", "methods/", "protocols/", "leaderboard/")


@cache  # every record holds all versions, and looking one up reads files
def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def git_revision() -> str | None:
    """Return the checkout's revision, with '+changes' when it has changed files or new ones in its code (except those that
    the leaderboard's commands write); None outside a checkout of stsbench."""
    root = Path(stsbench.__file__).resolve().parents[1]
    if not (root / ".git").exists():  # an installed package may lie in another project's checkout, whose revision misleads
        return None
    try:
        revision = _git(root, "rev-parse", "HEAD")
        written = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["tool"]["stsbench"]["written"]
        changes = _git(root, "status", "--porcelain", "--", ".", *(f":(exclude){path}" for path in written)).splitlines()
    except (OSError, subprocess.CalledProcessError, KeyError):
        return None
    # New files outside of the code, such as a user's texts, runs and models, do not change what is measured.
    dirty = any(not line.startswith("?? ") or line[3:].strip('"').startswith(_CODE) for line in changes)
    return revision.strip() + (CHANGES if dirty else "")


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=root, capture_output=True, encoding="utf-8", errors="backslashreplace", check=True
    ).stdout


def why_not_repeatable(revision: object) -> str | None:
    """Return why measurements by a revision of `git_revision` cannot be repeated; None where they can."""
    if isinstance(revision, str) and revision.endswith(CHANGES):
        return f"a checkout with uncommitted changes or new files in its code ({revision[:12]}): nobody can repeat it"
    return None


def provenance(**more: Any) -> dict[str, Any]:
    """Return versions, revision, platform and device of this process, and whatever the caller adds (seeds, command,
    seconds). device: the accelerator when torch is loaded and has one, else the processor's architecture."""
    device, torch = f"cpu ({platform.machine()}, {os.cpu_count()} cores)", sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        device = str(torch.cuda.get_device_name())
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "device": device,
        "versions": {name: version for name in _PACKAGES if (version := _version(name))},
        "git": git_revision(),
        **more,
    }


@dataclass(frozen=True)
class Overlap:
    """Overlap of an encoder's training texts with its test sets, as its records state it.

    shared: training text -> "30 of 2,638 of sts13/test" for each set that it shares texts with; unknown: training text ->
    the sets that it was not compared with.
    """

    shared: dict[str, tuple[str, ...]]
    unknown: dict[str, tuple[str, ...]]

    def sentences(self) -> list[str]:
        """Return a sentence for each training text, those with shared texts first."""
        return [
            *(f"trained on {text}, which holds test texts: {', '.join(sets)}, as its training recorded (near duplicates "
              "were not looked for)" for text, sets in self.shared.items()),
            *(f"trained on {text}, which was not compared with {', '.join(sets)}" for text, sets in self.unknown.items()),
        ]


def merge_overlap(records: Iterable[Record]) -> Overlap:
    """Return the overlap that records of one encoder, or of its seeds, state; empty where they state no training texts."""
    shared: dict[str, dict[str, None]] = {}
    unknown: dict[str, dict[str, None]] = {}
    for record in records:
        data, stated = record.data, record.provenance.get("training_overlap", ())
        sample = data.text_version == "sample"
        for one in texts_shared(stated, data.id, sample):
            set_name = data.shown if data.id == one.test else one.test
            shared.setdefault(one.training, {})[f"{one.exact + one.normalised:,} of {one.texts:,} of {set_name}"] = None
        for text in texts_not_compared(stated, data.id, sample):
            unknown.setdefault(text, {})[data.shown] = None
    return Overlap({text: tuple(sets) for text, sets in shared.items()},
                   {text: tuple(sets) for text, sets in unknown.items()})
