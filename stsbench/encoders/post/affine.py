"""Post-processings by an affine map, x -> (x - mean) @ kernel, which mean and covariance of the vectors determine; and
renormalisation, which takes the mean out of vectors of length 1.

Mean and covariance of any number of vectors come from one pass, in float64 and in memory for d x d numbers.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from stsbench.encoders.post.base import Map as Map
from stsbench.encoders.post.base import Post, PostOptions, State, Vectors, VectorSource, unit
from stsbench.errors import StsbenchError
from stsbench.settings import setting

_ROWS = 4096  # converted to float64 at a time
_SINGLE = float(np.finfo(np.float32).eps)
_DOUBLE = float(np.finfo(np.float64).eps)
_SHORTEST = 1e-6  # a shorter mean has no direction: float32 vectors of length 1 are rounded by less


@dataclass(frozen=True)
class Moments:
    """Moments of n vectors: mean float64 (d,), scatter float64 (d, d) = sum of (x - mean)(x - mean)'.

    rounding: float64 (d,), the variance that the rounding of float32 vectors may have put into each dimension.
    """

    n: int
    mean: NDArray[np.float64]
    scatter: NDArray[np.float64]
    rounding: NDArray[np.float64]

    @property
    def width(self) -> int:
        """Return d."""
        return len(self.mean)

    def covariance(self, divisor: str) -> NDArray[np.float64]:
        """Return the covariance, float64 (d, d). divisor: "n-1" or "n"."""
        return self.scatter / (self.n - 1 if divisor == "n-1" else self.n)

    def negligible(self) -> float:
        """Return the variance (divided by n) up to which a direction may be rounding: of the vectors, and of this sum."""
        return float(self.rounding.sum()) + self.width * _DOUBLE * float(np.trace(self.scatter)) / self.n

    def image(self, mean: NDArray[np.float64], kernel: NDArray[np.float64]) -> Moments:
        """Return the moments of (x - mean) @ kernel, without a second pass over x."""
        return Moments(
            self.n, (self.mean - mean) @ kernel, kernel.T @ self.scatter @ kernel, np.square(kernel).T @ self.rounding
        )


def moments(blocks: Iterable[NDArray[Any]], name: str) -> Moments:
    """Return the moments of all rows of `blocks`, (m, d) arrays of any float type; how rows are split affects rounding only.

    Blocks are merged by their deviations from their own means (Chan, Golub and LeVeque 1979), since sums of squares would
    cancel for vectors whose mean is far longer than their spread. Raises StsbenchError, beginning with `name`, for none.
    """
    n, mean, scatter = 0, np.zeros(0), np.zeros((0, 0))
    for block in blocks:
        for start in range(0, len(block), _ROWS):
            rows = np.asarray(block[start : start + _ROWS], dtype=np.float64)
            if not n:
                mean, scatter = np.zeros(rows.shape[1]), np.zeros((rows.shape[1], rows.shape[1]))
            center = rows.mean(axis=0)
            rows = rows - center
            shift = center - mean
            scatter += rows.T @ rows + np.outer(shift, shift) * (n * len(rows) / (n + len(rows)))
            mean += shift * (len(rows) / (n + len(rows)))
            n += len(rows)
    if not n:
        raise StsbenchError(f"{name}: no text to fit on")
    return Moments(n, mean, scatter, _SINGLE**2 * (np.diag(scatter) / n + np.square(mean)))


class Affine(Post):
    """An affine map; a subclass writes `solve`. Fitted, it has `mean`, float64 (d,), and `kernel`, float64 (d, k)."""

    mean: NDArray[np.float64]
    kernel: NDArray[np.float64]

    @abstractmethod
    def solve(self, stats: Moments, name: str) -> Map:
        """Return the map for vectors of these moments. StsbenchError, beginning with `name`: they do not determine it."""

    def fit(self, source: VectorSource) -> Self:
        return self.fit_moments(moments(source.blocks(), source.name), source.name.partition("@")[0])

    def fit_moments(self, stats: Moments, name: str) -> Self:
        """Return this object, fitted on vectors of these moments."""
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


def principal(matrix: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return eigenvalues (d,) of a symmetric (d, d) matrix, descending, and its unit eigenvectors, the columns of (d, d).

    A vector is known up to its sign: here its largest component is positive.
    """
    values, vectors = np.linalg.eigh(matrix)
    values, vectors = values[::-1], vectors[:, ::-1]
    largest = np.abs(vectors).argmax(axis=0)
    return values, np.ascontiguousarray(vectors * np.sign(vectors[largest, np.arange(len(values))]))


def rank(stats: Moments, variances: NDArray[np.float64]) -> int:
    """Return how many directions have a variance larger than rounding errors, at most n - 1."""
    return min(int((variances > stats.negligible()).sum()), stats.n - 1)


class Standardise(Affine):
    """(x - mean) / standard deviation (divided by n); a dimension that does not vary is only centred.

    As scikit-learn's StandardScaler.
    """

    name = "standardise"
    source = "Timkey and van Schijndel 2021, All Bark and No Bite; as scikit-learn's StandardScaler"

    def dimension(self, d: int) -> int:
        return d

    def solve(self, stats: Moments, name: str) -> Map:
        variances = np.diag(stats.scatter) / stats.n
        varies = variances > stats.rounding
        return stats.mean, np.diag(1 / np.sqrt(np.where(varies, variances, 1.0)))


class WhiteningOptions(PostOptions):
    """Settings of `whitening`."""

    dimensions: Annotated[int, Field(ge=1)] | None = setting(
        None, "how many dimensions are kept, those of the largest variance; null: all", "Su et al. 2021 (k)"
    )
    divisor: Literal["n-1", "n"] = setting(
        "n-1", "what the covariance is divided by; it scales all vectors alike and changes no cosine",
        "n-1: the released code (numpy.cov); n: Su et al. 2021",
    )


class Whitening(Affine):
    """(x - mean) @ U diag(1 / sqrt(eigenvalues)), the first k columns; U, eigenvalues: of the covariance (PCA form)."""

    name = "whitening"
    Options: ClassVar[type[PostOptions]] = WhiteningOptions
    source = "Su et al. 2021, Whitening Sentence Representations for Better Semantics and Faster Retrieval (BERT-whitening)"

    def dimension(self, d: int) -> int:
        wanted: int = self.options.dimensions or d
        if wanted > d:
            raise StsbenchError(f"{self.name}: dimensions={wanted} is more than the {d} of the vectors")
        return wanted

    def solve(self, stats: Moments, name: str) -> Map:
        variances, directions = principal(stats.covariance("n"))
        wanted, there = self.dimension(stats.width), rank(stats, variances)
        if wanted > there:
            if there < 1:
                raise StsbenchError(f"{name}: all vectors are one and the same: fit whitening on more texts")
            more = ", or fit on more texts" if stats.n <= stats.width else ""
            raise StsbenchError(
                f"{name}: {stats.n} vectors vary in {there} of {stats.width} dimensions, and whitening to {wanted} would "
                f"divide by zero: give whitening:dimensions={there} or fewer{more}"
            )
        if self.options.divisor == "n-1":
            variances = variances * (stats.n / (stats.n - 1))
        return stats.mean, directions[:, :wanted] / np.sqrt(variances[:wanted])


class AllButTheTopOptions(PostOptions):
    """Settings of `all-but-the-top`."""

    components: Annotated[int, Field(ge=0)] | None = setting(
        None, "how many directions are taken out (D); null: a hundredth of the width, rounded, at least 1; 0: only the mean",
        "Mu and Viswanath 2018: D about d/100",
    )


class AllButTheTop(Affine):
    """(x - mean) @ (I - U U'), U the first D principal directions."""

    name = "all-but-the-top"
    Options: ClassVar[type[PostOptions]] = AllButTheTopOptions
    source = "Mu and Viswanath 2018, All-but-the-Top: Simple and Effective Postprocessing for Word Representations"

    def components(self, d: int) -> int:
        """Return D, the number of directions removed, for width d. StsbenchError: nothing would be left."""
        asked: int | None = self.options.components
        count = max(1, round(d / 100)) if asked is None else asked
        if count >= d:
            raise StsbenchError(f"{self.name}: components={count} leaves nothing of vectors of width {d}")
        return count

    def dimension(self, d: int) -> int:
        self.components(d)
        return d

    def solve(self, stats: Moments, name: str) -> Map:
        count = self.components(stats.width)
        variances, directions = principal(stats.covariance("n"))
        if count > (there := rank(stats, variances)):
            raise StsbenchError(
                f"{name}: {stats.n} vectors vary in {there} directions, fewer than the {count} that all-but-the-top takes "
                f"out: give all-but-the-top:components={there} or fewer, or fit on more texts"
            )
        top = directions[:, :count]
        return stats.mean, np.eye(stats.width) - top @ top.T


class RenormaliseOptions(PostOptions):
    """Settings of `renormalise`."""

    form: Literal["project", "subtract"] = setting(
        "project", "project: the mean's direction is taken out, R2; subtract: the mean itself is, R1",
        "Ren, Sun and Liang 2025: R2 is the recommended one",
    )
    normalise_before: bool = setting(
        True, "bring each vector to length 1 first, when the mean is computed and when it is taken out",
        "not stated; the models that were tested give vectors of length 1",
    )
    normalise_after: bool = setting(
        True, "bring each vector to length 1 at the end; no cosine depends on it, dot products do", "by the method's name",
    )


class Renormalise(Post):
    """e - (e . m) m with m = mu / |mu| (project, R2), or e - mu (subtract, R1); mu: the mean of the vectors fitted on.

    Fitted, it has `mean`, float64 (d,).
    """

    name = "renormalise"
    Options: ClassVar[type[PostOptions]] = RenormaliseOptions
    source = "Ren, Sun and Liang 2025, arXiv 2511.11041"
    mean: NDArray[np.float64]

    def fit(self, source: VectorSource) -> Self:
        name = source.name.partition("@")[0]
        self.mean = moments((self._before(block) for block in source.blocks()), name).mean
        length = float(np.linalg.norm(self.mean))
        if self.options.form == "project" and length < _SHORTEST:
            raise StsbenchError(f"{name}: the mean of the vectors has length {length:.1e}, so no direction to take out")
        self.notes = (f"renormalise: the mean of {name} has length {length:.4f}",)
        return self

    def transform(self, vectors: Vectors) -> Vectors:
        rows = self._before(vectors)
        if self.options.form == "subtract":
            rows = rows - self.mean
        else:
            direction = self.mean / np.linalg.norm(self.mean)
            rows = rows - np.outer(rows @ direction, direction)
        return unit(rows) if self.options.normalise_after else rows

    def dimension(self, d: int) -> int:
        return d

    def state(self) -> State:
        return {"mean": self.mean}

    def restore(self, state: State) -> Self:
        self.mean = np.asarray(state["mean"], dtype=np.float64)
        return self

    def _before(self, vectors: NDArray[Any]) -> NDArray[np.float64]:
        rows = np.asarray(vectors, dtype=np.float64)
        return unit(rows) if self.options.normalise_before else rows
