"""Every method trained on a device that refuses the CPU's tensors: each stage, development scores, resumed, exported."""

from __future__ import annotations

import numpy as np
import pytest
from pretend_device import pretend_device
from pretended_runs import RUNS, StopAt, Stopped, make_place, on_device, recipe_of, train
from shipped_recipes import METHODS
from training_runs import one_thread

from stsbench.encoders.load import load_encoder
from stsbench.training.engine.live import live_encoder
from stsbench.training.runs.trained import load_trained

__all__ = ["one_thread"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return make_place(tmp_path_factory.mktemp("pretended"))


def test_every_method_is_here():
    assert {method for method, _ in RUNS.values()} == set(METHODS)


@pytest.mark.parametrize("name", RUNS)
def test_a_run_broken_off_and_resumed(place, tmp_path, monkeypatch, name):
    """It ends, its numbers are finite, and what it exports is what it kept."""
    monkeypatch.setenv("STSBENCH_CACHE", str(place / "cache"))
    recipe = recipe_of(place, name)
    with pretend_device() as pretended:
        on_device(monkeypatch, pretended)
        with pytest.raises(Stopped):
            train(recipe, tmp_path / "run", place, callback=StopAt(2))
        summary, log = train(recipe, tmp_path / "run", place, resume=True)
    assert all(steps == 2 for steps in summary["stages"].values())
    losses = [line["loss"] for line in log if line["kind"] == "train"]
    assert len(losses) == 2 * len(summary["stages"]) and np.isfinite(losses).all()
    texts = ["cat", "the man runs .", "blue " * 30]
    vectors = live_encoder(load_trained(tmp_path / "run", device="cpu").inference(), "live").encode(texts)
    assert np.abs(load_encoder(str(tmp_path / "run"), device="cpu").encode(texts) - vectors).max() < 1e-5
