"""The shipped noise of the field is what benchmarks/field_noise.py makes of the board's records."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from stsbench.extensions.statistics.power import ALL, METRICS, field_noise, provenance
from stsbench.leaderboard.records.entries import read_entries

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("field_noise_script", ROOT / "benchmarks" / "field_noise.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_figures_are_those_of_the_records(script) -> None:
    """Pearson on STS16, the smallest set, again from the observations of the rows that the file names."""
    stored = provenance()
    rows = script.measured_rows(read_entries(ROOT / "leaderboard" / "measured"))["STS16"]
    by_name = dict(rows)
    assert set(stored["rows"]) <= set(by_name), "a row is gone: python benchmarks/field_noise.py"
    unit, ratio = script.paired_noise([(name, by_name[name]) for name in stored["rows"]], "pearson")
    assert len(unit) == len(stored["rows"]) * (len(stored["rows"]) - 1) // 2
    assert stored["sets"]["STS16"]["pearson"] == {
        "unit_error": pytest.approx(np.quantile(unit, [0.25, 0.5, 0.75]), abs=1e-3),
        "ratio": pytest.approx(np.quantile(ratio, [0.25, 0.5, 0.75]), abs=1e-3),
    }


def test_the_noise_of_a_known_pair(script, monkeypatch) -> None:
    """Unit error and ratio of two rows from their bootstrap draws, by hand."""
    class Row:
        metric, aggregation, subset, n = "pearson", "all", None, 400

    drawn = np.random.default_rng(0).normal(size=(2, 500)) * [[1.0], [2.0]]

    class Drawing:
        def draws(self, observations, set_id, resamples, seed):
            return {(None, "all", "pearson"): drawn[observations]}

    class Record:
        protocol, set_id = Drawing(), "stsb/test"

        def __init__(self, number):
            self.observed = lambda: number

        def whole(self):
            return [Row]

    monkeypatch.setattr(script, "narrowed", lambda protocol, row: protocol)
    unit, ratio = script.paired_noise([("a", Record(0)), ("b", Record(1))], "pearson")
    error = np.std(drawn[0] - drawn[1], ddof=1)
    assert unit == pytest.approx([20 * error])
    assert ratio == pytest.approx([error / np.sqrt(np.var(drawn, axis=1, ddof=1).mean())])


def test_it_is_read_whole() -> None:
    for metric in METRICS:
        noise = field_noise(metric)
        assert list(noise)[-1] == ALL and len(noise) == 8
        assert sum(one.n for name, one in noise.items() if name != ALL) == noise[ALL].n
        for one in noise.values():
            assert 0 < one.unit_error.low < one.unit_error.median < one.unit_error.high < 141
            assert 0 < one.ratio.low < one.ratio.median < one.ratio.high < 1.5
