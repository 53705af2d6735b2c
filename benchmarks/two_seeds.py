"""The best that any test of two seeds against two can do: figures of docs/findings/statistics.md.

`python benchmarks/two_seeds.py`: a million simulations without noise of items. A rule may look at t, with pooled variances,
and at the ratio of the two standard deviations: for each ratio it has a critical value. Linear programming finds those with
the greatest power, for a difference of 5 between equally noisy sides, that err no more than a limit at any ratio of noise.
"""

from __future__ import annotations

import sys

import numpy as np
from scipy import stats
from scipy.optimize import linprog

ROUNDS, BINS, RATIOS = 1_000_000, 24, (1, 2, 3, 5, 10, 30, 1000)
CRITICAL = np.r_[np.linspace(3, 13, 41), np.inf]


def simulated(ratio: float, effect: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(ROUNDS,) t; the angle, 0 to 1, whose tangent is the smaller standard deviation over the larger; Welch's df."""
    rng = np.random.default_rng([ratio, effect])
    a, b = effect + ratio * rng.standard_normal((2, ROUNDS)), rng.standard_normal((2, ROUNDS))
    one, other = a.var(axis=0, ddof=1), b.var(axis=0, ddof=1)
    angle = np.arctan(np.sqrt(np.minimum(one, other) / np.maximum(one, other))) / (np.pi / 4)
    t = np.abs(a.mean(axis=0) - b.mean(axis=0)) / np.sqrt((one + other) / 2)
    return t, angle, (one + other) ** 2 / (one**2 + other**2)


def above(t: np.ndarray, angle: np.ndarray) -> np.ndarray:
    """(BINS, critical values): the share of all simulations with such an angle and a greater t."""
    at = np.minimum((angle * BINS).astype(int), BINS - 1)
    return np.stack([np.bincount(at[t > value], minlength=BINS) for value in CRITICAL], axis=1) / ROUNDS


def main() -> None:
    equal, far = simulated(1, 5), simulated(1, 20)
    null = {ratio: simulated(ratio, 0) for ratio in RATIOS}

    def told(name: str, power: float, of_20: float, errors: list[float]) -> None:
        sys.stdout.write(f"{name}: power {100 * power:.1f}, of 20: {100 * of_20:.1f}; errors at {RATIOS}: "
                         f"{', '.join(f'{100 * error:.1f}' for error in errors)}\n")

    df = np.linspace(1, 2, 201)
    quantiles = stats.t.ppf(0.975, df)
    for name, critical in (
        ("pooled", lambda draws: quantiles[-1]),
        ("Welch", lambda draws: np.interp(draws[2], df, quantiles)),
    ):
        share = [float(np.mean(draws[0] > critical(draws))) for draws in (equal, far, *null.values())]
        told(name, share[0], share[1], share[2:])
    gain, gain_far, losses = above(*equal[:2]), above(*far[:2]), [above(*draws[:2]) for draws in null.values()]
    one_each = np.kron(np.eye(BINS), np.ones(len(CRITICAL)))
    for limit in (0.05, 0.06):
        bounds = [limit] * len(losses)
        best = linprog(-gain.ravel(), np.stack([loss.ravel() for loss in losses]), bounds, one_each, np.ones(BINS))
        rule = best.x.reshape(gain.shape)
        told(f"best within {limit}", *(float((rule * part).sum()) for part in (gain, gain_far)),
             errors=[float((rule * loss).sum()) for loss in losses])


if __name__ == "__main__":
    main()
