"""Scores of a board's entries: runs that changed since the last build are scored in batches, the others are cached."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from stsbench.errors import StsbenchError
from stsbench.leaderboard.ranks import results
from stsbench.leaderboard.records.admission import check_decided, decided, draw_many
from stsbench.leaderboard.records.board_settings import check_admitted, read_settings
from stsbench.leaderboard.records.copies import Owned, near_copies, near_copy_notes, near_pairs, sketch
from stsbench.leaderboard.records.entries import EntryRun, LoadedEntry, check_seeds, checked_run, read_entries, read_run
from stsbench.leaderboard.records.paths import records_folder
from stsbench.processes import cores, limit_threads, without_main

from .lines import ScoreLine, lines_of_runs
from .results import RunResult

BATCH = 32  # runs whose draws are computed together, which share the counts and the ranks of the gold scores
FEW = 12  # runs per process, at least: fewer are not worth starting one
Item = TypeVar("Item")
Result = TypeVar("Result")


def scored_entries(board: Path, records: str | Path | None = None) -> tuple[list[LoadedEntry], dict[Path, list[ScoreLine]]]:
    """Return every entry of a board, by name, and run folder -> its lines. records: the folder of the runs, as in
    `records_folder`.

    A run is not scored again if its records, observations and scoring code are unchanged since an earlier build. Raises
    StsbenchError, naming the file, for files that do not belong on a board and for records that are not valid.
    """
    folder = records_folder(board, records)
    entries = read_entries(board / "measured", None if folder == board else folder / "measured")
    check_admitted(entries, read_settings(board))  # not cached with a run: all boards share the cache, not their settings
    runs = {run.folder: run for entry in entries for run in (*entry.runs, *entry.prompts)}
    keys = {path: results.cache_key(run) for path, run in runs.items()}
    scored = {path: result for path, run in runs.items() if (result := results.read(keys[path], run))}
    if missing := [path for path in runs if path not in scored]:
        _score(missing)
        results.prune()
        for path in missing:
            result = results.read(keys[path], runs[path])
            if result is None:
                raise StsbenchError(f"{path} was changed while it was scored: run the command again")
            scored[path] = result
    near = near_pairs([(entry.id, measured, scored[run.folder].sketches[measured.path.name])
                       for entry in entries for run in (*entry.runs, *entry.prompts) for measured in run.records])
    # Runs of one encoder with two prompts may be nearly equal: they are no copies.
    prompts = {run.folder for entry in entries for run in entry.prompts}
    near = [(one, other) for one, other in near if one[0] != other[0] or not prompts & {_run(one), _run(other)}]
    check_seeds(entries, near)
    twins, origin = near_copies(near), {entry.id: entry.entry.starts_from for entry in entries}
    for name, others in twins.items():  # an entry that states the other as its start needs no note
        twins[name] = {other: why for other, why in others.items() if origin[other] != name}
    entries = [replace(entry, twins=near_copy_notes(entry.id, twins.get(entry.id, {}))) for entry in entries]
    check_decided((measured.path, measured.record, scored[run.folder].decided[measured.path.name])
                  for run in runs.values() for measured in run.records)
    return entries, {path: result.lines for path, result in scored.items()}


def _run(owned: Owned) -> Path:
    return owned[1].path.parents[1]


def _score(folders: Sequence[Path]) -> None:
    """Score these runs and cache the results. Raises StsbenchError for the first run that is not valid."""
    workers = min(cores(), -(-len(folders) // FEW))
    size = min(BATCH, -(-len(folders) // workers))
    batches = [folders[at : at + size] for at in range(0, len(folders), size)]
    faults = [fault for of_batch in across(score_batch, batches, workers) for fault in of_batch]
    if faults:
        raise StsbenchError(faults[0])


def score_batch(folders: Sequence[Path]) -> list[str]:
    """Check and score these runs, cache the results, and return the error messages of the runs that are not valid."""
    faults: list[str] = []
    runs: list[EntryRun] = []
    keys: list[str] = []
    read = []
    for folder in folders:
        try:
            run = read_run(folder)
            read.append((results.cache_key(run), run))  # before scoring: the key must be that of the bytes that are scored
        except StsbenchError as error:
            faults.append(str(error))
    draw_many([measured for _, run in read for measured in run.records])
    for key, run in read:
        try:
            runs.append(checked_run(run, uncommitted=True))  # `check_admitted` refuses uncommitted code
            keys.append(key)
        except StsbenchError as error:
            faults.append(str(error))
    try:
        lines = lines_of_runs(runs)
    except StsbenchError as error:
        return [*faults, str(error)]
    for key, run, run_lines in zip(keys, runs, lines, strict=True):
        parts = {measured.path.name: decided(measured.protocol, measured.observed()) for measured in run.records}
        sketches = {measured.path.name: sketch(measured) for measured in run.records}
        results.write(key, RunResult(run_lines, parts, sketches), run)
    return faults


def across(function: Callable[[Item], Result], items: Sequence[Item], workers: int) -> list[Result]:
    """Return [function(item), ...] in the items' order, computed by `workers` processes, or in this one for one worker."""
    if workers <= 1:
        return [function(item) for item in items]
    # Spawned, as a fork may copy a lock that a library's thread holds. Each process gets one thread: together they use all
    # cores.
    spawn = multiprocessing.get_context("spawn")
    with limit_threads(1, whatever_is_set=True), without_main(), ProcessPoolExecutor(workers, spawn) as pool:
        return list(pool.map(function, items))
