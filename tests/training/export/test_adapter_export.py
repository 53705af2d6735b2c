"""backbone.lora of three families: its gradients follow from those of the changed weights, and the change alone,
RUN/adapter, gives every reader the vectors of the whole export."""

import json

import numpy as np
import pytest
import torch
from families import family_model
from method_runs import train
from peft import PeftModel
from sentence_transformers import SentenceTransformer
from tiny_decoders import tokenizer
from tiny_models import sentences
from transformers import AutoModel, AutoTokenizer

from stsbench.encoders.load import load_encoder
from stsbench.encoders.transformer.exported import read_with_layout
from stsbench.training.modules.backbone import load_backbone
from stsbench.training.modules.lora import merged_state
from stsbench.training.recipes.recipes import load_recipe

FAMILIES = {"llama": "last", "modernbert": "mean", "mpnet": "cls"}  # and the pooler
TEXTS = ["cat", "the man runs .", "a dog with a guitar"]
SCALE = 3.0


@pytest.fixture(scope="module", params=FAMILIES)
def model(request, tmp_path_factory):
    """(folder, pooler)"""
    folder, words = tmp_path_factory.mktemp("lora") / request.param, tokenizer("eos")
    words.pad_token = words.convert_ids_to_tokens(1)  # MPNet counts positions by this id, whatever its config says
    family_model(request.param, vocab_size=len(words)).save_pretrained(folder)
    words.save_pretrained(folder)
    return folder, FAMILIES[request.param]


def test_gradients_are_those_of_the_changed_weights(model):
    folder, pooler = model
    torch.manual_seed(0)
    changed = load_backbone(folder, "x", pooler, lora={"rank": 2, "alpha": 2 * SCALE, "dropout": 0.0}, dropout=0.0).double()
    for name, weight in changed.model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.2)
    plain = load_backbone(folder, "x", pooler, dropout=0.0).double()
    plain.model.load_state_dict(merged_state(changed.model))
    ids = torch.tensor([[7, 9, 12, 8], [6, 6, 20, 9]])
    for backbone in (changed, plain):
        backbone.pooled(ids, torch.ones_like(ids)).square().sum().backward()
    weights, before = dict(changed.model.named_parameters()), dict(plain.model.named_parameters())
    trained = [name for name, weight in weights.items() if weight.requires_grad]
    assert trained and all("lora_" in name for name in trained)
    for name in trained:
        path, _, part = name.partition(".lora_")
        other = weights[f"{path}.lora_{'B' if part[0] == 'A' else 'A'}.backbone.weight"].detach()
        gradient = before[f"{path}.weight"].grad
        if gradient is not None:  # a pooling layer that is in no vector
            wanted = SCALE * (other.T @ gradient if part[0] == "A" else gradient @ other.T)
            assert (weights[name].grad - wanted).norm() <= 2e-5 * wanted.norm()  # norms of a decoder are of float32


def test_the_change_alone_gives_every_reader_the_vectors_of_the_export(model, tmp_path):
    folder, pooler = model
    (tmp_path / "text.txt").write_text("\n".join(sentences(30, longest=9)) + "\n", "utf-8")
    values = {"backbone.model": str(folder), "backbone.pooler": pooler, "backbone.lora": {"rank": 2}, "options.head": "none",
              "data.file": str(tmp_path / "text.txt"), "training.batch_size": 10, "training.max_steps": 2,
              "training.learning_rate": 0.05, "precision": "float32", "selection.by": "none", "backbone.dropout": 0.1}
    sets = [f"{key}={json.dumps(value)}" for key, value in values.items()]
    train(load_recipe("simcse", "unsup-bert-base", sets), tmp_path / "run", tmp_path)
    best, adapter = tmp_path / "run" / "best", tmp_path / "run" / "adapter"
    vectors = load_encoder(str(best), device="cpu").encode(TEXTS)
    assert np.abs(load_encoder(str(folder), pooler=pooler, device="cpu").encode(TEXTS) - vectors).max() > 1e-3
    assert np.abs(load_encoder(str(adapter), device="cpu").encode(TEXTS) - vectors).max() < 1e-5
    assert np.abs(SentenceTransformer(str(adapter), device="cpu").encode(TEXTS) - vectors).max() < 1e-5
    read = PeftModel.from_pretrained(AutoModel.from_pretrained(folder), adapter)
    words = AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        states = [read(**words(text, return_tensors="pt")).last_hidden_state[0] for text in TEXTS]
    of_text = {"last": lambda state: state[-1], "mean": lambda state: state.mean(0), "cls": lambda state: state[0]}[pooler]
    assert np.abs(torch.stack([of_text(state) for state in states]).numpy() - vectors).max() < 1e-5
    assert read_with_layout(adapter)[0].recipe == read_with_layout(best)[0].recipe  # and what the weights were trained on
    size = sum(path.stat().st_size for path in adapter.glob("*.safetensors"))
    assert size < (best / "model.safetensors").stat().st_size / 2 and not (adapter / "model.safetensors").exists()
