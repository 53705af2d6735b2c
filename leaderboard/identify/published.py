"""Search of the published tables for rows that contain given numbers, with the protocol of each row."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stsbench.display.table import Document, Table
from stsbench.display.tabular import Tabular, arrow_table
from stsbench.errors import StsbenchError
from stsbench.leaderboard.records.publications import EPSILON, PublishedRow, load_publications

if TYPE_CHECKING:
    import pyarrow as pa

_NUMBER = re.compile(r"(?:([^\s=,;|&]+)=)?(-?\d+(?:\.\d+)?)(?=[\s,;|&]|$)")
_COLUMNS = ("row", "method", "where", "protocol", "aggregation", "metric", "split", "copied_from")


@dataclass(frozen=True, repr=False)
class PublishedMatches(Tabular):
    """The published rows that contain all of the given numbers. rows: column -> value; `row` is the row's id."""

    numbers: str
    rows: Sequence[dict[str, Any]]

    def __repr__(self) -> str:
        return f"<PublishedMatches of {self.numbers}: {len(self.rows)} rows; print it>"

    def to_arrow(self) -> pa.Table:
        """Return a table with a row for each published row."""
        return arrow_table(self.rows)

    def document(self) -> Document:
        """Return the table of rows, and the command that shows how the first is reproduced."""
        cells = [[str(row[column] or "") for column in _COLUMNS] for row in self.rows]
        below = [f"stsbench reproduce {row['row']} prints its recipe and command" for row in self.rows[:1]]
        table = Table.from_rows(f"{self.numbers} was printed in", [column.replace("_", " ") for column in _COLUMNS], cells)
        return Document([table], below=[*below, "with --model: which protocol gives these numbers with a model"])


def published_matches(numbers: str) -> PublishedMatches:
    """Return the published rows that contain all of these numbers, such as 76.25 or STS-B=76.25, with as many decimals.
    Raises StsbenchError for a text without numbers, and where no row contains them."""
    wanted = [(name or None, text) for name, text in _NUMBER.findall(numbers)]
    if not wanted:
        raise StsbenchError(f"'{numbers}' holds no number: write 76.25, or STS-B=76.25,SICK-R=72.23")
    rows = []
    for publication in load_publications():
        for row in publication.rows:
            matching = [_column(row, name, text) for name, text in wanted]
            if all(matching):
                heading = row.heading
                rows.append({
                    "row": row.id, "paper": f"{heading.paper.authors} {heading.paper.year or ''}".strip(),
                    "readme": heading.paper.year is None, "method": row.method, "backbone": row.backbone,
                    "where": ", ".join(dict.fromkeys(map(str, matching))), "protocol": heading.protocol,
                    "aggregation": heading.aggregation, "metric": heading.metric, "split": heading.split,
                    "copied_from": row.copied_from,
                })
    if not rows:
        raise StsbenchError(f"no published row that is held here has {numbers}: with --model it is looked for among the "
                            "settings of a model's scores")
    # Original rows come before copies, and averages before scores of single tasks.
    return PublishedMatches(numbers, sorted(rows, key=lambda row: (
        row["copied_from"] is not None, "Avg" not in row["where"], row["readme"], row["row"]
    )))


def _column(row: PublishedRow, name: str | None, text: str) -> str | None:
    """Return the column in which a row prints a number with the same decimals; None for none."""
    decimals = len(text.partition(".")[2])
    columns = [*zip(row.heading.columns, row.scores, strict=True), ("Avg", row.average)]
    return next((column for column, score in columns
                 if score is not None and decimals == row.printed_decimals and abs(score - float(text)) < EPSILON
                 and (name is None or name.lower() == column.lower())), None)
