"""A user's own labelled pairs: two columns of sentences, one that says whether they match, and perhaps one of subsets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stsbench.config import shown
from stsbench.data.own.scored_pairs import ALL, SENTENCES, SUBSET
from stsbench.data.own.source import source_of
from stsbench.data.own.table import Form, is_number, read_columns, table_rows
from stsbench.data.sets.sets import PairSet, named_by_content
from stsbench.errors import DataError

LABELLED = Form(
    what="labelled pairs", texts=("sentence1", "sentence2"), text_names=SENTENCES, value="label", numeric=True,
    optional=SUBSET,
    value_names=("label", "labels", "isduplicate", "duplicate", "isparaphrase", "match", "ismatch", "target", "class",
                 "gold", "score"),
    usual="sentence1, sentence2, label; or text1, text2, match; question1, question2, is_duplicate and the like",
)
# Names that say by themselves which of two labels means a match.
_PLAIN = (("true", "false"), ("yes", "no"), ("t", "f"), ("y", "n"))


def read_labelled_pairs(path: Path, columns: str = "", positive: str = "") -> PairSet:
    """The pairs of a file or folder as `table_rows` reads them: gold 1.0 where they match, else 0.0; text version "own".

    Labels are 0 and 1, true and false, or two names, of which `positive` means a match. columns: as `read_columns` takes
    them. Its task is the file's name, never a path, its id a digest of the pairs. Raises DataError naming file and line.
    """
    source, warnings = source_of(path), list[str]()
    first, second, labels, subsets, met = list[str](), list[str](), list[str](), list[str](), dict[str, str]()
    for location, row in table_rows(source, LABELLED, warnings, read_columns(columns, LABELLED)):
        first.append(row["sentence1"])
        second.append(row["sentence2"])
        subsets.append(row.get(SUBSET, ALL))
        labels.append(label_of(row["label"], location))
        met.setdefault(labels[-1], location)
    if not labels:
        raise DataError(f"{path} holds no pair")
    return named_by_content(PairSet(
        id="", task=source.name, text_version="own", origin=source.origin, warnings=tuple(warnings), first=tuple(first),
        second=tuple(second), gold=_matches(labels, met, positive, path), subsets=tuple(subsets),
    ))


def label_of(value: Any, location: str) -> str:
    """A label as a text: 1, 1.0 and "1" are one label, as are true and "true". Raises DataError, with `location`."""
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
        wrong = "label is empty" if empty else f"{shown(value)} is not a label"
        raise DataError(f"{location}: {wrong}: write a name, a number, true or false")
    # Every digit counts: two classes may be called 1000001 and 1000002.
    whole = number == number.to_integral_value()
    return str(int(number)) if whole else format(number.normalize(Context(prec=400)), "f")


def _matches(labels: Sequence[str], met: Mapping[str, str], positive: str, path: Path) -> NDArray[np.float64]:
    """float64 (n,), 1 for the label that means a match. met: label -> where it was first met."""
    names = list(met)
    if len(names) > 2:
        wanted = "write 0 and 1, or measure scores by sts:FILE"
        raise DataError(f"{met[names[2]]}: a third label, {shown(names[2])}, beside {_listed(names[:2])}: {wanted}")
    if len(names) == 1:
        raise DataError(f"{path}: every pair has the label {names[0]!r}: pairs of both kinds are needed")
    matching = _positive(names, positive, path)
    return np.array([label == matching for label in labels], dtype=np.float64)


def _positive(names: Sequence[str], positive: str, path: Path) -> str:
    if positive:
        if positive not in names:
            raise DataError(f"{path}: no pair has the label {positive!r} (there are {_listed(names)}): see pairs.positive")
        return positive
    if set(names) == {"0", "1"}:
        return "1"
    lower = {name.lower(): name for name in names}
    for match, other in _PLAIN:
        if set(lower) == {match, other}:
            return lower[match]
    raise DataError(
        f"{path}: the labels are {_listed(names)}: write 1 for pairs that match and 0 for the others, or say to `stsbench "
        f"eval` which means a match: --set 'pairs.positive=\"{names[0]}\"'"
    )


def _listed(names: Sequence[str]) -> str:
    return " and ".join(map(shown, names))
