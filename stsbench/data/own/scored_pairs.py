"""A user's own scored sentence pairs: a table with two columns of sentences, one of scores, and perhaps one of subsets."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from stsbench.config import shown
from stsbench.data.own.source import source_of
from stsbench.data.own.table import Form, read_columns, table_rows
from stsbench.data.sets.readers import number_of
from stsbench.data.sets.sets import PairSet, named_by_content
from stsbench.errors import DataError

SUBSET = "subset"
_NOT_FINITE = ("nan", "inf", "infinity")
ALL = "all"  # the one subset of items without subsets
# What else two columns of sentences are called.
SENTENCES = tuple((f"{word}{one}", f"{word}{other}") for word in ("sentence", "sent", "text", "s", "question", "q")
                  for one, other in (("1", "2"), ("a", "b"), ("0", "1")))
SCORED = Form(
    what="own pairs", texts=("sentence1", "sentence2"), text_names=SENTENCES, value="score", numeric=True, optional=SUBSET,
    value_names=("score", "similarity", "similarityscore", "goldscore", "gold", "relatedness", "relatednessscore", "rating",
                 "label"),
    usual="sentence1, sentence2, score; or text1, text2, label; sent_1, sent_2, similarity and the like",
)


def read_scored_pairs(path: Path, columns: str = "") -> PairSet:
    """The pairs of a .csv, .tsv, .jsonl or .parquet file, or of a folder that `datasets` saved, with text version "own".

    Its task is the file's name, never a path, its id a digest of the pairs. Texts are taken as they stand, without white
    space around them; scores are finite numbers in any unit, the higher the more alike. Without a column subset the pairs
    are one set. columns: as `read_columns` takes them. What was not as in SCORED (delimiter, names, no header) is among the
    warnings. Raises DataError naming file and line.
    """
    source, warnings = source_of(path), list[str]()
    first, second, gold, subsets = list[str](), list[str](), list[float](), list[str]()
    for location, row in table_rows(source, SCORED, warnings, read_columns(columns, SCORED)):
        first.append(row["sentence1"])
        second.append(row["sentence2"])
        subsets.append(row.get(SUBSET, ALL))
        score = row["score"]
        if isinstance(score, str) and score.strip().isalpha() and score.strip().lower() not in _NOT_FINITE:
            wrong = f"the score {shown(score)} is not a number"
            raise DataError(f"{location}: {wrong}: pairs with labels are measured by pairs:FILE")
        if not math.isfinite(value := number_of(score, location)):
            raise DataError(f"{location}: the score {shown(score)} is not a finite number: correct it or leave the row out")
        gold.append(value)
    if not gold:
        raise DataError(f"{path} holds no pair")
    return named_by_content(PairSet(
        id="", task=source.name, text_version="own", origin=source.origin, warnings=tuple(warnings), first=tuple(first),
        second=tuple(second), gold=np.array(gold), subsets=tuple(subsets),
    ))
