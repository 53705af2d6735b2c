"""The base class of post-processings: maps from vectors to vectors, fitted on sentence vectors without labels.

To add one, this file is all you need: derive from Post, describe the settings by an Options, write `fit`, `transform`,
`state` and `restore`, and register the class under its name in the entry points `stsbench.post`. Then
`stsbench eval --post NAME:SETTING=VALUE --fit-on target` fits it, and `stsbench fit NAME` writes a model with it.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict

from stsbench.config import validate
from stsbench.encoders.base import TokenTable
from stsbench.errors import StsbenchError
from stsbench.registry import did_you_mean
from stsbench.settings import Settings

Vectors = NDArray[Any]  # (n, d), float32 or float64
State = dict[str, NDArray[Any]]
Map = tuple[NDArray[np.float64], NDArray[np.float64]]  # mean (d,), kernel (d, k)


class PostOptions(Settings):
    """The settings of one post-processing, each made by `stsbench.settings.setting`; they are part of the fingerprint."""

    # settings added later are left out at their defaults, so that the names and digests of earlier fits stay valid
    later: ClassVar[tuple[str, ...]] = ()
    model_config = ConfigDict(validate_default=True)


class VectorSource(Protocol):
    """The vectors that a post-processing is fitted on, computed as they are asked for and never all in memory.

    An item is one sentence, or the two of a pair. Every pass gives the same vectors.
    """

    @property
    def sides(self) -> int:
        """Return the number of vectors of an item: 2 where the texts are pairs, else 1."""

    @property
    def name(self) -> str:
        """Return id@digest of the texts, for messages."""

    def __len__(self) -> int:
        """Return the number of vectors: items times sides. Duplicates count."""

    def blocks(self) -> Iterator[NDArray[np.float32]]:
        """Return float32 (m, d) blocks of all vectors: those of the first sides, then of the second, each in the texts'
        order."""

    def shuffled(self, batch_size: int, rng: np.random.Generator) -> Iterator[NDArray[np.float32]]:
        """Return one pass over all items in random order: float32 (m, sides, d), m = batch_size but for the last."""

    def with_dropout(self, seed: int) -> VectorSource:
        """Return a source of the same texts, encoded with dropout: every pass draws other masks.
        StsbenchError, one line: the encoder has no dropout, or none that could be switched on."""


class Post(ABC):
    """A map from vectors (n, d) to vectors (n, k), as scikit-learn has it: fit, then transform.

    A subclass sets `name` and `Options`, and reads `self.options`. Row i of a result depends on row i alone.
    """

    name: ClassVar[str]
    Options: ClassVar[type[PostOptions]] = PostOptions
    source: ClassVar[str] = ""  # the paper
    options: Any  # an instance of Options
    notes: tuple[str, ...] = ()  # what fitting found that a user should know, a line each

    def __init__(self, settings: Mapping[str, Any] | None = None) -> None:
        """Set up an unfitted map. settings: by name, others at their defaults. StsbenchError, one line: unknown or wrong."""
        fields = self.Options.model_fields
        for key in settings or {}:
            if key not in fields:
                hint = did_you_mean(key, fields) if fields else "; it has no settings"
                raise StsbenchError(f"{self.name} has no setting '{key}'{hint}")
        self.options = validate(self.Options, settings or {}, self.name)

    @abstractmethod
    def fit(self, source: VectorSource) -> Self:
        """Return this object, fitted. StsbenchError, one line that names the source: its vectors do not suffice."""

    @abstractmethod
    def transform(self, vectors: Vectors) -> Vectors:
        """Return (n, k) of (n, d): float64 if the map is computed in it, else float32. Only after `fit` or `restore`."""

    @abstractmethod
    def dimension(self, d: int) -> int:
        """Return k, the width of what `transform` gives for vectors of width d, fitted or not. StsbenchError: there is
        none."""

    @abstractmethod
    def state(self) -> State:
        """Return what fitting found, as numpy arrays by name; with the settings it is all that `transform` depends on."""

    @abstractmethod
    def restore(self, state: State) -> Self:
        """Return this object with such a state, as if it had been fitted."""

    def affine(self) -> Map | None:
        """Return mean and kernel where the fitted map is (x - mean) @ kernel and nothing else; None for any other."""
        return None

    def settings(self) -> dict[str, Any]:
        """Return all settings by name as JSON values, except those of `later` that are at their defaults."""
        values: dict[str, Any] = self.options.model_dump(mode="json")
        fields = self.Options.model_fields
        return {name: value for name, value in values.items()
                if name not in self.Options.later or getattr(self.options, name) != fields[name].default}

    def unfitted(self) -> Self:
        """Return an unfitted post-processing with the same settings."""
        return type(self)(self.settings())

    def digest(self) -> str:
        """Return sha256 over name, settings and state: fitted maps of equal digests give equal vectors."""
        sha = hashlib.sha256(json.dumps([self.name, self.settings()], sort_keys=True).encode())
        for name, array in sorted(self.state().items()):
            little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
            sha.update(json.dumps([name, little.dtype.str, little.shape]).encode())
            sha.update(little.tobytes())
        return sha.hexdigest()


class FromWeights(Post):
    """A post-processing that the model's own weights determine: no text is read, and nothing is fitted on vectors.

    A subclass writes `fit_table` in the place of `fit`. Its setting `table` says which table it is made from.
    """

    made_of: str | None = None  # NAME@DIGEST of the table, once `fit_table` has been called

    @abstractmethod
    def fit_table(self, table: TokenTable) -> Self:
        """Return this object, made from a table of token vectors. StsbenchError, one line: it does not suit."""

    def fit(self, source: VectorSource) -> Self:
        """Return this object: it does not depend on vectors."""
        return self

    def unfitted(self) -> Self:
        """Return this object: it would be the same if fitted on other texts."""
        return self


def unit(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return (n, d) rows of length 1; a row of zeros stays as it is."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(lengths > 0, lengths, 1.0)
