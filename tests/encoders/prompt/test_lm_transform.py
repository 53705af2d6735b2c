"""The masked-LM transform against transformers' own modules, and what it refuses."""

import pytest
import torch
from tiny_models import SHAPE, build, tokenizer
from torch import nn
from transformers import AlbertConfig, AlbertForMaskedLM, AutoConfig, AutoModelForMaskedLM

from stsbench.encoders.forward.checkpoint import load_model
from stsbench.encoders.prompt.modules import LMTransform
from stsbench.errors import EncoderError
from stsbench.training.modules.prompting import load_transform


def with_head(folder, family, **config):
    """A tiny random model with a masked-LM head whose biases and norms are not their initial ones."""
    build(folder, family)
    torch.manual_seed(9)
    settings = AutoConfig.from_pretrained(folder, **config)
    whole = AutoModelForMaskedLM.from_config(settings)
    with torch.no_grad():
        for weight in whole.parameters():
            weight.add_(torch.randn_like(weight) * 0.2)
    whole.save_pretrained(folder)
    return whole.eval()


def theirs(whole, hidden):
    """Everything of the head before its output layer, by transformers' modules."""
    if hasattr(whole, "cls"):
        return whole.cls.predictions.transform(hidden)
    if hasattr(whole, "vocab_transform"):
        return whole.vocab_layer_norm(whole.activation(whole.vocab_transform(hidden)))
    return whole.lm_head.layer_norm(nn.functional.gelu(whole.lm_head.dense(hidden)))


@pytest.mark.parametrize(("family", "config"), [
    ("bert", {"hidden_act": "relu", "layer_norm_eps": 1e-3}), ("roberta", {"hidden_act": "relu", "layer_norm_eps": 1e-3}),
    ("distilbert", {}), ("mpnet", {}),
])
def test_equals_transformers_modules(tmp_path, family, config):
    whole = with_head(tmp_path, family, **config)
    model, _ = load_model(tmp_path, "tiny", "float32")
    made = load_transform(tmp_path, model.train(), "tiny")
    hidden = torch.randn(5, 3, 32, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(made(hidden), theirs(whole, hidden), rtol=0, atol=1e-6)
    assert made.training and all(weight.requires_grad for weight in made.parameters())
    assert {key: tuple(value.shape) for key, value in made.state_dict().items()} == {
        "dense.weight": (32, 32), "dense.bias": (32,), "norm.weight": (32,), "norm.bias": (32,),
    }
    again = LMTransform(made.width, made.activation, made.eps)
    again.load_state_dict(made.state_dict())
    torch.testing.assert_close(again(hidden), made(hidden), rtol=0, atol=0)


def test_a_folder_without_a_head_or_with_one_of_another_shape_is_refused(tmp_path):
    build(tmp_path / "none")
    tok = tokenizer("bert")
    config = AlbertConfig(**SHAPE, embedding_size=16, vocab_size=len(tok), max_position_embeddings=64)
    AlbertForMaskedLM(config).save_pretrained(tmp_path / "other")
    tok.save_pretrained(tmp_path / "other")
    for folder in (tmp_path / "none", tmp_path / "other"):
        model, _ = load_model(folder, "tiny", "float32")
        with pytest.raises(EncoderError):
            load_transform(folder, model, "tiny")
