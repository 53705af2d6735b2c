"""The protocol measures an encoder, and its score is the one that a double loop computes."""

from math import sqrt
from pathlib import Path

import numpy as np
import pytest
from example_module import Example

import stsbench
from stsbench.evaluation import Observations

PROTOCOL = f"{Path(__file__).with_name('example_module.py')}:Example"


def test_score_is_that_of_a_double_loop():
    rng = np.random.default_rng(0)
    similarity, gold = rng.random(30), rng.integers(0, 6, 30).astype(float)
    right = in_first = in_second = 0
    for i in range(30):
        for j in range(i):
            first, second = np.sign(similarity[i] - similarity[j]), np.sign(gold[i] - gold[j])
            right, in_first, in_second = right + first * second, in_first + abs(first), in_second + abs(second)
    [row] = Example({}).score(Observations({"similarity": similarity, "gold": gold}), "stsb/test", "STS-B")
    assert row.value == pytest.approx(100 * right / sqrt(in_first * in_second))


def test_an_encoder_is_measured():
    result = stsbench.evaluate("lexical:token-set", protocol=PROTOCOL, sample=True)
    assert 0 < result.scores["STS-B"] <= 100
