"""SARCSE in whole runs: what its log says; and its gradient over uneven shares."""

from __future__ import annotations

import numpy as np
import pytest
import tiny_models
import torch
import training_runs
from method_oracle import MemoryRows
from sarcse_oracle import PLAIN, sarcse
from training_runs import log_of, undisturbed, weights_of
from two_processes import check_same_as_one, passes_of_two, shares_of

from stsbench.training.rows.batches import to_batch

SPLITS = [(3, 3), (2, 4), (5, 1)]
CHOSEN = [{"beta": 0.3, "gamma": 0.7}, {"unpool": "repeat+position", "transposed_fusion": "separate", "beta": 1.0},
          {"beta": 0.0, "gamma": 0.0}]


# --- the gradient of two processes ---


def made(folder, options, split=None, rank=0):
    method = sarcse(folder, **options)
    views = method.views(MemoryRows(folder, PLAIN), np.random.default_rng(0))
    shares = shares_of(6, split, rank)
    return method, to_batch(views, shares, method.backbone.tokenizer.pad_token_id, torch.device("cpu"))


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """(folder of the model, [rank] -> its passes)."""
    place = tmp_path_factory.mktemp("shares")
    folder = tiny_models.build(place / "tiny", "roberta", pooler=False)
    return folder, passes_of_two(place, made, folder, CHOSEN, SPLITS)


@pytest.mark.parametrize("number", range(len(CHOSEN)))
def test_two_processes_have_the_gradient_of_one(both, number):
    folder, passes = both
    check_same_as_one(passes, number, *made(folder, CHOSEN[number]), rel=1e-12, gradients=1e-10)


# --- whole runs ---


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """(a run nobody disturbed, the values it was trained with, the cache). The last batch has 5 rows."""
    place = tmp_path_factory.mktemp("runs")
    model = tiny_models.build(place / "tiny", pooler=False)
    values = training_runs.settings(
        model, training_runs.make_text(place, 65),
        **{"backbone.text_cnn": {"kernels": [2, 3], "channels": 6}, "training.epochs": 1, "training.epsilon": 1e-2,
           "options.beta": 0.05, "options.gamma": 0.1, "options.head_rate": 2.0},
    )
    return undisturbed(place, values, "sarcse")


def test_the_log(whole):
    lines = [line for line in log_of(whole[0]) if line["kind"] == "train"]
    terms = ["contrastive", "reconstruction", "reconstruction_positive"]
    assert lines and all(sorted(line["terms"]) == terms for line in lines)
    for line in lines:
        assert line["reconstruction_error"] > 0 and 0.1 <= line["token_weight"] <= 1
        named = line["terms"]
        expected = named["contrastive"] + 0.05 * named["reconstruction"] + 0.1 * named["reconstruction_positive"]
        assert line["loss"] == pytest.approx(expected, rel=1e-5)
    counts = list((whole[2] / "training" / "counts").iterdir())
    assert len(counts) == 1
    weights = weights_of(whole[0])
    stored = np.frombuffer(weights[next(name for name in weights if name.endswith(" weights"))], np.float32)
    found = np.frombuffer(counts[0].read_bytes()[32:], np.int64)
    assert stored.tolist() == pytest.approx(np.maximum(0.1, 1 - 50 * found / found.sum()).tolist(), abs=1e-6)
