"""How noisy paired differences between the leaderboard's rows are: makes stsbench/extensions/statistics/field_noise.json.

`python benchmarks/field_noise.py`, three minutes on one core. Of every measured row the first run, on each of the seven STS
sets as `sts` scores them by default; 1,000 resamples of seed 0, those of `stsbench compare`. For all pairs of rows: the
standard error of the difference, as of pairs that share no sentence, times the square root of the number of pairs, and
over the two scores' own.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from stsbench.comparison.comparability import Measured
from stsbench.comparison.shared import narrowed
from stsbench.evaluation.measure import row_key
from stsbench.extensions.statistics.power import ALL, FILE, METRICS
from stsbench.files import atomic_write
from stsbench.leaderboard.records.entries import LoadedEntry, read_entries

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "stsbench" / "extensions" / "statistics" / FILE
RESAMPLES, SEED, QUARTILES = 1000, 0, (0.25, 0.5, 0.75)
SETTINGS = {"similarity": "cosine", "without_overlap": []}


def measured_rows(entries: Sequence[LoadedEntry]) -> dict[str, list[tuple[str, Measured]]]:
    """Task -> (entry, record) of each entry's first run, in the protocol's order of tasks."""
    records = [(entry.id, record) for entry in entries for record in entry.runs[0].records
               if record.record.protocol.name == "sts" and record.record.data.text_version == "senteval"]
    records = [(name, record) for name, record in records
               if all(record.record.protocol.settings[key] == value for key, value in SETTINGS.items())]
    tasks = records[0][1].protocol.averaged
    return {task: [item for item in records if item[1].task == task] for task in tasks}


def paired_noise(rows: Sequence[tuple[str, Measured]], metric: str) -> tuple[np.ndarray, np.ndarray]:
    """(p,) unit errors and ratios of all pairs of rows, as `FieldNoise` has them."""
    row = next(row for row in rows[0][1].whole() if (row.metric, row.aggregation) == (metric, "all"))
    # As of pairs that share no sentence: such are planned, and these sets share more or fewer.
    protocol = narrowed(rows[0][1].protocol, row)
    covariance = np.cov([protocol.draws(record.observed(), record.set_id, RESAMPLES, SEED)[row_key(row)]
                         for _, record in rows])
    independent = covariance.diagonal()[:, None] + covariance.diagonal()
    above = np.triu_indices(len(rows), 1)
    variance = (independent - 2 * covariance)[above]
    return np.sqrt(variance * row.n), np.sqrt(variance / (independent[above] / 2))


def quartiles(values: np.ndarray) -> list[float]:
    return [round(float(value), 4) for value in np.quantile(values, QUARTILES)]


def main() -> None:
    by_task = measured_rows(read_entries(ROOT / "leaderboard" / "measured"))
    sets, pooled = {}, {metric: [] for metric in METRICS}
    for task, rows in by_task.items():
        sets[task] = {"n": rows[0][1].record.data.n}
        for metric in METRICS:
            pooled[metric].append(paired_noise(rows, metric))
            sets[task][metric] = dict(zip(("unit_error", "ratio"), map(quartiles, pooled[metric][-1]), strict=True))
    sets[ALL] = {"n": sum(one["n"] for one in sets.values())}
    for metric, parts in pooled.items():
        joined = [np.concatenate(part) for part in zip(*parts, strict=True)]
        sets[ALL][metric] = dict(zip(("unit_error", "ratio"), map(quartiles, joined), strict=True))
    first = next(iter(by_task.values()))
    made = {
        "made_by": "benchmarks/field_noise.py", "from": "leaderboard/measured, leaderboard/observations",
        "protocol": first[0][1].protocol.name, "resamples": RESAMPLES, "seed": SEED, "quantiles": QUARTILES,
        "rows": [name for name, _ in first], "sets": sets,
    }
    with atomic_write(TARGET) as stream:
        stream.write(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()
