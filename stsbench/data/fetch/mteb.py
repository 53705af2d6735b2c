"""Loader of the scored pairs that tasks of mteb define, and a context for calling mteb without side effects.

The pairs come from the Hub's repository at the revision that mteb pins, or from a local copy of it.
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
    """Yield the module mteb, and undo its side effects after the block.

    Its tasks and evaluators reseed random, numpy and torch, whose states are restored. Its output goes to standard error;
    warnings and log lines below errors are dropped, such as advice to use newer versions of tasks.
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
        else:  # mteb's seed would take effect when CUDA starts: replace it by torch's own
            torch.cuda.manual_seed_all(torch.initial_seed())


def _imported() -> Any:
    """Return mteb, imported so that it creates no folder in the user's home."""
    if "mteb" in sys.modules or "MTEB_CACHE" in os.environ:
        import mteb

        return mteb
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MTEB_CACHE"] = folder
        try:
            import mteb
        finally:
            del os.environ["MTEB_CACHE"]
    # The default cache has kept the temporary path: restore the usual one for a user's own calls of mteb.evaluate.
    default = (mteb.evaluate.__kwdefaults__ or {}).get("cache")
    if isinstance(default, mteb.ResultCache):
        default.cache_path = default.default_cache_path
    return mteb


def load_pairs(set_id: str, *, data_dir: Path | None = None, offline: bool = False, strict: bool = False) -> PairSet:
    """Return the pairs of a set of `LANGUAGES` in the split that its id names, with languages or pairs of languages as
    subsets, and texts and scores unchanged.

    The set is read from `data_dir` if given, else from $STSBENCH_DATA, the user cache or, through mteb and the cache of the
    Hub's client, the Hub, at the revision that the installed mteb pins. In a data folder OWNER/NAME holds the files of the
    repository OWNER/NAME. Where counts differ from mteb's statistics, the set is `known=False` with a warning, or refused
    if `strict`. Raises DataError, one line, without data and network, for a missing subset, split or column, and for a row
    without a scored pair."""
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
            if folder is not None:  # with a fresh cache: that of datasets may hold an earlier state of the folder
                about = {key: value for key, value in task.metadata.dataset.items() if key != "revision"}
                local = {**about, "path": str(folder), "cache_dir": scratch}
                task.metadata = task.metadata.model_copy(update={"dataset": local})
            try:
                task.load_data()
            except Exception as error:  # datasets, the Hub's client and task code raise any error
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

    Raises DataError where that mteb has no such task, or reads another repository.
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
    """Return the folder with a copy of the repository, None for the Hub. Raises MissingDataError if `data_dir` has none."""
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
    """Yield a warning for each subset whose size differs from mteb's statistics."""
    of_split = statistics.get(item.split, {})
    of_subsets = of_split.get("hf_subset_descriptive_stats") or {}
    for subset, count in counts.items():
        stated = (of_subsets.get(subset, {}) if len(counts) > 1 else of_split).get("num_samples")
        if stated not in (None, count):
            part = f"{item.task} {subset}" if len(counts) > 1 else item.task
            yield f"{part} holds {count} pairs, mteb's statistics say {stated}"


@contextmanager
def _quiet(*, offline: bool) -> Iterator[None]:
    """Disable the progress bars of datasets in the block and, if `offline`, all downloads."""
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
