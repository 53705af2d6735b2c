"""--layer: which hidden state a pooler reads, counted as transformers counts them."""

import numpy as np
import pytest
import torch
import transformers
from tiny_decoders import LAYERS, TEXTS, Naive, decoder_folder, tokenizer

from stsbench import load_encoder


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("layers")
    return {family: decoder_folder(root / family, family) for family in ("llama", "opt")}


@pytest.mark.parametrize("family", ["llama", "opt"])
def test_the_layer_is_transformers_index_of_a_hidden_state(folders, family):
    model = Naive(folders[family])
    for layer in range(-LAYERS - 1, LAYERS + 1):
        vectors = load_encoder(str(folders[family]), pooler="mean", layer=layer, device="cpu").encode(TEXTS[0])
        expected = model.states(model.ids(TEXTS[0]), layer).mean(0).numpy()
        assert np.abs(vectors - expected).max() < 1e-5 * max(1, np.abs(expected).max()), layer


def test_the_last_layer_s_normed_state_is_what_is_read_without_it(folders):
    """One encoder has one fingerprint."""
    whole, same, other = (load_encoder(str(folders["llama"]), pooler="last", layer=layer) for layer in (None, -1, 2))
    assert whole.spec == same.spec and other.spec.fingerprint() != whole.spec.fingerprint()


def test_bfloat16_is_transformers_own(tmp_path):
    """Weights are rounded, and the frequencies of rotary positions are not."""
    folder = decoder_folder(tmp_path / "llama", "llama")
    model = transformers.AutoModel.from_pretrained(folder, dtype=torch.bfloat16).eval()
    text = " ".join(TEXTS * 6)
    encoder = load_encoder(str(folder), pooler="last", dtype="bfloat16", attention="padded", device="cpu")
    with torch.no_grad():
        ids = torch.tensor([tokenizer("bos")(text)["input_ids"]])
        expected = model(ids).last_hidden_state[0, -1].float().numpy()
    assert np.array_equal(encoder.encode(text), expected) and ids.shape[1] > 250
    assert encoder.built.model.rotary_emb.inv_freq.dtype == torch.float32
