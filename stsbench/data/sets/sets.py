"""The frozen data a protocol measures on, with an identity made of id, text version and content digest."""

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

ON_HUB = "hf:"  # begins what a user calls a dataset of the Hub
BLANK = "."  # what SentEval's encoders are fed for a line without words (CR and MPQA hold seven)


KeyT = TypeVar("KeyT", bound=Hashable)


def path_name(path: Path) -> str:
    """Return what a user's file or folder is called, without the path to it; a link keeps its own name, a dataset of the
    Hub its whole one."""
    if path.as_posix().startswith(ON_HUB):
        return path.as_posix()
    return path.name if path.name not in ("", "..") else path.resolve().name


def numbered(names: Sequence[KeyT]) -> tuple[list[KeyT], NDArray[np.int64]]:
    """Return the distinct ones of n names in order of first appearance, and int64 (n,), the number of each in that order."""
    at = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return list(at), np.array([at[name] for name in names], dtype=np.int64)


@dataclass(frozen=True)
class DataSet(ABC):
    """What every kind of set has."""

    id: str  # "sts12/test"; "own:" and a digest of the items for a user's files
    task: str  # "STS12", or what a user's file is called
    text_version: str  # "senteval", "raw", "sample" or "own" (a user's files)
    origin: str = field(default="", kw_only=True)  # where it was read from: a folder, "user cache", "sample"
    known: bool = field(default=True, kw_only=True)  # False: a file's digest differs from the catalog's
    warnings: tuple[str, ...] = field(default=(), kw_only=True)

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of items."""

    @property
    def shown(self) -> str:
        """Return what messages call it."""
        return f"own:{self.task}" if self.id.startswith("own:") else self.id

    @cached_property
    def items(self) -> NDArray[np.int64]:
        """Return int64 (n,), the number of each row's item: of a user's own set equal rows are one item, whatever their
        scores or labels; of any other set each row is one."""
        return numbered(list(self.keys()))[1] if self.id.startswith("own:") else np.arange(len(self), dtype=np.int64)

    def keys(self) -> Iterable[Hashable]:
        """Yield what two equal rows have in common; here every row is another."""
        return range(len(self))

    @property
    @abstractmethod
    def texts(self) -> tuple[str, ...]:
        """Return distinct texts to encode, in order of appearance."""

    @property
    @abstractmethod
    def counts(self) -> dict[str, int]:
        """Return items by subset or split."""

    @abstractmethod
    def rows(self) -> Iterable[Any]:
        """Return every item as a JSON value, in order: what the digest is taken over."""

    @property
    def digest(self) -> str:
        """Return sha256 over id, text version and every item: equal exactly when the data are."""
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
        """Yield the two texts of each pair, in either order."""
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
        """Yield each text, or the two of a pair, in either order."""
        return (tuple(sorted(pair)) for pair in zip(self.first, self.second or self.first, strict=True))


@dataclass(frozen=True)
class RetrievalSet(DataSet):
    """Queries, a corpus, and which corpus texts are relevant.

    queries, corpus: q and c texts; relevant: q tuples of corpus positions (at least one each), -1 for a text that is not in
    the corpus and so is never found; hidden: q tuples of the corpus positions of the query itself, never counted as
    retrieved; grades: how relevant each text of `relevant` is, above 0, () where all are 1; notes: lines on how it was read,
    for the record.
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
    """Texts that are nearer to one text than to another.

    anchor, positive, negative: n texts each; subsets: n names (one throughout where the set has no parts); further: of each
    row the negatives behind the first, () where there are none.
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
        """Yield each anchor with its two texts, in either order: which of them is nearer is its label."""
        columns = zip(self.anchor, self.positive, self.negative, self.further or repeat(()), strict=False)
        return ((one, *sorted((*others, *further))) for one, *others, further in columns)


def named_by_content(data: DataSetT) -> DataSetT:
    """Return a user's set with the digest of its rows as id: equal data are one set, whatever the files are called. Its
    first warning says how many items its rows are, where these are fewer."""
    sha = hashlib.sha256()
    for row in data.rows():
        sha.update(json.dumps(row, ensure_ascii=False).encode() + b"\n")
    data = replace(data, id=f"own:{sha.hexdigest()[:16]}")
    line = repeated_in_words(data.task, len(data), int(data.items.max(initial=-1)) + 1)
    return replace(data, warnings=(*filter(None, [line]), *data.warnings))


def repeated_in_words(task: str, rows: int, items: int) -> str:
    """Return a line on a user's set whose rows repeat; "" where none does."""
    counted_once = "scores are of all rows, and one that is repeated counts once in n, intervals, tests and folds"
    return f"{rows:,} rows of {task} are {counted(items, 'different item')}; {counted_once}" if items < rows else ""


def fed(texts: Sequence[str]) -> list[str]:
    """Return the texts as an encoder gets them: a line without words becomes a full stop."""
    return [text or BLANK for text in texts]
