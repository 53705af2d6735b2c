"""An encoder with its dropout on against transformers' own training mode, and what it leaves as it was."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_models import build, sentences
from transformers import AutoModel, AutoTokenizer

from stsbench.encoders.load import load_encoder
from stsbench.errors import EncoderError


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return build(tmp_path_factory.mktemp("dropping") / "bert")


@pytest.mark.parametrize("pooler", ["mean", "first_last:layer1"])
def test_a_vector_is_that_of_transformers_in_training(folder, pooler):
    text = sentences(1)[0]
    got = load_encoder(str(folder), pooler=pooler).with_dropout(7).run([text]).vectors
    model, inputs = AutoModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt")
    torch.manual_seed(7)
    with torch.no_grad():
        states = model.train()(**inputs, output_hidden_states=True).hidden_states
    expected = states[-1][0].mean(0) if pooler == "mean" else (states[1][0].mean(0) + states[-1][0].mean(0)) / 2
    assert np.abs(got[0] - expected.numpy()).max() < 1e-5


def test_every_call_draws_other_masks_and_the_same_seed_the_same(folder):
    texts = sentences(5)
    plain = load_encoder(str(folder), pooler="mean")
    before, state = plain.run(texts).vectors, torch.get_rng_state()
    left, right = plain.with_dropout(1), plain.with_dropout(1)
    first = left.run(texts).vectors
    assert np.array_equal(first, right.run(texts).vectors)
    assert np.array_equal(left.run(texts).vectors, right.run(texts).vectors)
    assert np.abs(first - right.run(texts).vectors).max() > 1e-3
    assert np.abs(first - plain.with_dropout(2).run(texts).vectors).max() > 1e-3
    twice = left.run([texts[0], texts[0]]).vectors
    assert np.abs(twice[0] - twice[1]).max() > 1e-3
    assert torch.equal(torch.get_rng_state(), state)
    assert np.array_equal(plain.run(texts).vectors, before)  # the model is left without


def test_a_model_whose_rates_are_zero_is_refused(tmp_path):
    still = build(tmp_path / "still")
    config = json.loads((still / "config.json").read_text("utf-8"))
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (still / "config.json").write_text(json.dumps(config), "utf-8")
    with pytest.raises(EncoderError, match=r"still has no dropout: its config.json sets no rate above 0$"):
        load_encoder(str(still), pooler="mean").with_dropout(0)
