"""Classes as clouds of points, and the fits of a small grid."""

import numpy as np

from stsbench.probes.schemes import Fit


def clouds(n, d, classes, seed=0, spread=1.5):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, size=n)
    x = rng.normal(size=(classes, d))[y] + spread * rng.normal(size=(n, d))
    return x.astype(np.float32), y.astype(np.int64)


def some_fits(n, regs=(0.25, 1.0, 8.0), k=3):
    rows = np.arange(n)
    return [Fit(rows[rows % k != f], None, rows[rows % k == f], reg) for reg in regs for f in range(k)]
