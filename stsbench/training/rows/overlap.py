"""What the texts that a run trains on share with the test sets at hand: train.json, its encoder and its records say it."""

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
_AT_ONCE = 10_000  # rows


def training_overlap(
    data: Mapping[str, StageData], names: Sequence[str], *, data_dir: Path | None = None, sample: bool = False,
    user_sets: Sequence[DataSet] = (), documents: Sequence[str] = (),
) -> dict[str, dict[str, Any]]:
    """Return stage, or "labelled", of `names` -> what the rows that it trains on share with the catalog's test sets, as far
    as they are at hand (nothing is downloaded), and with `user_sets`.

    text: the file's name; digest: of its rows; looked_for: kinds of equality; shared: test set -> its distinct texts, those
    that the rows hold as they stand (exact) or but for case and punctuation (normalised), and the rows that hold one; none:
    test sets without any; not_looked_for: those that were not compared. sample: those of the package's sample.
    documents: the names whose rows are documents, within which no sentence is looked for.
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
        numbers = np.unique(np.concatenate(rows.rows_with_following(rows.trained)))  # each once
        numbers = numbers[numbers >= 0]
        key = f"{rows.store.digest} {rows.tokens.roles} ".encode() + numbers.tobytes()
        if key not in compared:
            compared[key] = _compared(rows, numbers, tests, missing, sample)
        described[name] = {**about, **compared[key]}
    return described


def not_looked_for(text: str, digest: str) -> dict[str, Any]:
    """Return the same of a text that an earlier run trained on without a look at the test sets."""
    return {"text": text, "digest": digest, "looked_for": [], "shared": {}, "none": [], "not_looked_for": [*TESTS]}


def overlap_lines(described: Mapping[str, Mapping[str, Any]], user_sets: Sequence[DataSet] = ()) -> list[str]:
    """Return what to print of `training_overlap`: a line for each text."""
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
