"""A job: the words of one command, named by a digest of them and of the jobs that it depends on."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from stsbench.extensions.jobs.plan_file import JOB

DIGITS = 10  # hex digits of a digest in a name


@dataclass(frozen=True)
class Job:
    """One `stsbench train` or `stsbench eval`.

    name: group, what varies in it, and seed; words: the command's, without `stsbench` and --output, a run of another job
    written job:ID; needs: ids of those jobs; digest: sha256, hex; reads: files that it reads besides; protocols, tasks,
    settings, text: what an evaluation measures (settings as of evaluation.plan); backbone: that a training names, unless it
    is another job's.
    """

    name: str
    group: str
    kind: Literal["train", "eval"]
    words: tuple[str, ...]
    digest: str
    needs: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    seed: int | None = None
    protocols: tuple[str, ...] = ()
    tasks: tuple[str, ...] | None = None
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, compare=False)
    text: str = "senteval"
    backbone: str | None = None

    @property
    def id(self) -> str:
        """The name of its run folder."""
        return f"{self.name}-{self.digest[:DIGITS]}"

    def folder(self, output: Path) -> Path:
        """Its run folder."""
        return output / self.id

    def command(self, output: Path, *more: str) -> list[str]:
        """The command's words after `stsbench`."""
        words = [_with(word, {id: str(output / id) for id in self.needs}) for word in self.words]
        return [*words, "--output", str(self.folder(output)), *more]

    def line(self, output: Path) -> str:
        """The command as one types it."""
        return shlex.join(["stsbench", *self.command(output)])


def job_digest(words: Sequence[str], recipe: Mapping[str, Any] | None, needs: Mapping[str, str]) -> str:
    """sha256 over a job's words, all values of its recipe, and the digests of the jobs it depends on (id -> digest).

    Where run folders lie does not enter: a plan's output may be moved. Nor does --offline, which changes no result.
    """
    known = {id: f"{JOB}{digest}" for id, digest in needs.items()}
    hashed = [[_with(word, known) for word in words if word != "--offline"], recipe]
    return hashlib.sha256(json.dumps(hashed, sort_keys=True).encode()).hexdigest()


def _with(word: str, known: Mapping[str, str]) -> str:
    """A word that is job:ID, or a setting whose value names some, with what `known` has for each id in their places."""
    if word.startswith(JOB):
        return known.get(word.removeprefix(JOB), word)
    for id, text in known.items():
        word = word.replace(f"{JOB}{id}", json.dumps(text)[1:-1])  # a list is written as JSON
    return word
