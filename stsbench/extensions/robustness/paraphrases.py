"""A user's own paraphrases: a text, one that means the same, and one that means something else."""

from __future__ import annotations

from pathlib import Path

from stsbench.data.own.sets import ALL, SUBSET
from stsbench.data.own.source import source_of
from stsbench.data.own.table import Form, read_columns, table_rows
from stsbench.data.sets.sets import TripletSet, named_by_content
from stsbench.errors import DataError

PARAPHRASES = Form(
    what="paraphrases", texts=("text", "kept", "changed"), optional=SUBSET,
    text_names=(("text", "paraphrase", "changed"), ("sentence", "kept", "changed"), ("sentence", "paraphrase", "changed"),
                ("text", "same", "different"), ("anchor", "positive", "negative")),
    usual="text, kept, changed; or text, paraphrase, changed; anchor, positive, negative",
)


def read_paraphrases(path: Path, columns: str = "") -> TripletSet:
    """The texts of a file or folder as `table_rows` reads them, as anchor, kept as positive, changed as negative.

    columns: as `read_columns` takes them. Its text version is "own", its task the file's name, never a path, its id a digest
    of the texts. Raises DataError naming file and line.
    """
    source, warnings = source_of(path), list[str]()
    rows = list(table_rows(source, PARAPHRASES, warnings, read_columns(columns, PARAPHRASES)))
    for location, row in rows:
        for one, other in (("kept", "text"), ("changed", "text"), ("kept", "changed")):
            if row[one] == row[other]:
                raise DataError(f"{location}: {one} and {other} are one text: write another one, or leave the row out")
    if not rows:
        raise DataError(f"{path} holds no paraphrase")
    text, kept, changed = (tuple(row[column] for _, row in rows) for column in PARAPHRASES.texts)
    return named_by_content(TripletSet(
        id="", task=source.name, text_version="own", origin=source.origin, warnings=tuple(warnings), anchor=text,
        positive=kept, negative=changed, subsets=tuple(row.get(SUBSET, ALL) for _, row in rows),
    ))
