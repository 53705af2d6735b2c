"""backbone.layers: the model is the one whose folder holds these layers alone."""

import json
import re
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from shipped_recipes import one_line
from tiny_models import build
from transformers import AutoModel, GPT2Config, GPT2Model

from stsbench.encoders.forward.model import keep_layers
from stsbench.training.modules.backbone import load_backbone

IDS = torch.tensor([[5, 6, 7, 8, 9, 4], [9, 8, 7, 6, 0, 0]])
MASK = torch.tensor([[1] * 6, [1] * 4 + [0] * 2])


def folder_of(source, target, layers):
    """A copy whose files hold these layers alone, by their new numbers."""
    shutil.copytree(source, target)
    config = json.loads((source / "config.json").read_text("utf-8"))
    config["n_layers" if "n_layers" in config else "num_hidden_layers"] = len(layers)
    (target / "config.json").write_text(json.dumps(config), "utf-8")
    kept = {}
    for key, value in load_file(source / "model.safetensors").items():
        match = re.match(r"(.*\blayer\.)(\d+)(\..*)", key)
        if match is None:
            kept[key] = value
        elif int(match[2]) in layers:
            kept[f"{match[1]}{layers.index(int(match[2]))}{match[3]}"] = value
    save_file(kept, target / "model.safetensors", {"format": "pt"})
    return target


@pytest.mark.parametrize(("family", "layers"), [
    ("roberta", [0]), ("mpnet", [0, 2, 3]), ("distilbert", [1, 3])])
def test_it_is_the_model_whose_folder_holds_these_layers(tmp_path, family, layers):
    source = build(tmp_path / "whole", family, layers=4)
    other = AutoModel.from_pretrained(folder_of(source, tmp_path / "part", layers)).eval()
    for engine in ("auto", "padded"):
        backbone = load_backbone(source, "tiny", "mean", dropout=0.0, layers=layers)
        backbone.engine = engine
        with torch.no_grad():
            states = backbone.eval()(IDS, MASK, (0, -1))
            expected = other(input_ids=IDS, attention_mask=MASK, output_hidden_states=True).hidden_states
        real = MASK.bool()
        for state, known in zip(states, (expected[0], expected[-1]), strict=True):
            assert torch.allclose(state[real], known[real], rtol=0, atol=1e-5)
    assert backbone.model.config.num_hidden_layers == len(layers)


def test_layers_that_are_what_their_number_makes_them_are_refused():
    model = GPT2Model(GPT2Config(n_layer=3, n_head=2, n_embd=8, vocab_size=30, scale_attn_by_inverse_layer_idx=True))
    one_line(lambda: keep_layers(model, [0, 2], "tiny", "backbone.layers"), "differ by their number")
    plain = GPT2Model(GPT2Config(n_layer=3, n_head=2, n_embd=8, vocab_size=30))
    plain.config.layer_kinds = ["local", "global", "local"]
    one_line(lambda: keep_layers(plain, [0, 2], "tiny", "backbone.layers"), "differ by their number (layer_kinds)")
    plain.config.layer_kinds = ["local", "local", "local"]
    keep_layers(plain, [0, 2], "tiny", "backbone.layers")
    assert plain.config.layer_kinds == ["local", "local"] and plain.config.n_layer == 2
    assert [block.attn.layer_idx for block in plain.h] == [0, 1]
