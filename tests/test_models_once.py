"""The copies that tests have in the place of models read from a folder are what transformers would read there."""

import json
from contextlib import nullcontext

import pytest
import tiny_models
import torch
from clirun import refuses
from safetensors.torch import load_file, save_file
from transformers import BertForMaskedLM, BertModel, PreTrainedModel, RobertaModel

from stsbench.encoders.forward.checkpoint import check_weights
from stsbench.errors import EncoderError


def read(kind, folder, real=False):
    """(model, what is missing, torch's generator afterwards); real: by transformers itself."""
    torch.manual_seed(3)
    load = PreTrainedModel.from_pretrained.__func__
    model, info = (load.__wrapped__ if real else load)(kind, str(folder), output_loading_info=True)
    return model, info, torch.get_rng_state()


def same(first, second):
    one, two = first.state_dict(), second.state_dict()
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize(("kind", "pooler"), [(BertModel, True), (RobertaModel, False), (BertForMaskedLM, False)])
def test_a_copy_is_what_would_be_read(tmp_path, kind, pooler):
    """Weights that the folder lacks are drawn in each copy, and the generator moves on as far."""
    for name in ("one", "other"):
        tiny_models.build(tmp_path / name, "roberta" if kind is RobertaModel else "bert", pooler=pooler)
    read(kind, tmp_path / "one")
    first = read(kind, tmp_path / "one")[0]
    copied, info, state = read(kind, tmp_path / "other")
    model, expected, after = read(kind, tmp_path / "other", real=True)
    assert same(copied, model) and info == expected and torch.equal(state, after)
    assert copied.config.to_dict() == model.config.to_dict() and copied.name_or_path == model.name_or_path
    assert all(weight.requires_grad for weight in copied.parameters())
    assert not any(module.training for module in copied.modules())
    with torch.no_grad():
        next(copied.parameters()).add_(1)
    assert same(read(kind, tmp_path / "other")[0], model) and not same(copied, first)


def test_other_names_or_sizes_are_checked_anew(tmp_path):
    """Where names and shapes alone are looked at: both are, in each state of a folder."""
    folder = tiny_models.build(tmp_path / "tiny")
    assert check_weights(folder, "tiny") == check_weights(folder, "tiny") == set()
    weights, config = load_file(folder / "model.safetensors"), (folder / "config.json").read_text("utf-8")
    for name, said in (("pooler.dense.bias", None), ("embeddings.LayerNorm.bias", "lacks 1 of its weights")):
        left = {key: value for key, value in weights.items() if key != name}
        save_file(left, folder / "model.safetensors", {"format": "pt"})
        with pytest.raises(EncoderError, match=said) if said else nullcontext():
            assert check_weights(folder, "tiny") == {name}
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps({**json.loads(config), "vocab_size": 10**7}), "utf-8")
    refuses(EncoderError, "the sizes are of a model with", check_weights, folder, "tiny")
