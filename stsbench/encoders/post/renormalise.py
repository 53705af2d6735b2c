"""Renormalisation: what all vectors have in common, their mean, is taken out of vectors of length 1."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from stsbench.encoders.post.affine import moments
from stsbench.encoders.post.base import Post, PostOptions, State, Vectors, VectorSource, unit
from stsbench.errors import StsbenchError
from stsbench.settings import setting

_SHORTEST = 1e-6  # a shorter mean has no direction: float32 vectors of length 1 are rounded by less


class RenormaliseOptions(PostOptions):
    """Of `renormalise`."""

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
