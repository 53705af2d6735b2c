"""Development vectors that no score can be made of, at some steps or all: the training goes on, and keeps what it has."""

from __future__ import annotations

import json
import math
import shutil

import numpy as np
import pytest
import training_runs
from clirun import SAMPLE
from training_runs import cache, one_thread, place

import stsbench
from stsbench.errors import DegenerateError, StsbenchError
from stsbench.training.engine import selection

__all__ = ["cache", "one_thread", "place"]
REAL, ENCODER = selection.correlation, selection.live_encoder


def collapsed(similarity, gold, metric):
    return REAL(np.zeros_like(similarity), gold, metric)


def infinite(similarity, gold, metric):
    return REAL(np.full_like(similarity, np.inf), gold, metric)


def degenerate(similarity, gold, metric):
    raise DegenerateError("dev returned NaN or infinity for 2 of 80 texts, the first: 'a cat'")


def nan(similarity, gold, metric):
    return math.nan


def broken(monkeypatch, how, at):
    """The dev evaluations numbered in `at` (0 is before training) have no score."""
    calls = []

    def correlate(*arguments):
        calls.append(None)
        return how(*arguments) if len(calls) - 1 in at else REAL(*arguments)

    monkeypatch.setattr(selection, "correlation", correlate)


def run(place, output, log=None, method="simcse", **values):
    values = training_runs.settings(place / "tiny", place / "text.txt", **{"selection.every": 3, **values})
    return stsbench.train(method, output=output, settings=values, sample=True, device="cpu")


def dev(folder):
    return [line for line in map(json.loads, (folder / "log.jsonl").read_text().splitlines()) if line["kind"] == "dev"]


@pytest.mark.parametrize("how", [collapsed, infinite, degenerate, nan])
def test_one_counts_as_the_worst(place, tmp_path, monkeypatch, how):
    broken(monkeypatch, how, {2, 3})
    summary = run(place, tmp_path / "out")
    assert [line["step"] for line in dev(tmp_path / "out") if line["score"] is None and line["undefined"]] == [6, 9]
    assert summary["best"]["step"] in (3, 12) and summary["exported"] == f"step {summary['best']['step']}"
    assert summary["undefined"] == [{"stage": "main", "step": 6}, {"stage": "main", "step": 9}]
    assert (tmp_path / "out" / "best" / "config.json").is_file()


def test_all_leave_the_last_step(place, tmp_path, monkeypatch):
    broken(monkeypatch, collapsed, range(100))
    summary = run(place, tmp_path / "out")
    last = "the last step, as no development score is defined"
    assert summary["best"] is None and summary["exported"] == last
    assert f"the weights of {last}" in (tmp_path / "out" / "best" / "README.md").read_text()
    assert stsbench.load_encoder(str(tmp_path / "out")).encode(["a cat"]).shape[0] == 1


def test_of_candidates_one_may_have_none(place, tmp_path, monkeypatch):
    """Of CT's two encoders the one with a score is chosen."""
    broken(monkeypatch, collapsed, {2, 4})  # the first of each evaluation after training
    values = {"training.milestones": [5], "training.rates": [1e-5], "options.keep": "best", "training.max_steps": 6,
              "training.batch_size": 15, "training.epochs": 9, "backbone.max_length": 16, "selection.every": 3}
    run(place, tmp_path / "out", method="ct", **values)
    assert [(line["encoder"], line["encoders"]["model2"]) for line in dev(tmp_path / "out")[1:]] == [("model1", None)] * 2


def test_a_backbone_that_gives_nan_is_an_error_before_the_first_step(place, tmp_path, monkeypatch):
    broken(monkeypatch, degenerate, {0})
    with pytest.raises(StsbenchError, match="NaN or infinity"):
        run(place, tmp_path / "out")


@pytest.mark.parametrize("changed", [{4: "3.0"}, {5: "a cat", 6: "a dog"}])
def test_dev_data_that_give_no_encoder_a_score_are_an_error(place, tmp_path, changed):
    """Such a run scored nothing and kept its last step, with a warning an evaluation."""
    shutil.copytree(SAMPLE, tmp_path / "data")
    path = next((tmp_path / "data").rglob("sts-dev.csv"))
    rows = [line.split("\t") for line in path.read_text("utf-8").splitlines()]
    path.write_text("\n".join("\t".join(changed.get(at, cell) for at, cell in enumerate(row)) for row in rows), "utf-8")
    values = training_runs.settings(place / "tiny", place / "text.txt")
    with pytest.raises(StsbenchError, match=r"^stsb/dev from .*data: all gold scores or all pairs are one"):
        stsbench.train("simcse", output=tmp_path / "out", settings=values, device="cpu", data_dir=tmp_path / "data")
    assert not (tmp_path / "out").exists()


def test_a_held_out_loss_that_is_nan(place, tmp_path, monkeypatch):
    real = selection.held_out_score
    calls = []

    def score(*arguments):
        calls.append(None)
        return math.nan if len(calls) == 2 else real(*arguments)

    monkeypatch.setattr(selection, "held_out_score", score)
    summary = run(place, tmp_path / "out", **{"selection.by": "held-out", "data.held_out": 20})
    assert dev(tmp_path / "out")[1]["score"] is None and summary["best"]["step"] > 3


def test_the_run_is_resumed_and_read(place, tmp_path, monkeypatch):
    """A log with such a line is read by everything that reads logs."""
    from stsbench.training.runs.report import best_dev, curve, read_log, summarise_seeds

    broken(monkeypatch, collapsed, {0, 2, 4})
    whole = run(place, tmp_path / "out")
    log = read_log(tmp_path / "out" / "log.jsonl")
    assert curve(log, "main", "score")[0] == [3, 9] and best_dev(log)["step"] == whole["best"]["step"]
    assert summarise_seeds([tmp_path / "out"])["dev_last"] is None
    (tmp_path / "out" / "train.json").unlink()
    values = training_runs.settings(place / "tiny", place / "text.txt", **{"selection.every": 3})
    again = stsbench.train("simcse", output=tmp_path / "out", settings=values, sample=True, device="cpu", resume=True)
    assert again["best"] == whole["best"] and again["undefined"] == whole["undefined"]
