"""A user's own triplets: a text, one that is nearer to it, and one that is farther from it."""

from __future__ import annotations

from pathlib import Path

from stsbench.data.own.scored_pairs import ALL, SUBSET
from stsbench.data.own.source import source_of
from stsbench.data.own.table import Form, read_columns, table_rows
from stsbench.data.sets.sets import TripletSet, named_by_content
from stsbench.errors import DataError

TRIPLETS = Form(
    what="triplets", texts=("anchor", "positive", "negative"), optional=SUBSET,
    text_names=(("anchor", "positive", "negative"), ("query", "positive", "negative"), ("query", "pos", "neg"),
                ("sent0", "sent1", "hardneg"), ("sentence", "positive", "negative"),
                ("sentence1", "sentence2", "sentence3")),
    usual="anchor, positive, negative; or query, pos, neg; sent0, sent1, hard_neg",
)


def read_triplets(path: Path, columns: str = "") -> TripletSet:
    """The triplets of a file or folder as `table_rows` reads them, with text version "own".

    columns: as `read_columns` takes them. Its task is the file's name, never a path, its id a digest of the triplets.
    Raises DataError naming file and line.
    """
    source, warnings = source_of(path), list[str]()
    anchor, positive, negative, subsets = list[str](), list[str](), list[str](), list[str]()
    for location, row in table_rows(source, TRIPLETS, warnings, read_columns(columns, TRIPLETS)):
        if row["positive"] == row["negative"]:
            raise DataError(f"{location}: positive and negative are one text: neither can be nearer")
        for texts, column in ((anchor, "anchor"), (positive, "positive"), (negative, "negative")):
            texts.append(row[column])
        subsets.append(row.get(SUBSET, ALL))
    if not anchor:
        raise DataError(f"{path} holds no triplet")
    return named_by_content(TripletSet(
        id="", task=source.name, text_version="own", origin=source.origin, warnings=tuple(warnings), anchor=tuple(anchor),
        positive=tuple(positive), negative=tuple(negative), subsets=tuple(subsets),
    ))
