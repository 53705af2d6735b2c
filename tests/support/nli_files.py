"""Small files of invented labelled rows, and recipes that train on them."""

from __future__ import annotations

import csv
from pathlib import Path

import tiny_models
import training_runs

LABELS = ("entailment", "neutral", "contradiction")


def triplets(folder: Path, count: int = 30, seed: int = 3) -> Path:
    texts = tiny_models.sentences(3 * count, longest=9, seed=seed)
    return _written(folder / f"triplets-{count}.csv", ("sent0", "sent1", "hard_neg"),
                    zip(texts[:count], texts[count : 2 * count], texts[2 * count :], strict=True), ",")


def pairs(folder: Path, count: int = 30, seed: int = 4) -> Path:
    """A file of distinct pairs with one of three labels."""
    texts = tiny_models.sentences(2 * count, longest=9, seed=seed)
    labels = [LABELS[i % 3] for i in range(count)]
    return _written(folder / f"pairs-{count}.tsv", ("premise", "hypothesis", "label"),
                    zip(texts[:count], texts[count:], labels, strict=True), "\t")


def _written(path: Path, header, rows, delimiter: str) -> Path:
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, delimiter=delimiter)
        writer.writerow(header)
        writer.writerows(rows)
    return path


def settings(model: Path, text: Path, labelled: Path, procedure: str = "joint", **more):
    """Values of a small semi-supervised run without development data."""
    return training_runs.settings(model, text, **{
        "labelled.file": str(labelled), "labelled.batch_size": 8, "semi.procedure": procedure, "selection.by": "none",
        "training.max_steps": 3, **more,
    })
