"""Immutable data sets for protocols, identified by id, text version and digest: pairs, labelled texts, queries, triplets."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, repeat
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from stsbench.wording import counted

ON_HUB = "hf:"  # prefix by which users name a dataset of the Hub
BLANK = "."  # encoded in place of a line without words, as in SentEval (CR and MPQA hold seven)


KeyT = TypeVar("KeyT", bound=Hashable)


def path_name(path: Path) -> str:
    """Return the name of a user's file or folder without the path to it; for a link the link's own name, for a dataset of
    the Hub its full name."""
    if path.as_posix().startswith(ON_HUB):
        return path.as_posix()
    return path.name if path.name not in ("", "..") else path.resolve().name


def numbered(names: Sequence[KeyT]) -> tuple[list[KeyT], NDArray[np.int64]]:
    """Return the distinct names in order of first appearance, and int64 (n,), each name's index among them."""
    at = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return list(at), np.array([at[name] for name in names], dtype=np.int64)


@dataclass(frozen=True)
class DataSet(ABC):
    """Base class of all data sets."""

    id: str  # "sts12/test"; "own:" and a digest of the items for a user's files
    task: str  # "STS12", or the name of a user's file
    text_version: str  # "senteval", "raw", "sample" or "own" (a user's files)
    origin: str = field(default="", kw_only=True)  # source: a folder, "user cache" or "sample"
    known: bool = field(default=True, kw_only=True)  # whether all files have the catalog's digests
    warnings: tuple[str, ...] = field(default=(), kw_only=True)

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of items."""

    @property
    def shown(self) -> str:
        """Return the name of the set in messages."""
        return f"own:{self.task}" if self.id.startswith("own:") else self.id

    @cached_property
    def items(self) -> NDArray[np.int64]:
        """Return int64 (n,), the number of each row's item. In a user's own set rows with equal texts are one item, whatever
        their scores or labels; in any other set each row is an item."""
        return numbered(list(self.keys()))[1] if self.id.startswith("own:") else np.arange(len(self), dtype=np.int64)

    def keys(self) -> Iterable[Hashable]:
        """Yield a key for each row, equal for rows that are one item; by default all rows differ."""
        return range(len(self))

    @property
    @abstractmethod
    def texts(self) -> tuple[str, ...]:
        """Return the distinct texts to encode, in order of appearance."""

    @property
    @abstractmethod
    def counts(self) -> dict[str, int]:
        """Return the number of items by subset or split."""

    @abstractmethod
    def rows(self) -> Iterable[Any]:
        """Return every item as a JSON value, in order, for the digest."""

    @property
    def digest(self) -> str:
        """Return the sha256 of id, text version and all items, equal exactly when the data are."""
        sha = hashlib.sha256(json.dumps([self.id, self.text_version]).encode())
        for row in self.rows():
            sha.update(json.dumps(row, ensure_ascii=False).encode() + b"\n")
        return sha.hexdigest()


DataSetT = TypeVar("DataSetT", bound=DataSet)


@dataclass(frozen=True)
class PairSet(DataSet):
    """Scored sentence pairs.

    first, second: n texts each; gold: float64 (n,) in the set's own units (0-5 for STS, 1-5 for SICK-R);
    subsets: n names (one name throughout for STS-B and SICK-R; the splits' names where a set holds several splits).
    `order` keeps the subsets' official order.
    """

    first: tuple[str, ...]
    second: tuple[str, ...]
    gold: NDArray[np.float64]
    subsets: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.first)

    @property
    def order(self) -> tuple[str, ...]:
        """Return subset names in the order of first appearance."""
        return tuple(dict.fromkeys(self.subsets))

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys([*self.first, *self.second]))

    @property
    def counts(self) -> dict[str, int]:
        return dict(Counter(self.subsets))

    def rows(self) -> Iterable[Any]:
        return zip(self.subsets, self.first, self.second, self.gold.tolist(), strict=True)

    def keys(self) -> Iterable[Hashable]:
        """Yield the two texts of each pair in sorted order, as their order does not count."""
        return (tuple(sorted(pair)) for pair in zip(self.first, self.second, strict=True))

    def keep(self, mask: NDArray[np.bool_]) -> PairSet:
        """Return the pairs where `mask` (n,) is true, as a set with its own digest."""
        chosen = np.flatnonzero(mask).tolist()
        return PairSet(
            id=self.id, task=self.task, text_version=self.text_version, origin=self.origin, known=self.known,
            warnings=self.warnings,
            first=tuple(self.first[i] for i in chosen), second=tuple(self.second[i] for i in chosen),
            gold=self.gold[chosen], subsets=tuple(self.subsets[i] for i in chosen),
        )


@dataclass(frozen=True)
class LabelledSet(DataSet):
    """Classified texts, or classified pairs.

    first: n texts, "" for a line without words; second: n texts where items are pairs (MRPC, SICK-E), else ();
    labels: int64 (n,); splits: n names, "all" throughout or "train", "dev", "test".
    """

    first: tuple[str, ...]
    labels: NDArray[np.int64]
    splits: tuple[str, ...]
    second: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.first)

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(fed([*self.first, *self.second])))

    @property
    def counts(self) -> dict[str, int]:
        return dict(Counter(self.splits))

    def rows(self) -> Iterable[Any]:
        second = self.second or (None,) * len(self)
        return zip(self.splits, self.first, second, self.labels.tolist(), strict=True)

    def keys(self) -> Iterable[Hashable]:
        """Yield a key for each item, its text or the two texts of a pair in sorted order."""
        return (tuple(sorted(pair)) for pair in zip(self.first, self.second or self.first, strict=True))


@dataclass(frozen=True)
class RetrievalSet(DataSet):
    """Queries, a corpus, and the corpus texts that are relevant to each query.

    queries, corpus: q and c texts; relevant: q tuples of corpus positions (at least one each), -1 for a relevant text that
    is not in the corpus and so is never found; hidden: q tuples of corpus positions of the query itself, which do not count
    as retrieved; grades: the relevance of each text of `relevant`, above 0, () where all are 1; notes: lines on how the set
    was read, for the record.
    """

    queries: tuple[str, ...]
    corpus: tuple[str, ...]
    relevant: tuple[tuple[int, ...], ...]
    hidden: tuple[tuple[int, ...], ...]
    grades: tuple[tuple[float, ...], ...] = field(default=(), kw_only=True)
    notes: tuple[str, ...] = field(default=(), kw_only=True)

    def __len__(self) -> int:
        return len(self.queries)

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys([*self.queries, *self.corpus]))

    @property
    def counts(self) -> dict[str, int]:
        return {"queries": len(self.queries), "corpus": len(self.corpus)}

    def rows(self) -> Iterable[Any]:
        graded = (self.grades,) if self.grades else ()
        yield from zip(self.queries, self.relevant, self.hidden, *graded, strict=True)
        yield from self.corpus

    def keys(self) -> Iterable[Hashable]:
        """Yield the text of each query."""
        return self.queries


@dataclass(frozen=True)
class TripletSet(DataSet):
    """Triplets of texts, in which the anchor is closer to the positive than to the negative.

    anchor, positive, negative: n texts each; subsets: n names (one throughout where the set has no parts); further: for each
    row its negatives after the first, () where no row has any.
    """

    anchor: tuple[str, ...]
    positive: tuple[str, ...]
    negative: tuple[str, ...]
    subsets: tuple[str, ...]
    further: tuple[tuple[str, ...], ...] = ()

    def __len__(self) -> int:
        return len(self.anchor)

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys([*self.anchor, *self.positive, *self.negative, *chain(*self.further)]))

    @property
    def counts(self) -> dict[str, int]:
        return dict(Counter(self.subsets))

    def rows(self) -> Iterable[Any]:
        columns = zip(self.subsets, self.anchor, self.positive, self.negative, self.further or repeat(()), strict=False)
        return ((*row, *further) for *row, further in columns)

    def keys(self) -> Iterable[Hashable]:
        """Yield each anchor with its other texts in sorted order, as which of them is the positive is the label."""
        columns = zip(self.anchor, self.positive, self.negative, self.further or repeat(()), strict=False)
        return ((one, *sorted((*others, *further))) for one, *others, further in columns)


def named_by_content(data: DataSetT) -> DataSetT:
    """Return a user's set with a digest of its rows as id, so that equal data are one set, whatever the file's name. Where
    rows repeat, a first warning states the number of items."""
    sha = hashlib.sha256()
    for row in data.rows():
        sha.update(json.dumps(row, ensure_ascii=False).encode() + b"\n")
    data = replace(data, id=f"own:{sha.hexdigest()[:16]}")
    line = repeated_in_words(data.task, len(data), int(data.items.max(initial=-1)) + 1)
    return replace(data, warnings=(*filter(None, [line]), *data.warnings))


def repeated_in_words(task: str, rows: int, items: int) -> str:
    """Return a warning for a user's set in which rows repeat, else ""."""
    counted_once = "scores are of all rows, and one that is repeated counts once in n, intervals, tests and folds"
    return f"{rows:,} rows of {task} are {counted(items, 'different item')}; {counted_once}" if items < rows else ""


def fed(texts: Sequence[str]) -> list[str]:
    """Return the texts as an encoder gets them: an empty one becomes a full stop."""
    return [text or BLANK for text in texts]
