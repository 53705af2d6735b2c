"""Adapters against BERT's equations written out (sets by row, their sum, gradients, files, and hooks that never stay), and
the masked-LM transform."""

import copy
from types import SimpleNamespace

import pytest
import torch
from bert_equations import LAYERS, WIDTH, adapters_of, encode, joined, leaves
from safetensors.torch import load_file, load_model, save_file, save_model
from tiny_models import build
from torch import nn
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM

from stsbench.encoders.forward import checkpoint
from stsbench.encoders.prompt.modules import Bottlenecks, LMTransform, attached
from stsbench.training.modules.packed_training import packable
from stsbench.training.modules.prompting import load_transform

START = {"bert": 0, "roberta": 2}
LENGTHS = [7, 4, 1, 6, 3]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    place = tmp_path_factory.mktemp("bottlenecks")
    return {family: build(place / family, family, layers=LAYERS) for family in START}


def model_of(folder):
    return AutoModel.from_pretrained(folder, dtype=torch.float32, add_pooling_layer=False).double().eval()


def adapters(config, **options):
    """With weights that change every vector."""
    torch.manual_seed(3)
    parts = Bottlenecks(config, **options).double()
    for weight in parts.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    return parts


def batch(pad):
    generator = torch.Generator().manual_seed(5)
    mask = (torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]).long()
    return torch.randint(5, 30, mask.shape, generator=generator).masked_fill(mask == 0, pad), mask


def padded(model, ids, mask):
    states = model(input_ids=ids, attention_mask=mask).last_hidden_state
    return [row[:length] for row, length in zip(states, LENGTHS, strict=True)]


def all_close(actual, expected):
    assert max((one - two).abs().max().item() for one, two in zip(actual, expected, strict=True)) < 1e-9


@pytest.mark.parametrize(("family", "activation", "which"), [
    ("bert", "relu", "rows"), ("roberta", "gelu", "rows"), ("roberta", "relu", "sum"), ("bert", "gelu", 1)])
def test_states_and_gradients_are_those_of_the_equations(folders, family, activation, which):
    model = model_of(folders[family])
    parts = adapters(model.config, rank=3, activation=activation)
    ids, mask = batch(model.config.pad_token_id)
    rows = torch.tensor([0, 1, 1, 0, 1])
    weights, (down, up) = leaves(model), (weight.detach().clone().requires_grad_() for weight in (parts.down, parts.up))
    sets = adapters_of(down, up, activation)
    changes = [{"rows": sets[row], "sum": joined(sets), 1: sets[1]}[which] for row in rows.tolist()]
    # [row] (L, d): row i under changes[i].
    start = START[family]
    expected = [encode(weights, ids[i, :length].tolist(), list(range(start, start + length)), changes[i])
                for i, length in enumerate(LENGTHS)]
    with attached(model, parts, rows if which == "rows" else which):
        actual = padded(model, ids, mask)
    all_close(actual, expected)
    single = {"sum": parts.summed, 1: lambda: parts.one(1)}.get(which)
    if single is not None:  # a sum is one set of the joint rank, and one set is itself
        assert single().sets == 1 and single().rank == (6 if which == "sum" else 3)
        for way in (0, "sum", torch.zeros(len(ids), dtype=torch.long)):
            with attached(model, single(), way):
                all_close(padded(model, ids, mask), expected)
        assert not any(weight.data_ptr() == parts.down.data_ptr() for weight in single().parameters())
    factors = torch.randn(sum(LENGTHS), WIDTH, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for states in (actual, expected):
        (torch.cat(states) * factors).sum().backward()  # after the hooks have gone
    all_close([parts.down.grad, parts.up.grad], [down.grad, up.grad])
    if which == 1:
        assert not parts.down.grad[0].any() and not parts.up.grad[0].any()
    all_close([weight.grad for weight in model.parameters()], [weights[name].grad for name, _ in model.named_parameters()])


def test_they_start_as_the_model_alone_and_learn_from_the_first_step(folders):
    model = model_of(folders["bert"])
    parts = Bottlenecks(model.config).double()
    ids, mask = batch(model.config.pad_token_id)
    plain = padded(model, ids, mask)
    with attached(model, parts, torch.tensor([0, 1, 0, 1, 0])):
        actual = padded(model, ids, mask)
    assert all(torch.equal(one, two) for one, two in zip(actual, plain, strict=True))
    torch.cat(actual).square().sum().backward()
    assert parts.up.grad.abs().amin(0).sum() > 0 and parts.down.detach().std().item() == pytest.approx(0.3, rel=0.1)


def test_hooks_are_seen_and_go_even_after_an_error(folders):
    model = model_of(folders["bert"])
    parts = adapters(model.config)
    assert packable(model)
    with pytest.raises(KeyError), attached(model, parts, "sum"):
        assert not packable(model)  # so that training takes the padded pass
        raise KeyError
    assert packable(model)
    ids, mask = batch(model.config.pad_token_id)
    with pytest.raises(ValueError, match="sets of 3 rows"), attached(model, parts, torch.tensor([0, 1, 0])):
        padded(model, ids, mask)
    for absent in (2, torch.tensor([0, -1, 0, 0, 0])):
        with pytest.raises(ValueError, match="asked for"), attached(model, parts, absent):
            pass
    assert packable(model)


@pytest.mark.parametrize(("rank", "share"), [(4, 0.27), (64, 4.31)])
def test_added_weights_for_bert_base(rank, share):
    """The paper says .3 % and 4.8 %: 294,912 weights, as many as two prefixes of 8, and 16 times the rounded share."""
    with torch.device("meta"):
        parts = Bottlenecks(SimpleNamespace(num_hidden_layers=12, hidden_size=768), rank=rank)
    added = sum(weight.numel() for weight in parts.parameters())
    assert added == 294_912 * rank // 4
    assert round(100 * added / 109_482_240, 2) == share  # BERT-base with its pooling layer


def test_they_survive_files_and_copies(folders, tmp_path):
    config = SimpleNamespace(num_hidden_layers=3, hidden_size=32)
    parts = adapters(config, rank=5, activation="gelu")
    save_file(parts.tensors(), tmp_path / "prompt.safetensors")
    back = Bottlenecks.load(parts.settings(), load_file(tmp_path / "prompt.safetensors"))
    assert back.settings() == parts.settings() and back.down.dtype == torch.float64 and back.down.requires_grad
    assert torch.equal(back.down, parts.down) and torch.equal(back.up, parts.up)
    save_model(parts, str(tmp_path / "model.safetensors"))
    other = Bottlenecks(config, rank=5, activation="gelu").double()
    load_model(other, str(tmp_path / "model.safetensors"))
    assert torch.equal(other.down, parts.down) and torch.equal(copy.deepcopy(parts).up, parts.up)


# ---- the masked-LM transform, against transformers' own modules


def with_head(folder, family, **config):
    """A tiny random model with a masked-LM head whose biases and norms are not their initial ones."""
    build(folder, family)
    torch.manual_seed(9)
    whole = AutoModelForMaskedLM.from_config(AutoConfig.from_pretrained(folder, **config))
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
    ("distilbert", {})])
def test_equals_transformers_modules(tmp_path, family, config):
    whole = with_head(tmp_path, family, **config)
    model, _ = checkpoint.load_model(tmp_path, "tiny", "float32")
    made = load_transform(tmp_path, model.train(), "tiny")
    hidden = torch.randn(5, 3, 32, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(made(hidden), theirs(whole, hidden), rtol=0, atol=1e-6)
    assert made.training and all(weight.requires_grad for weight in made.parameters())
    assert {key: tuple(value.shape) for key, value in made.state_dict().items()} == {
        "dense.weight": (32, 32), "dense.bias": (32,), "norm.weight": (32,), "norm.bias": (32,)}
    again = LMTransform(made.width, made.activation, made.eps)
    again.load_state_dict(made.state_dict())
    torch.testing.assert_close(again(hidden), made(hidden), rtol=0, atol=0)
