"""Readers of SentEval's classification files: MR, CR, SUBJ, MPQA, SST2, TREC, MRPC and SICK's entailment labels.

Every fault is a DataError that names `file:line`. Items stay in file order; nothing is sorted or de-duplicated.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from stsbench.data.sets.readers import lines_of, pair_of, sick_cells
from stsbench.errors import DataError

BINARY = {"0": 0, "1": 1}
TREC_CLASSES = {"ABBR": 0, "DESC": 1, "ENTY": 2, "HUM": 3, "LOC": 4, "NUM": 5}
ENTAILMENT = {"CONTRADICTION": 0, "NEUTRAL": 1, "ENTAILMENT": 2}


@dataclass
class Items:
    """Labelled texts while they are being read: lists of one length n, `second` empty unless the items are pairs."""

    first: list[str] = field(default_factory=list)
    second: list[str] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    splits: list[str] = field(default_factory=list)

    def add(self, texts: Iterable[str], label: int, split: str) -> None:
        """Append one text, or one pair of texts."""
        for column, text in zip((self.first, self.second), texts, strict=False):
            column.append(text)
        self.labels.append(label)
        self.splits.append(split)

    def extend(self, other: Items) -> None:
        """Append another file's items."""
        self.first += other.first
        self.second += other.second
        self.labels += other.labels
        self.splits += other.splits


def read_class(path: Path, label: int) -> Items:
    """MR, CR, SUBJ, MPQA: one file per class, one text per line, Latin-1. A line without words is the item ""."""
    items = Items()
    for line in lines_of(path, "latin-1"):
        items.add([" ".join(line.split())], label, "all")  # CR and MPQA hold seven such lines, and SentEval counts them
    return items


def read_sst(path: Path, split: str) -> Items:
    """One split of SST2: text, tab, label 0 or 1; no header."""
    items = Items()
    for number, line in enumerate(lines_of(path), start=1):
        cells = line.strip().split("\t")
        if len(cells) != 2:
            raise DataError(f"{path}:{number}: expected a text and a label with one tab between, "
                            f"found {len(cells)} columns")
        items.add([_text(cells[0], path, number)], _label(cells[1], BINARY, path, number), split)
    return items


def read_trec(path: Path, split: str) -> Items:
    """One split of TREC, Latin-1: `COARSE:fine question`. The six coarse classes are the labels."""
    items = Items()
    for number, line in enumerate(lines_of(path, "latin-1"), start=1):
        label, colon, rest = line.strip().partition(":")
        if not colon:
            raise DataError(f"{path}:{number}: expected `CLASS:subclass question`, found no colon")
        question = _text(rest.partition(" ")[2], path, number)
        items.add([question], _label(label, TREC_CLASSES, path, number), split)
    return items


def read_mrpc(path: Path, split: str) -> Items:
    """One split of MRPC: a header line (after a byte order mark), then label 0 or 1, two ids, two texts."""
    items = Items()
    for number, line in enumerate(lines_of(path), start=1):
        cells = line.strip().split("\t")
        if number == 1:
            if cells[0] != "Quality":
                raise DataError(f"{path}:1: expected MRPC's header line starting with Quality, found {cells[0][:40]!r}")
            continue
        if len(cells) != 5:
            raise DataError(f"{path}:{number}: expected 5 tab-separated columns, found {len(cells)}")
        items.add(pair_of(cells[3], cells[4], path, number), _label(cells[0], BINARY, path, number), split)
    return items


def read_sick_entailment(path: Path, split: str) -> Items:
    """One SICK file: sentence A, sentence B and the entailment label in the fifth column (CONTRADICTION 0 to 2)."""
    items = Items()
    for number, cells in sick_cells(path):
        items.add(pair_of(cells[1], cells[2], path, number), _label(cells[4], ENTAILMENT, path, number), split)
    return items


def _text(text: str, path: Path, number: int) -> str:
    words = " ".join(text.split())
    if not words:
        raise DataError(f"{path}:{number}: the text is empty")
    return words


def _label(text: str, known: dict[str, int], path: Path, number: int) -> int:
    if text not in known:
        raise DataError(f"{path}:{number}: the label {text[:40]!r} is not one of {', '.join(known)}")
    return known[text]
