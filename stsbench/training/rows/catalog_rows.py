"""Scored pairs of the catalog as training text: `data.file: stsb/train` is read from where protocols read their data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stsbench.data.fetch import sources
from stsbench.data.sets.catalog import Entry, entries
from stsbench.data.sets.sets import PairSet
from stsbench.data.text.cache import built_folder
from stsbench.errors import DataError
from stsbench.files import training_cache

_SCALES = {"stsb": (0.0, 5.0), "sick": (1.0, 5.0)}  # kind of scored pairs -> the scale of its scores


@dataclass(frozen=True)
class SetPlace:
    """Where the catalog's sets are: --data-dir, the package's sample, or wherever else they lie; offline: no download."""

    data_dir: Path | None = None
    sample: bool = False
    offline: bool = False


def catalog_file(name: str, where: SetPlace, log: Callable[[str], None], section: str = "data") -> Path | None:
    """A file with the rows of the set called `name`: sentence1, sentence2 and score as in the set. None: not a set's name.

    section: of the recipe, which names the set.
    Raises DataError, one line, for a set that is not the training split of scored pairs, and where it cannot be found.
    """
    known = [item for item in entries("senteval") if item.id == name]
    if not known:
        return None
    if not _trainable(known[0]):
        raise DataError(f"{section}.file {name}: of the catalog's sets {' and '.join(trainable_sets())} can be trained on")
    try:
        data = sources.load(name, data_dir=where.data_dir, sample=where.sample, offline=where.offline)
    except DataError as error:
        raise DataError(f"{section}.file {name}: {error}") from error
    assert isinstance(data, PairSet)
    for line in data.warnings:
        log(f"warning: {line}")
    log(f"{name}: {len(data):,} pairs from {data.origin}")
    key = hashlib.sha256(f"{name} {data.digest}".encode()).hexdigest()
    file = f"{name.replace('/', '-')}.jsonl"
    return built_folder(training_cache() / "sets", key, lambda folder: _write(data, folder / file)) / file


def is_set(name: str) -> bool:
    """Whether `name` is that of a set of the catalog."""
    return any(item.id == name for item in entries("senteval"))


def trainable_sets() -> list[str]:
    """The names of the sets that `catalog_file` takes."""
    return [item.id for item in entries("senteval") if _trainable(item)]


def scale_of(name: str | None) -> tuple[float, float] | None:
    """The least and the greatest score of a set's scale; None: not a set's name."""
    kinds = {item.id: item.kind for item in entries("senteval") if _trainable(item)}
    return None if name is None or name not in kinds else _SCALES[kinds[name]]


def _trainable(item: Entry) -> bool:
    return item.split == "train" and item.kind in _SCALES


def _write(data: PairSet, path: Path) -> None:
    with path.open("w", encoding="utf-8") as stream:
        for first, second, score in zip(data.first, data.second, data.gold.tolist(), strict=True):
            row = {"sentence1": first, "sentence2": second, "score": score}
            stream.write(json.dumps(row, ensure_ascii=False) + "\n")
