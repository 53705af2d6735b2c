"""The package mteb, called without a trace of it, and the scored pairs that its tasks define.

They are of the Hub's repository at the revision that mteb pins, or of a copy of it.
"""

from __future__ import annotations

import logging
import math
import os
import random
import sys
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np

from stsbench.data.sets.catalog import BY_ID, MtebPairs
from stsbench.data.sets.lines import check_text
from stsbench.data.sets.readers import parse_score
from stsbench.data.sets.sets import PairSet
from stsbench.errors import DataError, MissingDataError
from stsbench.files import data_root
from stsbench.hub import downloads_are_off


@contextmanager
def undisturbed() -> Iterator[Any]:
    """mteb (imported here at the latest) for the time of the block, and no trace of it after.

    Building its tasks and evaluators reseeds random, numpy and torch: their states are put back. What it prints goes to
    standard error; warnings and log lines below errors are dropped (it advises newer versions of the tasks asked for).
    """
    import torch

    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    loggers = [logging.getLogger(name) for name in ("mteb", "sentence_transformers")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with redirect_stdout(sys.stderr), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield _imported()
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
        if cuda is not None:
            torch.cuda.set_rng_state_all(cuda)
        else:  # mteb's seed waits for CUDA to begin: the one that torch was given takes its place
            torch.cuda.manual_seed_all(torch.initial_seed())


def _imported() -> Any:
    """Return mteb, imported without the folder that its import makes in the user's home."""
    if "mteb" in sys.modules or "MTEB_CACHE" in os.environ:
        import mteb

        return mteb
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MTEB_CACHE"] = folder
        try:
            import mteb
        finally:
            del os.environ["MTEB_CACHE"]
    # Its default cache keeps the path of that moment: a user's own call of mteb.evaluate must find the usual place.
    default = (mteb.evaluate.__kwdefaults__ or {}).get("cache")
    if isinstance(default, mteb.ResultCache):
        default.cache_path = default.default_cache_path
    return mteb


def load_pairs(set_id: str, *, data_dir: Path | None = None, offline: bool = False, strict: bool = False) -> PairSet:
    """Return the pairs of one of `LANGUAGES`, in the split of its id, its languages or pairs of languages as subsets; texts
    and scores as they stand in the repository.

    Looked for in `data_dir`, where one is named; else in $STSBENCH_DATA, the user cache and, through mteb and its client's
    cache, on the Hub, at the revision of the installed mteb. A folder holds the files of the repository OWNER/NAME in
    OWNER/NAME. A set whose counts are not those of mteb's own statistics is `known=False` with a warning; `strict` refuses.
    Raises DataError, one line: no data and no network; a subset, split or column missing; a row without a scored pair.
    """
    item = BY_ID[set_id]
    with undisturbed() as mteb:
        try:
            task = mteb.get_task(item.name)
        except KeyError as error:
            raise DataError(f"this version of mteb has no task {item.name}: {error}") from error
        repository, revision = task.metadata.dataset["path"], task.metadata.dataset["revision"]
        folder = _folder(repository, item, data_dir)
        origin = str(folder) if folder else f"the Hub's {repository} at {revision[:12]}, through mteb"
        with tempfile.TemporaryDirectory() as scratch, _quiet(offline=folder is None and downloads_are_off(offline)):
            if folder is not None:  # read anew each time: what datasets keeps of a folder may be of its earlier files
                about = {key: value for key, value in task.metadata.dataset.items() if key != "revision"}
                local = {**about, "path": str(folder), "cache_dir": scratch}
                task.metadata = task.metadata.model_copy(update={"dataset": local})
            try:
                task.load_data()
            except Exception as error:  # whatever datasets, the Hub's client and a task's own code raise
                reason = " ".join(str(error).split())[:200] or type(error).__name__
                if folder is not None:
                    raise DataError(f"{item.task}: mteb cannot read {folder}: {reason}") from error
                raise MissingDataError(
                    f"{item.task}: mteb cannot load {origin}: {reason}; without network put the repository's files into "
                    f"DIR/{repository} and give --data-dir DIR"
                ) from error
            parts = {subset: _rows(task, item, subset, origin) for subset in task.hf_subsets}
            statistics = task.metadata.descriptive_stats or {}
    warnings = list(_miscounted(item, {subset: len(rows) for subset, rows in parts.items()}, statistics))
    if strict and warnings:
        raise DataError(f"{warnings[0]} (refused: --strict-data)")
    several = len(parts) > 1
    rows = [(subset if several else item.task, *row) for subset, part in parts.items() for row in part]
    subsets, first, second, gold = zip(*rows, strict=True)
    return PairSet(
        id=item.id, task=item.task, text_version="own", origin=origin, known=not warnings, warnings=tuple(warnings),
        first=first, second=second, gold=np.array(gold, dtype=np.float64), subsets=subsets,
    )


def pinned_revision(item: MtebPairs) -> str:
    """Return the commit of a set's repository that the installed mteb pins.

    Raises DataError where mteb has no such task any more, or reads another repository.
    """
    with undisturbed() as mteb:
        try:
            about = mteb.get_task(item.name).metadata.dataset
        except KeyError as error:
            raise DataError(f"this version of mteb has no task {item.name}: {error}") from error
    if about["path"] != item.repository:
        other = about["path"]
        raise DataError(f"{item.task}: this version of mteb reads {other}, not {item.repository}: fetch that by hf download")
    return str(about["revision"])


def _folder(repository: str, item: MtebPairs, data_dir: Path | None) -> Path | None:
    """Return the folder with a copy of the repository, None where the Hub is to be asked."""
    if data_dir is not None:
        if not (data_dir / repository).is_dir():
            raise MissingDataError(f"{data_dir / repository} is missing: --data-dir must hold {item.task}'s files there")
        return data_dir / repository
    configured = os.environ.get("STSBENCH_DATA")
    roots = [*([Path(configured)] if configured else []), data_root()]
    return next((root / repository for root in roots if (root / repository).is_dir()), None)


def _rows(task: Any, item: MtebPairs, subset: str, origin: str) -> list[tuple[str, str, float]]:
    splits = task.dataset.get(subset) if len(task.hf_subsets) > 1 else task.dataset
    where = f"{item.task} ({origin})" + (f", subset {subset}" if len(task.hf_subsets) > 1 else "")
    if splits is None:
        raise DataError(f"{where} is not there; the set is all of {', '.join(task.hf_subsets)}")
    if item.split not in splits:
        raise DataError(f"{where}: no split {item.split}, only {', '.join(map(str, splits))}")
    data = splits[item.split]
    columns = (*task.column_names, "score")
    if missing := [name for name in columns if name not in data.column_names]:
        raise DataError(f"{where}: no column {missing[0]} (there are {', '.join(data.column_names)})")
    low, high = task.min_score, task.max_score
    rows = list(_checked(zip(*(list(data[name]) for name in columns), strict=True), f"{where}, {item.split}", low, high))
    if not rows:
        raise DataError(f"{where}: the split {item.split} holds no pair")
    return rows


def _checked(
    rows: Iterable[tuple[Any, Any, Any]], where: str, low: float, high: float
) -> Iterator[tuple[str, str, float]]:
    for number, (first, second, score) in enumerate(rows, start=1):
        location = f"{where}: row {number}"
        if not isinstance(first, str) or not isinstance(second, str):
            raise DataError(f"{location}: a sentence is not a text")
        check_text(first + second, location, "a sentence")
        gold = parse_score(score, location)
        if not math.isfinite(gold) or not low <= gold <= high:
            raise DataError(f"{location}: the score {gold:g} is outside {low:g}-{high:g}")
        yield first, second, gold


def _miscounted(item: MtebPairs, counts: Mapping[str, int], statistics: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each part whose size is not the one in mteb's statistics."""
    of_split = statistics.get(item.split, {})
    of_subsets = of_split.get("hf_subset_descriptive_stats") or {}
    for subset, count in counts.items():
        stated = (of_subsets.get(subset, {}) if len(counts) > 1 else of_split).get("num_samples")
        if stated not in (None, count):
            part = f"{item.task} {subset}" if len(counts) > 1 else item.task
            yield f"{part} holds {count} pairs, mteb's statistics say {stated}"


@contextmanager
def _quiet(*, offline: bool) -> Iterator[None]:
    """Let datasets draw no bars in the block and, if `offline`, fetch nothing."""
    import datasets
    from huggingface_hub import constants

    bars, before = datasets.is_progress_bar_enabled(), (datasets.config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE)
    datasets.disable_progress_bars()
    if offline:
        datasets.config.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        datasets.config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE = before
        if bars:
            datasets.enable_progress_bars()
