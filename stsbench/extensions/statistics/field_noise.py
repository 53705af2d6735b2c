"""How noisy differences are in the field, over the leaderboard's measured rows: `field_noise.json`, which
`benchmarks/field_noise.py` makes from the board's records."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

FILE = "field_noise.json"
ALL = "all sets"  # the pairs of rows of every set together
METRICS = ("spearman", "pearson")


@dataclass(frozen=True)
class Quartiles:
    """The lower quartile, the median and the upper quartile of a number over all pairs of rows."""

    low: float
    median: float
    high: float


@dataclass(frozen=True)
class FieldNoise:
    """One STS set, or `ALL`: the paired noise of all pairs of the board's rows.

    unit_error: the standard error of the paired difference times the square root of the number of pairs, in points: what
    one pair would have. ratio: that standard error over the root mean square of the two scores' own: 1.41 where the
    scores' errors are independent, 1 where they correlate at .5, 0 for one encoder twice. n: pairs of the set.
    """

    name: str
    n: int
    unit_error: Quartiles
    ratio: Quartiles


@cache
def field_noise(metric: str = "spearman") -> dict[str, FieldNoise]:
    """Return task -> its noise, `ALL` last, for "spearman" or "pearson". Raises KeyError for another metric.

    >>> from stsbench.extensions.statistics.field_noise import field_noise
    >>> [name for name in field_noise()]
    ['STS12', 'STS13', 'STS14', 'STS15', 'STS16', 'STS-B', 'SICK-R', 'all sets']
    """
    return {name: FieldNoise(name, one["n"], *(Quartiles(*one[metric][key]) for key in ("unit_error", "ratio")))
            for name, one in provenance()["sets"].items()}


@cache
def provenance() -> dict[str, Any]:
    """Return the file as it is: what it was made from (`made_by`, `protocol`, `rows`, `resamples`, `seed`), and the
    figures."""
    stored: dict[str, Any] = json.loads((files(__package__) / FILE).read_text("utf-8"))
    return stored
