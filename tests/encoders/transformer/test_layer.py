"""--layer, counted as transformers counts hidden states; and models that accelerate spreads, as far as one machine without
a GPU has devices: the CPU's memory and the disk."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers
from tiny_decoders import LAYERS, SPREAD, TEXTS, Naive, decoder_folder, tokenizer

from stsbench import load_encoder
from stsbench.encoders.forward.model import main_device
from stsbench.encoders.transformer import parts
from stsbench.errors import EncoderError


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("layers")
    return {family: decoder_folder(root / family, family) for family in ("llama", "opt")}


@pytest.mark.parametrize("family", ["llama", "opt"])
def test_the_layer_is_transformers_index_of_a_hidden_state(folders, family):
    model = Naive(folders[family])
    for layer in (-LAYERS - 1, -2, 1, LAYERS):
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


@pytest.mark.parametrize(("family", "dtype"), [("llama", "float32"), ("opt", "bfloat16")])
def test_layers_on_the_disk_give_the_same_vectors(tmp_path, monkeypatch, family, dtype):
    folder = decoder_folder(tmp_path / family, family)
    monkeypatch.setattr(parts, "DEVICE_MAP", SPREAD[family])
    whole, spread = (
        load_encoder(str(folder), pooler="mean", layer=-2, device=device, dtype=dtype) for device in ("cpu", "auto")
    )
    model = spread.built.model
    assert {str(weight.device) for weight in model.parameters()} == {"cpu", "meta"}  # meta: on the disk
    assert main_device(model) == torch.device("cpu") and spread.spec == whole.spec
    assert np.array_equal(spread.encode(TEXTS), whole.encode(TEXTS))


def test_inputs_go_to_the_first_device_that_computes():
    spread = {"embed_tokens": "cpu", "layers.0": "cuda:1", "layers.1": "cuda:0", "norm": "disk"}
    assert main_device(SimpleNamespace(hf_device_map=spread)) == torch.device("cuda:1")
    assert main_device(SimpleNamespace(hf_device_map={"a": "disk", "b": "cpu"})) == torch.device("cpu")


def test_an_adapter_is_refused(tmp_path):
    folder = decoder_folder(tmp_path / "llama", "llama")
    (folder / "adapter_config.json").write_text('{"peft_type": "LORA", "base_model_name_or_path": "x"}', "utf-8")
    with pytest.raises(EncoderError, match=r"--device auto: .* has an adapter"):
        load_encoder(str(folder), pooler="last", device="auto").encode("Rain")
