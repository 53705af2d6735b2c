"""Post-processing by an affine map, x -> (x - mean) @ kernel, which mean and covariance of the vectors determine."""

from __future__ import annotations

from abc import abstractmethod
from typing import Self

import numpy as np
from numpy.typing import NDArray

from stsbench.encoders.post.base import Map as Map
from stsbench.encoders.post.base import Post, State, Vectors, VectorSource
from stsbench.encoders.post.moments import Moments, moments


class Affine(Post):
    """A subclass writes `solve`. Fitted, it has `mean`, float64 (d,), and `kernel`, float64 (d, k)."""

    mean: NDArray[np.float64]
    kernel: NDArray[np.float64]

    @abstractmethod
    def solve(self, stats: Moments, name: str) -> Map:
        """The map for vectors of these moments. StsbenchError, beginning with `name`: they do not determine it."""

    def fit(self, source: VectorSource) -> Self:
        return self.fit_moments(moments(source.blocks(), source.name), source.name.partition("@")[0])

    def fit_moments(self, stats: Moments, name: str) -> Self:
        """This object, fitted on vectors of these moments."""
        self.dimension(stats.width)
        self.mean, self.kernel = self.solve(stats, name)
        return self

    def transform(self, vectors: Vectors) -> Vectors:
        return (np.asarray(vectors, dtype=np.float64) - self.mean) @ self.kernel

    def affine(self) -> Map | None:
        return self.mean, self.kernel

    def state(self) -> State:
        return {"mean": self.mean, "kernel": self.kernel}

    def restore(self, state: State) -> Self:
        self.mean, self.kernel = (np.asarray(state[name], dtype=np.float64) for name in ("mean", "kernel"))
        return self


def principal(stats: Moments) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Variances (d,), descending and divided by n, and the unit directions they are along, the columns of (d, d).

    A direction is known up to its sign: here its largest component is positive.
    """
    variances, directions = np.linalg.eigh(stats.covariance("n"))
    variances, directions = variances[::-1], directions[:, ::-1]
    largest = np.abs(directions).argmax(axis=0)
    signs = np.sign(directions[largest, np.arange(stats.width)])
    return variances, np.ascontiguousarray(directions * signs)


def rank(stats: Moments, variances: NDArray[np.float64]) -> int:
    """How many directions have a variance beyond rounding, at most n - 1."""
    return min(int((variances > stats.negligible()).sum()), stats.n - 1)
