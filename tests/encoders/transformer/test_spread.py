"""A model that accelerate spreads: as far as one machine without a GPU has devices, the CPU's memory and the disk."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tiny_decoders import SPREAD, TEXTS, decoder_folder
from transformers import AutoModelForCausalLM

from stsbench import load_encoder
from stsbench.encoders.forward.model import main_device
from stsbench.encoders.transformer import parts
from stsbench.errors import EncoderError


@pytest.mark.parametrize(("family", "dtype"), [("llama", "float32"), ("opt", "bfloat16")])
def test_layers_on_the_disk_give_the_same_vectors(tmp_path, monkeypatch, family, dtype):
    folder = decoder_folder(tmp_path / family, family)
    monkeypatch.setattr(parts, "DEVICE_MAP", SPREAD[family])
    for pooler, layer in (("last", None), ("mean", -2)):
        whole, spread = (
            load_encoder(str(folder), pooler=pooler, layer=layer, device=device, dtype=dtype) for device in ("cpu", "auto")
        )
        model = spread.built.model
        assert {str(weight.device) for weight in model.parameters()} == {"cpu", "meta"}  # meta: on the disk
        assert main_device(model) == torch.device("cpu") and spread.spec == whole.spec
        assert np.array_equal(spread.encode(TEXTS), whole.encode(TEXTS)), pooler


def test_a_file_in_half_precision_is_read_as_asked_for(tmp_path, monkeypatch):
    folder = decoder_folder(tmp_path / "llama", "llama")
    AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float16).save_pretrained(folder)
    monkeypatch.setattr(parts, "DEVICE_MAP", SPREAD["llama"])
    for dtype in ("float32", "bfloat16"):
        spread, whole = (load_encoder(str(folder), pooler="mean", device=device, dtype=dtype) for device in ("auto", "cpu"))
        assert np.array_equal(spread.encode(TEXTS), whole.encode(TEXTS)) and spread.spec == whole.spec


def test_what_fits_is_not_spread(tmp_path):
    folder = decoder_folder(tmp_path / "llama", "llama")
    encoder = load_encoder(str(folder), pooler="last", device="auto")
    assert np.abs(encoder.encode(TEXTS) - load_encoder(str(folder), pooler="last").encode(TEXTS)).max() < 1e-6
    assert {weight.device.type for weight in encoder.built.model.parameters()} == {encoder.device.type}


def test_inputs_go_to_the_first_device_that_computes():
    spread = {"embed_tokens": "cpu", "layers.0": "cuda:1", "layers.1": "cuda:0", "norm": "disk"}
    assert main_device(SimpleNamespace(hf_device_map=spread)) == torch.device("cuda:1")
    assert main_device(SimpleNamespace(hf_device_map={"a": "disk", "b": "cpu"})) == torch.device("cpu")


def test_an_adapter_is_refused(tmp_path):
    folder = decoder_folder(tmp_path / "llama", "llama")
    (folder / "adapter_config.json").write_text('{"peft_type": "LORA", "base_model_name_or_path": "x"}', "utf-8")
    with pytest.raises(EncoderError, match=r"--device auto: .* has an adapter"):
        load_encoder(str(folder), pooler="last", device="auto").encode("Rain")
