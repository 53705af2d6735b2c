"""Where data are looked for, which sets are there, and what `--protocol all` would measure of them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from stsbench.data.fetch.sources import locate
from stsbench.data.sets.catalog import Entry, entries
from stsbench.errors import DataError, StsbenchError
from stsbench.evaluation.plan import Planned, plan
from stsbench.files import data_root


@dataclass(frozen=True)
class DataFolder:
    """A folder in which data are looked for. problem: what is wrong with it, if anything."""

    folder: Path
    named: str  # "--data-dir", "$STSBENCH_DATA" or "user cache"
    problem: str | None = None


def folders(data_dir: Path | None = None) -> list[DataFolder]:
    """In the order in which they are looked into; an explicit folder is the only one."""
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
    """Every set of the catalog, in its order. Files are looked for, and not read: `stsbench data verify` does that."""
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
    """Whether a set outside the catalog, a plug-in's, can be loaded."""
    if set_id in {item.id for item in entries()}:
        return False
    try:
        return planned.protocol.load(set_id) is not None
    except StsbenchError:
        return False


def missing_lines(located: list[SetLocation]) -> Iterator[str]:
    """A line for each text version: how many of its sets are there, and which are not."""
    for version in dict.fromkeys(item.text_version for item in located):
        of_version = [item for item in located if item.text_version == version]
        absent = [item.id for item in of_version if item.folder is None]
        line = f"{version} text: {len(of_version) - len(absent)} of {len(of_version)} sets"
        yield line if not absent else f"{line}; not {', '.join(absent)}"
