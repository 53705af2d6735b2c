"""Readers that turn a user's own tables into data sets: scored pairs, labelled pairs, labelled texts and triplets."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stsbench.config import shorten
from stsbench.data.own.source import open_source
from stsbench.data.own.table import Form, column_names, is_number, is_table, read_columns, table_rows
from stsbench.data.sets.readers import parse_score
from stsbench.data.sets.sets import LabelledSet, PairSet, TripletSet, named_by_content
from stsbench.errors import DataError
from stsbench.wording import counted

SUBSET = "subset"
_CONDITION = "--set 'sts.condition=\"{condition}: {text}\"'"
_NOT_FINITE = ("nan", "inf", "infinity")
ALL = "all"  # the subset or split of items in a file without such a column
# Usual names of two columns of sentences.
SENTENCES = tuple((f"{word}{one}", f"{word}{other}") for word in ("sentence", "sent", "text", "s", "question", "q")
                  for one, other in (("1", "2"), ("a", "b"), ("0", "1")))
SCORED = Form(
    what="own pairs", texts=("sentence1", "sentence2"), text_names=SENTENCES, value="score", numeric=True, optional=SUBSET,
    value_names=("score", "similarity", "similarityscore", "goldscore", "gold", "relatedness", "relatednessscore", "rating",
                 "label"),
    usual="sentence1, sentence2, score; or text1, text2, label; sent_1, sent_2, similarity and the like",
)
CONDITIONED = replace(SCORED, texts=(*SCORED.texts, "condition"), text_names=tuple((*two, "condition") for two in SENTENCES))
LABELLED = Form(
    what="labelled pairs", texts=("sentence1", "sentence2"), text_names=SENTENCES, value="label", numeric=True,
    optional=SUBSET,
    value_names=("label", "labels", "isduplicate", "duplicate", "isparaphrase", "match", "ismatch", "target", "class",
                 "gold", "score"),
    usual="sentence1, sentence2, label; or text1, text2, match; question1, question2, is_duplicate and the like",
)
# Pairs of labels of which the first plainly means a match.
_PLAIN = (("true", "false"), ("yes", "no"), ("t", "f"), ("y", "n"))
SPLIT = "split"
_SPLITS = {"train": "train", "training": "train", "dev": "dev", "valid": "dev", "validation": "dev", "val": "dev",
           "test": "test"}
TEXTS = Form(
    what="labelled texts", texts=("text",), value="label", optional=SPLIT,
    text_names=(("text",), ("sentence",), ("review",), ("content",), ("document",), ("question",), ("utterance",)),
    value_names=("label", "labels", "class", "category", "target", "intent", "topic", "sentiment"),
    usual="text, label; or sentence, class and the like; and perhaps split, with train, dev and test",
)
TRIPLETS = Form(
    what="triplets", texts=("anchor", "positive", "negative"), optional=SUBSET, numbered="negative",
    text_names=(("anchor", "positive", "negative"), ("query", "positive", "negative"), ("query", "pos", "neg"),
                ("sent0", "sent1", "hardneg"), ("sentence", "positive", "negative"),
                ("sentence1", "sentence2", "sentence3")),
    usual="anchor, positive, negative; or query, pos, neg; sent0, sent1, hard_neg",
)


def read_scored_pairs(path: Path, columns: str = "", condition: str = "") -> PairSet:
    """Return the pairs of a .csv, .tsv, .jsonl or .parquet file, or of a folder that `datasets` saved, with text version
    "own".

    The set's task is the file's name, never a path; its id is a digest of the pairs. Texts are only stripped of white
    space; scores are finite numbers in any unit, higher for more similar texts. Without a column subset the pairs are one
    subset. columns: as `read_columns` takes them. condition: a template such as "{condition}: {text}", which joins the
    column `condition` with each of the two texts; "" for none. Departures from SCORED (delimiter, names, no header) become
    warnings. Raises DataError naming file and line.
    """
    source, warnings = open_source(path), list[str]()
    first, second, gold, subsets, commas = list[str](), list[str](), list[float](), list[str](), False
    form = CONDITIONED if condition else SCORED
    if not condition and any("condition" in _header(file) for files in source.parts.values() for file in files[:1]):
        warnings.append(f"{source.name}: its column condition is not read: {_CONDITION} joins it with each text")
    for location, row in table_rows(source, form, warnings, read_columns(columns, form)):
        for texts, column in ((first, "sentence1"), (second, "sentence2")):
            texts.append(with_condition(condition, row["condition"], row[column]) if condition else row[column])
        subsets.append(row.get(SUBSET, ALL))
        score = row["score"]
        if isinstance(score, str) and score.strip().isalpha() and score.strip().lower() not in _NOT_FINITE:
            wrong = f"the score {shorten(score)} is not a number"
            raise DataError(f"{location}: {wrong}: pairs with labels are measured by pairs:FILE")
        if isinstance(score, str) and re.fullmatch(r"\s*-?\d+,\d+\s*", score):
            score, commas = score.replace(",", "."), True
        if not math.isfinite(value := parse_score(score, location)):
            raise DataError(
                f"{location}: the score {shorten(score)} is not a finite number: correct it or leave the row out"
            )
        gold.append(value)
    if not gold:
        raise DataError(f"{path} holds no pair")
    if commas:
        warnings.append(f"{source.name}: its scores have decimal commas, 4,5 for 4.5")
    return named_by_content(PairSet(
        id="", task=source.name, text_version="own", origin=source.origin, warnings=tuple(warnings), first=tuple(first),
        second=tuple(second), gold=np.array(gold), subsets=tuple(subsets),
    ))


def _header(file: Path) -> list[str]:
    """Return the names of a table's columns; [] for any other file, of which the reader reports the fault later."""
    with suppress(DataError):
        return column_names(file) if is_table(file) and file.is_file() else []
    return []


def with_condition(template: str, condition: str, text: str) -> str:
    """Return `template` with {condition} and {text} filled in. Raises DataError for a template without one of them.

    >>> with_condition("{condition}: {text}", "the colour", "A red car.")
    'the colour: A red car.'
    """
    for name in ("{condition}", "{text}"):
        if name not in template:
            raise DataError(f"sts.condition {template!r} has no {name}: write {_CONDITION}")
    before, _, after = template.partition("{text}")  # split first: a text may itself contain "{condition}"
    return f"{before.replace('{condition}', condition)}{text}{after.replace('{condition}', condition)}"


def read_labelled_pairs(path: Path, columns: str = "", positive: str = "") -> PairSet:
    """Return the labelled pairs of a file or folder that `table_rows` can read: gold is 1.0 for a match, else 0.0; text
    version "own".

    Labels are 0 and 1, true and false, or two names, of which `positive` means a match. columns: as `read_columns` takes
    them. The set's task is the file's name, its id a digest of the pairs. Raises DataError naming file and line.
    """
    source, warnings = open_source(path), list[str]()
    first, second, labels, subsets, met = list[str](), list[str](), list[str](), list[str](), dict[str, str]()
    for location, row in table_rows(source, LABELLED, warnings, read_columns(columns, LABELLED)):
        first.append(row["sentence1"])
        second.append(row["sentence2"])
        subsets.append(row.get(SUBSET, ALL))
        labels.append(label_text(row["label"], location))
        met.setdefault(labels[-1], location)
    if not labels:
        raise DataError(f"{path} holds no pair")
    return named_by_content(PairSet(
        id="", task=source.name, text_version="own", origin=source.origin, warnings=tuple(warnings), first=tuple(first),
        second=tuple(second), gold=_matches(labels, met, positive, path), subsets=tuple(subsets),
    ))


def label_text(value: Any, location: str) -> str:
    """Return a label as text: 1, 1.0 and "1" are equal, as are true and "true". Raises DataError if empty or NaN."""
    if isinstance(value, str) and (text := value.strip()) and not is_number(text) and text.lower() != "nan":
        return text
    if isinstance(value, bool):
        return str(value).lower()
    try:
        number = Decimal(value.strip() if isinstance(value, str) else repr(value) if isinstance(value, float) else value)
    except (ArithmeticError, TypeError, ValueError):
        number = Decimal("nan")
    if not number.is_finite():
        empty = value is None or not str(value).strip()
        wrong = "label is empty" if empty else f"{shorten(value)} is not a label"
        raise DataError(f"{location}: {wrong}: write a name, a number, true or false")
    # No digit is rounded away: two classes may be called 1000001 and 1000002.
    whole = number == number.to_integral_value()
    return str(int(number)) if whole else format(number.normalize(Context(prec=400)), "f")


def _matches(labels: Sequence[str], met: Mapping[str, str], positive: str, path: Path) -> NDArray[np.float64]:
    """Return float64 (n,), 1 for the label that means a match. met: label -> location of its first row."""
    names = list(met)
    if len(names) > 2:
        wanted = "write 0 and 1, or measure scores by sts:FILE"
        raise DataError(f"{met[names[2]]}: a third label, {shorten(names[2])}, beside {_join(names[:2])}: {wanted}")
    if len(names) == 1:
        raise DataError(f"{path}: every pair has the label {names[0]!r}: pairs of both kinds are needed")
    matching = _positive(names, positive, path)
    return np.array([label == matching for label in labels], dtype=np.float64)


def _positive(names: Sequence[str], positive: str, path: Path) -> str:
    if positive:
        if positive not in names:
            raise DataError(f"{path}: no pair has the label {positive!r} (there are {_join(names)}): see pairs.positive")
        return positive
    if set(names) == {"0", "1"}:
        return "1"
    lower = {name.lower(): name for name in names}
    for match, other in _PLAIN:
        if set(lower) == {match, other}:
            return lower[match]
    raise DataError(
        f"{path}: the labels are {_join(names)}: write 1 for pairs that match and 0 for the others, or say to `stsbench "
        f"eval` which means a match: --set 'pairs.positive=\"{names[0]}\"'"
    )


def _join(names: Sequence[str]) -> str:
    return " and ".join(map(shorten, names))


def read_labelled_texts(path: Path, columns: str = "") -> LabelledSet:
    """Return the labelled texts of a file or folder that `table_rows` can read, with text version "own".

    Classes are names or numbers, numbered from 0 in sorted order. A column split, where there is one, holds train and test,
    perhaps dev; without it all texts are one split. columns: as `read_columns` takes them. The set's task is the file's
    name, never a path; its id is a digest of texts, splits and class numbers. Raises DataError naming file and line.
    """
    source, warnings = open_source(path, splits=True), list[str]()
    texts, labels, splits = list[str](), list[str](), list[str]()
    for location, row in table_rows(source, TEXTS, warnings, read_columns(columns, TEXTS)):
        texts.append(row["text"])
        labels.append(label_text(row["label"], location))
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
    in_order = sorted(set(labels), key=float) if all(map(is_number, set(labels))) else sorted(set(labels))
    numbers = {name: number for number, name in enumerate(in_order)}
    _check(path, labels, splits)
    return named_by_content(LabelledSet(
        id="", task=source.name, text_version="own", origin=source.origin, warnings=tuple(warnings), first=tuple(texts),
        labels=np.array([numbers[label] for label in labels], dtype=np.int64), splits=tuple(splits),
    ))


def _check(path: Path, labels: Sequence[str], splits: Sequence[str]) -> None:
    """Raise DataError where a classifier cannot be trained and tested on these labels and splits."""
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


def read_triplets(path: Path, columns: str = "") -> TripletSet:
    """Return the triplets of a file or folder that `table_rows` can read, with text version "own".

    columns: as `read_columns` takes them. The set's task is the file's name, never a path; its id is a digest of the
    triplets. A row may have several negatives, in numbered columns. Raises DataError naming file and line.
    """
    source, warnings, further = open_source(path), list[str](), list[tuple[str, ...]]()
    anchor, positive, negative, subsets = list[str](), list[str](), list[str](), list[str]()
    for location, row in table_rows(source, TRIPLETS, warnings, read_columns(columns, TRIPLETS)):
        further.append(tuple(text for column, text in row.items() if column.startswith("negative ")))
        if row["positive"] in (row["negative"], *further[-1]):
            raise DataError(f"{location}: positive and negative are one text: neither can be nearer")
        for texts, column in ((anchor, "anchor"), (positive, "positive"), (negative, "negative")):
            texts.append(row[column])
        subsets.append(row.get(SUBSET, ALL))
    if not anchor:
        raise DataError(f"{path} holds no triplet")
    return named_by_content(TripletSet(
        id="", task=source.name, text_version="own", origin=source.origin, warnings=tuple(warnings), anchor=tuple(anchor),
        positive=tuple(positive), negative=tuple(negative), subsets=tuple(subsets), further=tuple(further),
    ))
