"""Standardise: each dimension by itself gets mean 0 and variance 1."""

from __future__ import annotations

import numpy as np

from stsbench.encoders.post.affine import Affine, Map
from stsbench.encoders.post.moments import Moments


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
