"""Mean and covariance of any number of vectors in one pass, in float64 and in memory for d x d numbers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stsbench.errors import StsbenchError

_ROWS = 4096  # converted to float64 at a time
_SINGLE = float(np.finfo(np.float32).eps)
_DOUBLE = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Moments:
    """Of n vectors: mean float64 (d,), scatter float64 (d, d) = sum of (x - mean)(x - mean)'.

    rounding: float64 (d,), the variance that the rounding of float32 vectors may have put into each dimension.
    """

    n: int
    mean: NDArray[np.float64]
    scatter: NDArray[np.float64]
    rounding: NDArray[np.float64]

    @property
    def width(self) -> int:
        """d."""
        return len(self.mean)

    def covariance(self, divisor: str) -> NDArray[np.float64]:
        """float64 (d, d). divisor: "n-1" or "n"."""
        return self.scatter / (self.n - 1 if divisor == "n-1" else self.n)

    def negligible(self) -> float:
        """The variance (divided by n) up to which a direction may be rounding: of the vectors, and of this sum."""
        return float(self.rounding.sum()) + self.width * _DOUBLE * float(np.trace(self.scatter)) / self.n

    def image(self, mean: NDArray[np.float64], kernel: NDArray[np.float64]) -> Moments:
        """The moments of (x - mean) @ kernel, without a second pass over x."""
        return Moments(
            self.n, (self.mean - mean) @ kernel, kernel.T @ self.scatter @ kernel, np.square(kernel).T @ self.rounding
        )


def moments(blocks: Iterable[NDArray[Any]], name: str) -> Moments:
    """Of all rows of `blocks`, (m, d) arrays of any float type and length; how they are cut matters to rounding only.

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
