"""Whitening: uncorrelated dimensions of variance 1, of which the first k are kept (BERT-whitening)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from stsbench.encoders.post.affine import Affine, Map, principal, rank
from stsbench.encoders.post.base import PostOptions
from stsbench.encoders.post.moments import Moments
from stsbench.errors import StsbenchError
from stsbench.settings import setting


class WhiteningOptions(PostOptions):
    """Of `whitening`."""

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
        variances, directions = principal(stats)
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
