"""The texts that a post-processing is fitted on: sentences, or pairs of them, in memory or in a file of any size."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol, overload

from stsbench.data.own.texts import checked_texts
from stsbench.data.text.rows import VALUES
from stsbench.data.text.store import TextStore, open_store
from stsbench.errors import DataError


class FitTexts(Protocol):
    """n items of one text, or of the two of a pair; duplicates stay."""

    name: str  # id@digest
    sides: int  # texts of an item
    items: int  # n

    def side(self, side: int, rows: Sequence[int]) -> list[str]:
        """One text of each of these items."""


class ListedTexts(Sequence[str]):
    """Texts in memory: all first sides, then all second ones."""

    def __init__(self, columns: Sequence[Sequence[str]], name: str) -> None:
        self.columns, self.name = columns, name
        self.sides, self.items = len(columns), len(columns[0])
        self._all = [text for column in columns for text in column]

    def side(self, side: int, rows: Sequence[int]) -> list[str]:
        """One text of each of these items."""
        return [self.columns[side][row] for row in rows]

    def __len__(self) -> int:
        return len(self._all)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        return self._all[index]


class StoredTexts:
    """The text columns of a file; a label or a score is not a text."""

    def __init__(self, store: TextStore) -> None:
        self._store, self._roles = store, [role for role in store.roles if role not in VALUES]
        self.name, self.sides, self.items = f"{store.path.name}@{store.digest}", len(self._roles), len(store)

    def side(self, side: int, rows: Sequence[int]) -> list[str]:
        """One text of each of these items."""
        return self._store.texts(self._roles[side], rows)


def listed_texts(texts: Iterable[str]) -> ListedTexts:
    """Texts in memory as those of a file, a sentence a line: blank ones are left out. DataError: one is not a str."""
    kept = [text for text in checked_texts(texts, "text") if text.strip()]
    if not kept:
        raise DataError("there is no text to fit on")
    return ListedTexts([kept], f"texts@{hashlib.sha256(chr(10).join(kept).encode()).hexdigest()}")


def read_texts(file: Path, log: Callable[[str], None] | None = None) -> StoredTexts:
    """A sentence a line (.txt), or every text of each row of a table (.csv, .tsv, .jsonl): of NLI both sentences.

    Blank rows are left out, duplicates stay. DataError, one line: not readable, or a table whose columns are not known.
    """
    try:
        store = open_store(file, drop_blank=True, log=log)
    except DataError as error:
        reason = str(error)
        if "data.columns" not in reason and "data.format" not in reason:
            raise
        raise DataError(
            f"{file}: cannot tell which columns are texts; it must be .txt, a sentence a line, or .csv, .tsv or .jsonl "
            "with the columns premise and hypothesis, sent0 and sent1, anchor and positive, or sentence"
        ) from error
    if log and (doubt := store.doubt()):
        log(doubt)
    return StoredTexts(store)
