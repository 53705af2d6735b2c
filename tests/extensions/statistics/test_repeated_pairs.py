"""A user's pairs that repeat: each counts once in what `power` and `calibrate` say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stsbench import calibrate, evaluate, power
from stsbench.extensions.statistics.calibrate import cross_fitted

N, TIMES = 60, 6
WORDS = np.array(["sun", "moon", "tree", "river", "stone", "bird", "fish", "wind", "rain", "snow", "fire", "road"])
A, B = ([" ".join(np.random.default_rng([seed, i]).choice(WORDS, 6)) + f" {i}" for i in range(N)] for seed in range(2))
GOLD = np.random.default_rng(0).uniform(0, 5, N).round(1).tolist()
LABEL = [int(i % 3 == 0) for i in range(N)]
NEAR = [" ".join([*a.split()[:4], "now"]) if label else b for a, b, label in zip(A, B, LABEL, strict=True)]


def written(name, third, second, values, times):
    """A file with every pair so many times, in half of them the other way round."""
    rows, swapped = zip(A, second, values, strict=True), zip(second, A, values, strict=True)
    lines = ["\t".join(map(str, row)) for row in [*[*rows] * (times - times // 2), *[*swapped] * (times // 2)]]
    Path(name).write_text("\n".join(["sentence1\tsentence2\t" + third, *lines]) + "\n")


def test_the_power_of_two_runs_counts_a_pair_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    needed = []
    for name, times in (("once.tsv", 1), ("six.tsv", TIMES)):
        written(name, "score", B, GOLD, times)
        runs = [evaluate(model, protocol=f"sts:{name}", output=f"{model}-{name}")
                for model in ("lexical:token-set", "lexical:tfidf")]
        needed.append(power(100, runs=runs, resamples=1000).tasks[0].value)
    assert needed[1] == pytest.approx(needed[0], rel=0.15)


def test_a_calibration_counts_and_folds_pairs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = []
    for name, times in (("once.tsv", 1), ("six.tsv", TIMES)):
        written(name, "label", NEAR, LABEL, times)
        made.append(calibrate(evaluate("lexical:token-set", protocol=f"pairs:{name}", output=f"{name}-run", resamples=0)))
    once, six = made
    assert six.fitted == pytest.approx(np.tile(once.fitted, TIMES)) and six.brier == pytest.approx(once.brier)
    assert [one.n for one in six.bins] == [one.n for one in once.bins]
    for one, other in zip(once.bins, six.bins, strict=True):
        assert (other.low, other.high) == pytest.approx((one.low, one.high))
    assert six.thresholds == once.thresholds
    assert {key: six.as_json()[key] for key in ("pairs", "matches", "rows")} == {
        "pairs": N, "matches": sum(LABEL), "rows": N * TIMES}
    assert six.lines()[0] == once.lines()[0].replace("once.tsv", "six.tsv")
    assert any(f"{N * TIMES} rows of six.tsv are {N} different items" in line for line in six.lines())


def test_folds_of_a_calibration_hold_a_pair_once():
    item, noise = np.tile(np.arange(N), 2), np.random.default_rng(0).normal(size=2 * N)
    label = np.tile(LABEL, 2)
    plain = cross_fitted(noise, label, folds=3)
    assert (cross_fitted(noise, label, folds=3, item=np.arange(2 * N)) == plain).all()
    assert (cross_fitted(noise, label, folds=3, item=item) != plain).any()
