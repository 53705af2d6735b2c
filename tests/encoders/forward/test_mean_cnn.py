"""The learned pooler mean_cnn: a loop over tokens, one text at a time, against all of a padded batch at once."""

from __future__ import annotations

import inspect
import json

import numpy as np
import pytest
import torch
from isbert_oracle import SMALL, local_vectors, mean

from stsbench.encoders.forward.pooling import FILES, pool
from stsbench.encoders.forward.token_pooler import MeanCNN
from stsbench.errors import EncoderError, StsbenchError
from stsbench.training.recipes.recipes import load_recipe
from stsbench.training.recipes.sections import MeanCNNSettings

COUNTS = [9, 1, 2, 5]


def made(width=6, seed=0, **more):
    torch.manual_seed(seed)
    return MeanCNN(width, **{**SMALL, **more}).double()


def batch(counts=COUNTS, width=6, padding=0):
    """States (n, L, d) with NaN on padding, and their mask."""
    torch.manual_seed(1)
    length = max(counts) + padding
    mask = (torch.arange(length) < torch.tensor(counts)[:, None]).long()
    states = torch.randn(len(counts), length, width, dtype=torch.float64)
    return states.masked_fill(mask.unsqueeze(-1) == 0, torch.nan), mask


@pytest.mark.parametrize("options", [{}, {"activation": "none"}, {"kernels": (3,), "channels": 7}, {"kernels": (7, 1)}])
@pytest.mark.parametrize("padding", [0, 4])
def test_equals_a_loop_over_tokens(options, padding):
    """On the padded batch, and on the packed texts of a test."""
    head = made(**options)
    states, mask = batch(padding=padding)
    features = head.features(states, mask)
    assert features.vectors.shape == (4, head.vector_width) and torch.equal(head(states, mask), features.vectors)
    assert torch.equal(features.real, mask.bool())
    for i, count in enumerate(COUNTS):
        text = states[i, :count]
        expected = local_vectors(head, text.tolist(), count)
        np.testing.assert_allclose(features.tokens[i, :count].detach(), expected, atol=1e-12)
        np.testing.assert_allclose(features.vectors[i].detach(), mean(expected), atol=1e-12)
        packed = pool("mean_cnn", [text], [(1, count)], token_pooler=head)[0]
        np.testing.assert_allclose(packed.detach(), mean(expected), atol=1e-6)  # float32


def test_padding_at_either_side_is_the_same():
    head = made()
    states, mask = batch()
    left = mask.flip(1)
    moved = torch.full_like(states, torch.nan)
    moved[left.bool()] = states[mask.bool()]
    assert torch.allclose(head(moved, left), head(states, mask), atol=1e-12, rtol=0)


def test_without_zeros_it_reads_what_stands_at_padding():
    head = made()
    states, mask = batch(padding=1)
    states = states.nan_to_num(0.5)
    features = head.features(states, mask, zero_padding=False)
    for i, count in enumerate(COUNTS):
        expected = local_vectors(head, states[i].tolist(), count)
        np.testing.assert_allclose(features.vectors[i].detach(), mean(expected), atol=1e-12)
    assert (features.vectors - head(states, mask)).abs().max() > 0.01


def test_gradients_by_finite_differences_and_none_for_padding():
    head = made(width=3, channels=2, activation="none")
    states, mask = batch([4, 2], width=3, padding=1)
    states = states.nan_to_num(0.5).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: head(x, mask), states)
    gradient = torch.autograd.grad(head(states, mask).pow(2).sum(), states)[0].abs().sum(2)
    assert torch.equal(gradient > 0, mask.bool())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_has_a_mean_in_float32(dtype):
    head = made().float()
    states, mask = batch(padding=2)
    with torch.autocast("cpu", dtype):
        vectors = head(states.float(), mask)
    assert vectors.dtype == torch.float32
    np.testing.assert_allclose(vectors.detach(), head(states.float(), mask).detach(), atol=0.03)


def test_the_papers_sizes():
    head = MeanCNN(768)
    assert head.vector_width == 768
    assert sum(weight.numel() for weight in head.parameters()) == 768 * 256 * (1 + 3 + 5) + 3 * 256


def test_the_recipes_defaults_are_the_modules():
    defaults = {name: value.default for name, value in inspect.signature(MeanCNN).parameters.items() if name != "width"}
    assert MeanCNNSettings().model_dump() == defaults


def test_it_comes_back_from_a_folder(tmp_path):
    head = made(activation="none").float()
    head.save(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == set(FILES)
    back = MeanCNN.load(tmp_path)
    states, mask = batch()
    assert torch.equal(back(states.float(), mask), head(states.float(), mask)) and back.settings() == head.settings()
    stored = json.loads((tmp_path / "config.json").read_text("utf-8"))
    assert stored == {"width": 6, "kernels": [1, 3, 5], "channels": 4, "activation": "none"}
    (tmp_path / "config.json").write_text(json.dumps({**stored, "kernels": [2]}))
    with pytest.raises(EncoderError, match=r"cannot read the MeanCNN in .*: mean_cnn: a kernel of 2 tokens has no middle"):
        MeanCNN.load(tmp_path)


def test_what_is_refused():
    with pytest.raises(EncoderError, match=r"activation 'tanh' is unknown \(there are relu, none\)"):
        MeanCNN(6, activation="tanh")
    for kernels in ("[2, 3]", "[3, 3]"):
        with pytest.raises(StsbenchError, match="kernels are different odd numbers of tokens"):
            load_recipe("is-bert", sets=[f"backbone.mean_cnn.kernels={kernels}"])
