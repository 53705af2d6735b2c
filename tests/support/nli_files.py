"""Small files of invented labelled rows, and recipes that train on them."""

import csv

import tiny_models
import training_runs

LABELS = ("entailment", "neutral", "contradiction")


def triplets(folder, count=30, seed=3):
    texts = tiny_models.sentences(3 * count, longest=9, seed=seed)
    return _written(folder / f"triplets-{count}.csv", ("sent0", "sent1", "hard_neg"),
                    zip(texts[:count], texts[count : 2 * count], texts[2 * count :], strict=True), ",")


def pairs(folder, count=30, seed=4):
    """A file of distinct pairs with one of three labels."""
    texts = tiny_models.sentences(2 * count, longest=9, seed=seed)
    labels = [LABELS[i % 3] for i in range(count)]
    return _written(folder / f"pairs-{count}.tsv", ("premise", "hypothesis", "label"),
                    zip(texts[:count], texts[count:], labels, strict=True), "\t")


def _written(path, header, rows, delimiter):
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, delimiter=delimiter)
        writer.writerow(header)
        writer.writerows(rows)
    return path


def settings(model, text, labelled, procedure="joint", **more):
    """Values of a small semi-supervised run without development data."""
    return training_runs.settings(model, text, **{
        "labelled.file": str(labelled), "labelled.batch_size": 8, "semi.procedure": procedure, "selection.by": "none",
        "training.max_steps": 3, **more})
