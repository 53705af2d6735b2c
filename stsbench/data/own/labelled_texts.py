"""A user's own labelled texts: a column of texts, one of classes, and perhaps one of splits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from stsbench.data.own.labelled_pairs import label_of
from stsbench.data.own.source import source_of
from stsbench.data.own.table import Form, is_number, read_columns, table_rows
from stsbench.data.sets.sets import LabelledSet, named_by_content
from stsbench.errors import DataError
from stsbench.wording import counted

SPLIT, ALL = "split", "all"
_SPLITS = {"train": "train", "training": "train", "dev": "dev", "valid": "dev", "validation": "dev", "val": "dev",
           "test": "test"}
TEXTS = Form(
    what="labelled texts", texts=("text",), value="label", optional=SPLIT,
    text_names=(("text",), ("sentence",), ("review",), ("content",), ("document",), ("question",), ("utterance",)),
    value_names=("label", "labels", "class", "category", "target", "intent", "topic", "sentiment"),
    usual="text, label; or sentence, class and the like; and perhaps split, with train, dev and test",
)


def read_labelled_texts(path: Path, columns: str = "") -> LabelledSet:
    """The texts of a file or folder as `table_rows` reads them, with text version "own".

    Classes are names or numbers; they are numbered from 0 in their order, numbers by their size. With a column split there
    are train and test, perhaps dev; without it all texts are one. columns: as `read_columns` takes them. Its task is the
    file's name, never a path, its id a digest of texts, splits and class numbers. Raises DataError naming file and line.
    """
    source, warnings = source_of(path, splits=True), list[str]()
    texts, labels, splits = list[str](), list[str](), list[str]()
    for location, row in table_rows(source, TEXTS, warnings, read_columns(columns, TEXTS)):
        texts.append(row["text"])
        labels.append(label_of(row["label"], location))
        split = str(row.get(SPLIT, ALL))
        if SPLIT in row and split.lower() not in _SPLITS:
            raise DataError(f"{location}: the split {split!r} is none of train, dev (or validation) and test")
        splits.append(_SPLITS.get(split.lower(), ALL))
    if not texts:
        raise DataError(f"{path} holds no text")
    trained, tested = ({text for text, split in zip(texts, splits, strict=True) if split in those}
                       for those in (("train", "dev"), ("test",)))
    if shared := len(trained & tested):
        warnings.append(f"{source.name}: {counted(shared, 'text')} of the split test also in train or dev: not unseen")
    numbers = {name: number for number, name in enumerate(_in_order(labels))}
    _check(path, labels, splits)
    return named_by_content(LabelledSet(
        id="", task=source.name, text_version="own", origin=source.origin, warnings=tuple(warnings), first=tuple(texts),
        labels=np.array([numbers[label] for label in labels], dtype=np.int64), splits=tuple(splits),
    ))


def _in_order(labels: Sequence[str]) -> list[str]:
    names = set(labels)
    return sorted(names, key=float) if all(map(is_number, names)) else sorted(names)


def _check(path: Path, labels: Sequence[str], splits: Sequence[str]) -> None:
    """Whether a classifier can be trained and tested on these."""
    if len(set(labels)) < 2:
        raise DataError(f"{path}: every text has the label {labels[0]!r}: two classes at least are needed")
    parts = set(splits)
    if parts == {ALL}:
        return
    if lacking := [split for split in ("train", "test") if split not in parts]:
        raise DataError(f"{path}: no text of the split {lacking[0]}: give train and test, perhaps dev, or no splits at all")
    trained = {label for label, split in zip(labels, splits, strict=True) if split == "train"}
    if unknown := sorted(set(labels) - trained):
        raise DataError(f"{path}: the label {unknown[0]!r} occurs in no text of the split train")
