"""A model that accelerate spreads: as far as one machine without a GPU has devices, the CPU's memory and the disk."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tiny_decoders import SPREAD, TEXTS, decoder_folder

from stsbench import load_encoder
from stsbench.encoders.forward.model import main_device
from stsbench.encoders.transformer import parts

PRESETS = ["prompteol", "token-prepending:exit=3,layer=-2", "contrastive:at=1,layer=-2", "llm2vec", "metaeol"]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("family", SPREAD)
def test_layers_on_the_disk_give_the_same_vectors(tmp_path, monkeypatch, family, dtype):
    folder = decoder_folder(tmp_path / family, family)
    monkeypatch.setattr(parts, "DEVICE_MAP", SPREAD[family])
    for preset in PRESETS:
        whole = load_encoder(str(folder), preset=preset, device="cpu", dtype=dtype)
        spread = load_encoder(str(folder), preset=preset, device="auto", dtype=dtype)
        model = spread.built.model
        assert {str(weight.device) for weight in model.parameters()} == {"cpu", "meta"}  # meta: on the disk
        assert main_device(model) == torch.device("cpu") and spread.spec == whole.spec
        assert np.array_equal(spread.encode(TEXTS), whole.encode(TEXTS)), preset
