"""BERT-flow on models: whatever torch is set to and on whatever device, and refused before anything is read."""

import numpy as np
import pytest
import torch
from pretend_device import pretend_device
from tiny_models import build, sentences

from stsbench.encoders.base import EncoderOptions
from stsbench.encoders.load import load_encoder
from stsbench.encoders.post.chain import Chain
from stsbench.encoders.post.encoder import PostProcessed
from stsbench.errors import StsbenchError
from stsbench.training.export.fitted import fit_model

TEXTS = [*sentences(6, longest=9), "", "a"]
FITTED = sentences(24, seed=1)
DEVICE = "pretend:0"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return build(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "texts.txt"
    path.write_text("".join(f"{text}\n" for text in FITTED))
    return path


def test_it_is_fitted_and_applied_on_a_device(model, data, tmp_path):
    """With dropout on the device, whose masks are others: only its shape is compared with a fit on the CPU."""
    options, out = EncoderOptions(pooler="mean", device=DEVICE), tmp_path / "out"
    with pretend_device():
        chain = "flow:levels=1,depth=1,width=4,batch_size=8"
        fit_model(str(model), options, chain, data, out, log=lambda line: None)
        vectors = load_encoder(str(out), device=DEVICE).encode(TEXTS)
    np.testing.assert_allclose(vectors, load_encoder(str(out), device="cpu").encode(TEXTS), atol=2e-4)


@pytest.mark.parametrize("state", [
    torch.inference_mode, torch.no_grad, lambda: torch.autocast("cpu", dtype=torch.bfloat16), lambda: torch.device("meta"),
])
def test_vectors_do_not_depend_on_how_torch_is_set(model, state):
    def vectors():
        encoder = load_encoder(str(model), pooler="mean", offline=True)
        chain = Chain.parse("whitening:dimensions=8+flow:epochs=1,batch_size=8")
        return PostProcessed(encoder, chain).fit(FITTED, "x@1").encode(TEXTS)

    plain, before = vectors(), torch.get_rng_state()
    with state():
        assert np.array_equal(plain, vectors())
    assert torch.equal(torch.get_rng_state(), before)


def test_a_width_that_cannot_be_halved_is_refused_before_texts_are_read(model, tmp_path):
    with pytest.raises(StsbenchError, match="vectors whose width is a multiple of 4096"):
        fit_model(str(model), EncoderOptions(pooler="mean"), "flow:levels=12", tmp_path / "nowhere.txt", tmp_path / "out",
                  log=print)
