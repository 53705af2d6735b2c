"""`stsbench gate`: what is worse fails, what is as good passes, and a loss within the margin does."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from clirun import cli, place  # noqa: F401 - fixtures

from stsbench import compare
from stsbench.extensions.statistics.gate import gate


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Write predictions of one model, and of others that lose so many hundredths of its correlation."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    gold, noise = rng.normal(size=(2, 800))
    for name, score in (("base", 0.8), ("slight", 0.798), ("worse", 0.77)):
        own = 0.98 * noise + 0.2 * rng.normal(size=800)
        predictions = score * gold + np.sqrt(1 - score**2) * own
        pd.DataFrame({"id": range(800), "gold": gold, "prediction": predictions}).to_csv(f"{name}.csv", index=False)


def test_a_gate_fails_for_what_is_worse_alone(runs):
    assert gate("slight.csv", "base.csv", margin=1, resamples=500).passed, "a loss within the margin"
    failed = gate("worse.csv", "base.csv", margin=1, resamples=500)
    [check] = failed.checks
    expected = compare("worse.csv", "base.csv", margin=1, resamples=500)["items"]
    assert not failed.passed and check.row.difference == expected.difference and expected.difference.high < 0
    assert gate("base.csv", "worse.csv", margin=1, resamples=500).passed


def test_the_command_s_exit_code_and_summary(runs, cli):
    summary, asked = Path("s.md"), ("--baseline", "base.csv", "--margin", "1", "--summary", "s.md")
    code, out, _ = cli("gate", "worse.csv", *asked, "--json", "checks.json")
    failed = summary.read_text()
    assert code == 3 and out.splitlines()[-1].startswith("failed: the run is worse")
    assert "| item-scores items | 800 |" in failed
    assert [check["worse"] for check in json.loads(Path("checks.json").read_text())] == [True]
    assert cli("gate", "slight.csv", *asked)[0] == 0
    assert summary.read_text().startswith(failed) and "passed: " in summary.read_text()
