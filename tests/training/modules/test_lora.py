"""LoRA's sets: which of them acts, and merged copies against BERT's equations written out. Gradients: test_diffaug.py."""

import copy

import method_runs
import pytest
import torch
import transformers
from bert_equations import LAYERS, Change, encode, joined, leaves, lora_of
from safetensors.torch import load_file
from tiny_models import build
from transformers import AutoModel, DistilBertConfig, DistilBertModel

from stsbench.errors import EncoderError
from stsbench.training.modules.backbone import look_ahead
from stsbench.training.modules.lora import add_lora, lora_weights, merged, using
from stsbench.training.modules.packed_training import packable

IDS = torch.tensor([[6, 9, 20, 11, 8], [7, 5, 5, 30, 12]])
START = {"bert": 0, "roberta": 2}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    place = tmp_path_factory.mktemp("lora")
    return {family: build(place / family, family, layers=LAYERS) for family in START}


def plain_model(folder):
    return AutoModel.from_pretrained(folder, dtype=torch.float32, add_pooling_layer=False).double().eval()


def model_of(folder, sets=2, rank=3, scale=1.5, learned=True):
    model = plain_model(folder)
    torch.manual_seed(3)
    add_lora(model, sets, rank, scale)
    if learned:  # B is zero in the beginning
        for weight in lora_weights(model):
            torch.nn.init.normal_(weight, std=0.3)
    return model


def states(model, ids=IDS):
    return model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state


def by_equations(family, weights, change):
    positions = list(range(START[family], START[family] + IDS.shape[1]))
    return torch.stack([encode(weights, row, positions, change) for row in IDS.tolist()])


def far(one, two):
    return (one - two).abs().max().item()


def test_what_acted_before_acts_again_after_errors_and_inside_one_another(folders):
    model = model_of(folders["bert"])
    before = states(model)
    with using(model, 0):
        first = states(model)
        with using(model, 1):
            assert far(states(model), first) > 0.01
        assert torch.equal(states(model), first)
    with using(model, 1):
        states(model).square().sum().backward()
    for name, weight in model.named_parameters():  # a set that does not act gets no gradient
        assert (weight.grad is None) == (".set0." in name), name
    with pytest.raises(KeyError), using(model, 1):
        raise KeyError
    assert torch.equal(states(model), before)
    for index in (2, -1):
        with pytest.raises(ValueError, match=f"set {index} asked for, and there are 2"), using(model, index):
            pass
        with pytest.raises(ValueError, match="asked for"):
            merged(model, index)


@pytest.mark.parametrize(("family", "which"), [("roberta", 1), ("bert", "sum"), ("roberta", "mean")])
def test_a_merged_copy_is_a_plain_model(folders, family, which, tmp_path):
    model = model_of(folders[family])
    before = copy.deepcopy(model.state_dict())
    weights = leaves(model)
    changes = lora_of(weights, 2, 1.5)
    halves = [Change(lora=change.lora, scale=0.75) for change in changes]
    change = {1: changes[1], "sum": joined(changes), "mean": joined(halves)}[which]
    with using(model, 1):
        states(model).sum().backward()
        grads = [weight.grad for weight in model.parameters()]
        found = merged(model, which)
        assert all(one is two.grad for one, two in zip(grads, model.parameters(), strict=True))
    assert all(torch.equal(before[name], weight) for name, weight in model.state_dict().items())
    assert found.state_dict().keys() == plain_model(folders[family]).state_dict().keys()
    assert packable(found) and packable(model)
    assert not any("peft" in type(part).__module__ for part in found.modules())
    assert all(weight.grad is None and weight.requires_grad for weight in found.parameters())
    assert far(states(found), by_equations(family, weights, change)) < 1e-9
    found.save_pretrained(tmp_path)
    again = AutoModel.from_pretrained(tmp_path, dtype=torch.float64, add_pooling_layer=False).eval()
    assert far(states(again), states(found)) < 1e-12
    assert {path.name for path in tmp_path.iterdir()} == {"config.json", "model.safetensors"}


def test_other_models_are_refused_in_one_line():
    small = DistilBertModel(DistilBertConfig(dim=8, n_layers=1, n_heads=2, hidden_dim=8, vocab_size=9))
    with pytest.raises(EncoderError, match=r"^LoRA needs a BERT or RoBERTa model with query and value layers, not a Distil"):
        add_lora(small, 2, 4, 1.0)


def test_what_a_method_freezes_stays_frozen_below_its_changes_too(tmp_path):
    place = method_runs.make_place(tmp_path)
    recipe = method_runs.recipe_of(place, "promptbert-words", **{"backbone.lora": {"rank": 2}})
    with pytest.raises(method_runs.Stopped):
        method_runs.train(recipe, tmp_path / "run", place, callback=method_runs.StopAt(2))
    (weights,) = sorted((tmp_path / "run" / "checkpoints").glob("0-main-*1/model.safetensors"))
    changes = {name: weight for name, weight in load_file(weights).items() if "lora_B.backbone" in name}
    assert changes and all(not weight.any() for weight in changes.values())


@pytest.mark.parametrize(("kind", "more"), [
    ("Lfm2", {"layer_types": ["conv", "full_attention"]}),  # its convolutions look back alone
    ("Llama4Text", {"attention_chunk_size": 4}),  # above four tokens it is causal again
    ("Mpt", {"n_heads": 4, "d_model": 32, "n_layers": 2}),
])
def test_a_model_that_looks_ahead_in_part_is_refused(kind, more):
    shape = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
             "num_key_value_heads": 2, "head_dim": 8, "pad_token_id": 0, **more}
    model = getattr(transformers, f"{kind}Model")(getattr(transformers, f"{kind}Config")(**shape))
    with pytest.raises(EncoderError, match=f"a {kind}Model cannot be switched to both directions"):
        look_ahead(model, "m")
