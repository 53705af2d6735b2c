"""The frozen data a protocol measures on, with an identity made of id, text view and content digest."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class PairSet:
    """Scored sentence pairs.

    first, second: n texts each; gold: float64 (n,) in the set's own units (0-5 for STS, 1-5 for SICK-R);
    subsets: n names (one name throughout for STS-B and SICK-R). `order` keeps the subsets' official order.
    """

    id: str  # "sts12/test"
    task: str  # "STS12"
    view: str  # "senteval", "raw" or "sample"
    first: tuple[str, ...]
    second: tuple[str, ...]
    gold: NDArray[np.float64]
    subsets: tuple[str, ...]
    origin: str = ""  # where it was read from: a folder, "user cache", "sample"
    known: bool = True  # False: a file's digest differs from the catalog's
    warnings: tuple[str, ...] = field(default=())

    def __len__(self) -> int:
        return len(self.first)

    @property
    def order(self) -> tuple[str, ...]:
        """Subset names in the order of first appearance."""
        return tuple(dict.fromkeys(self.subsets))

    @property
    def texts(self) -> tuple[str, ...]:
        """Distinct texts in order of appearance."""
        return tuple(dict.fromkeys([*self.first, *self.second]))

    @property
    def digest(self) -> str:
        """sha256 over id, view and every (subset, first, second, gold): equal exactly when the data are."""
        sha = hashlib.sha256(json.dumps([self.id, self.view]).encode())
        for row in zip(self.subsets, self.first, self.second, self.gold.tolist(), strict=True):
            sha.update(json.dumps(row, ensure_ascii=False).encode() + b"\n")
        return sha.hexdigest()

    def keep(self, mask: NDArray[np.bool_]) -> PairSet:
        """The pairs where `mask` (n,) is true, as a set with its own digest."""
        chosen = np.flatnonzero(mask).tolist()
        return PairSet(
            id=self.id, task=self.task, view=self.view, origin=self.origin, known=self.known, warnings=self.warnings,
            first=tuple(self.first[i] for i in chosen), second=tuple(self.second[i] for i in chosen),
            gold=self.gold[chosen], subsets=tuple(self.subsets[i] for i in chosen),
        )


@dataclass(frozen=True)
class LabelledSet:
    """Classified texts: texts n, labels int64 (n,); `second` holds the other half where items are pairs (MRPC)."""

    id: str  # "mr", "sst2/train"
    task: str
    view: str
    texts: tuple[str, ...]
    labels: NDArray[np.int64]
    second: tuple[str, ...] = ()
    origin: str = ""
    known: bool = True

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True)
class Corpus:
    """Plain sentences, one an item."""

    id: str
    view: str
    texts: tuple[str, ...]
    origin: str = ""
    known: bool = True

    def __len__(self) -> int:
        return len(self.texts)
