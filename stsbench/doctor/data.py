"""Where data are looked for, which sets are there, and what `--protocol all` would measure of them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from stsbench.data.fetch.sources import data_root, locate
from stsbench.data.sets.catalog import Entry, entries
from stsbench.errors import DataError, StsbenchError
from stsbench.evaluation.plan import Planned, plan


@dataclass(frozen=True)
class Place:
    """A folder in which data are looked for. problem: what is wrong with it, if anything."""

    folder: Path
    named: str  # "--data-dir", "$STSBENCH_DATA" or "user cache"
    problem: str | None = None


def places(data_dir: Path | None = None) -> list[Place]:
    """In the order in which they are looked into; an explicit folder is the only one."""
    if data_dir is not None:
        return [Place(data_dir, "--data-dir", None if data_dir.is_dir() else f"--data-dir {data_dir}: no such folder")]
    listed = []
    if configured := os.environ.get("STSBENCH_DATA"):
        folder = Path(configured)
        problem = None if folder.is_dir() else f"$STSBENCH_DATA names {folder}, which is not a folder"
        listed.append(Place(folder, "$STSBENCH_DATA", problem))
    return [*listed, Place(data_root(), "user cache")]


@dataclass(frozen=True)
class SetPlace:
    """Where all files of one set are; None, and why, where they are not."""

    id: str
    text_version: str
    folder: Path | None
    reason: str = ""


def sets(data_dir: Path | None = None) -> list[SetPlace]:
    """Every set of the catalog, in its order. Files are looked for, and not read: `stsbench data verify` does that."""
    return [_set_place(item, data_dir) for item in entries()]


def _set_place(item: Entry, data_dir: Path | None) -> SetPlace:
    try:
        located = locate(item, data_dir=data_dir, offline=True)
    except DataError as error:
        return SetPlace(item.id, item.text_version, None, str(error))
    return SetPlace(item.id, item.text_version, located.root)


@dataclass
class Measurable:
    """What `--protocol all` would do: protocol -> tasks, protocol -> tasks without data, and what it leaves out and why."""

    measured: dict[str, list[str]] = field(default_factory=dict)
    without_data: dict[str, list[str]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def measurable(located: list[SetPlace]) -> Measurable:
    """By SentEval's text, as `eval` does without --text. located: what `sets` returns."""
    result = Measurable()
    there = {each.id for each in located if each.text_version == "senteval" and each.folder}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        planned, result.left_out = plan(["all"], None, {})
    result.problems = [str(each.message) for each in caught]
    for each in planned:
        split = {task: id in there or _loads_its_own(each, id) for task, id in each.tasks.items()}
        if with_data := [task for task, ready in split.items() if ready]:
            result.measured[each.label] = with_data
        if without := [task for task, ready in split.items() if not ready]:
            result.without_data[each.label] = without
    return result


def _loads_its_own(planned: Planned, set_id: str) -> bool:
    """Whether a set outside the catalog, a plug-in's, can be loaded."""
    if set_id in {item.id for item in entries()}:
        return False
    try:
        return planned.protocol.load(set_id) is not None
    except StsbenchError:
        return False


def missing_lines(located: list[SetPlace]) -> Iterator[str]:
    """A line for each text version: how many of its sets are there, and which are not."""
    for version in dict.fromkeys(each.text_version for each in located):
        mine = [each for each in located if each.text_version == version]
        absent = [each.id for each in mine if each.folder is None]
        line = f"{version} text: {len(mine) - len(absent)} of {len(mine)} sets"
        yield line if not absent else f"{line}; not {', '.join(absent)}"
