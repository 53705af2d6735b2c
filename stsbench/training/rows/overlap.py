"""Overlap of a run's training texts with the test sets on this machine, for train.json, the encoder and its records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stsbench.data.own.overlap import KINDS, TESTS, available_tests, shared_texts
from stsbench.data.sets.sets import DataSet
from stsbench.training.rows.stage_rows import StageData

LOOKED_FOR = KINDS[:2]  # exact, normalised: near duplicates take four times as long (stsbench data overlap FILE)
_AT_ONCE = 10_000  # rows whose texts are read at a time


def training_overlap(
    data: Mapping[str, StageData], names: Sequence[str], *, data_dir: Path | None = None, sample: bool = False,
    user_sets: Sequence[DataSet] = (), documents: Sequence[str] = (),
) -> dict[str, dict[str, Any]]:
    """Return, for each of `names` (stages, or "labelled"), which texts its training rows share with `user_sets` and with
    those of the catalog's test sets that are on this machine (nothing is downloaded).

    Each entry has text: the file's name; digest: of its rows; looked_for: the kinds of equality; shared: test set -> the
    numbers of its distinct texts, of those in the rows exactly (exact) or but for case and punctuation (normalised), and of
    rows with such a text; none: test sets without a shared text; not_looked_for: test sets that were not compared.
    sample: compare with the package's sample. documents: names whose rows are documents, which are not searched.
    """
    compared: dict[bytes, dict[str, Any]] = {}  # stages often share their text
    tests: list[DataSet] | None = None
    missing: list[str] = []
    described = {}
    for name in names:
        rows = data[name]
        about = {"text": rows.store.path.name, "digest": rows.store.digest}
        if name in documents or rows.store.settings.lines_per_row > 1:
            every = [*TESTS, *(data_set.id for data_set in user_sets)]
            described[name] = {**about, "looked_for": [], "shared": {}, "none": [], "not_looked_for": every,
                               **({"sample": True} if sample else {})}
            continue
        if tests is None:
            tests, missing = available_tests(data_dir=data_dir, sample=sample)
            tests += user_sets
        numbers = np.unique(np.concatenate(rows.rows_with_following(rows.trained)))  # without repetitions
        numbers = numbers[numbers >= 0]
        key = f"{rows.store.digest} {rows.tokens.roles} ".encode() + numbers.tobytes()
        if key not in compared:
            compared[key] = _compared(rows, numbers, tests, missing, sample)
        described[name] = {**about, **compared[key]}
    return described


def not_looked_for(text: str, digest: str) -> dict[str, Any]:
    """Return the entry, as in `training_overlap`, of a training text that was not compared with any test set."""
    return {"text": text, "digest": digest, "looked_for": [], "shared": {}, "none": [], "not_looked_for": [*TESTS]}


def overlap_lines(described: Mapping[str, Mapping[str, Any]], user_sets: Sequence[DataSet] = ()) -> list[str]:
    """Return the lines to print about the result of `training_overlap`, one for each text."""
    lines, shown = [], {data_set.id: data_set.shown for data_set in user_sets}
    for about in {item["text"]: item for item in described.values()}.values():
        shared = [f"{counts['exact'] + counts['normalised']:,} of {counts['texts']:,} of {shown.get(name, name)}"
                  for name, counts in about["shared"].items()]
        parts = [f"holds test texts: {', '.join(shared)} (`stsbench data overlap` shows them)"] if shared else []
        if about["none"]:
            parts.append(f"holds no sentence of {_join(about['none'], shown)}")
        if about["not_looked_for"]:
            parts.append(f"not compared with {_join(about['not_looked_for'], shown)}")
        lines.append(f"{about['text']}: {'; '.join(parts)}")
    return lines


def _join(ids: Sequence[str], names: Mapping[str, str]) -> str:
    return ", ".join(names.get(id, id) for id in ids)


def _compared(
    rows: StageData, numbers: NDArray[np.int64], tests: Sequence[DataSet], missing: Sequence[str], sample: bool
) -> dict[str, Any]:
    results = shared_texts(_texts(rows, numbers), tests) if tests else []
    return {
        "looked_for": [*LOOKED_FOR] if tests else [],
        "shared": {one.id: {"texts": one.texts, "exact": one.exact, "normalised": one.normalised, "rows": one.rows}
                   for one in results if one.any},
        "none": [one.id for one in results if not one.any], "not_looked_for": [*missing],
        **({"sample": True} if sample else {}),
    }


def _texts(rows: StageData, numbers: NDArray[np.int64]) -> Iterator[tuple[int, str]]:
    for start in range(0, len(numbers), _AT_ONCE):
        part = numbers[start : start + _AT_ONCE]
        for role in rows.tokens.roles:
            yield from ((row, text.strip()) for row, text in zip(part.tolist(), rows.store.texts(role, part), strict=True))
