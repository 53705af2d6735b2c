"""Heads against transformers' own masked-LM classes: the same logits at chosen positions, before and after a round trip.
The transformer that reads a vector in slot 0, of any family. Its states and gradients: the equations of DiffCSE."""

import copy
import json

import pytest
import torch
import transformers
from families import family_model
from safetensors.torch import load_file, save_file
from tiny_models import build, headed
from transformers import AutoModel, AutoModelForMaskedLM

from stsbench.encoders.forward.checkpoint import load_model
from stsbench.errors import EncoderError
from stsbench.training.modules.backbone import Backbone, load_backbone
from stsbench.training.modules.copies import Conditioned
from stsbench.training.modules.masked_lm import LMHead, as_masked_lm

IDS = torch.tensor([[2, 7, 9, 11, 3, 8], [2, 12, 6, 5, 4, 3]])
CHOSEN = torch.tensor([[0, 1, 0, 0, 1, 0], [1, 0, 0, 0, 0, 1]]).bool()


@pytest.fixture
def bare(request, tmp_path):
    """An encoder of two layers of a family, BERT unless another is asked for."""
    return build(tmp_path / "bare", getattr(request, "param", "bert"), layers=2)


def encoder(folder):
    return load_model(folder, "it", "float32")[0].requires_grad_(True)


def reference(folder):
    """(m, V) logits at the chosen positions, by transformers."""
    with torch.no_grad():
        return AutoModelForMaskedLM.from_pretrained(folder).eval()(input_ids=IDS).logits[CHOSEN]


def logits(model, head):
    with torch.no_grad():
        return head(model(input_ids=IDS).last_hidden_state[CHOSEN])


def close(ours, theirs):
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def change(model, head):
    """A step of training: every parameter moves, each by its own numbers."""
    torch.manual_seed(11)
    with torch.no_grad():
        for weight in {*model.parameters(), *head.parameters()}:
            weight.add_(torch.randn_like(weight), alpha=0.1)


def round_trip(folder, model, head):
    """Export, and load again in both ways: the logits and the vectors that come back are those that went."""
    model.eval()
    as_masked_lm(model, head).save_pretrained(folder)
    close(reference(folder), logits(model, head))
    plain = AutoModel.from_pretrained(folder).eval()
    stored = plain.state_dict()
    assert all(torch.equal(stored[name], weight) for name, weight in model.state_dict().items() if "pooler" not in name)
    with torch.no_grad():
        close(plain(input_ids=IDS).last_hidden_state, model(input_ids=IDS).last_hidden_state)
    again = encoder(folder)
    same = LMHead.load(folder, again, "again", tied=True)
    assert same.stored
    close(logits(again, same), logits(model, head))
    return again, same


@pytest.mark.parametrize(("family", "tied"), [("bert", True), ("roberta", False), ("Albert", True), ("ModernBert", True)])
def test_a_stored_head_gives_transformers_logits(tmp_path, family, tied):
    folder = tmp_path / "head"
    if family in ("bert", "roberta"):
        headed(folder, family)
    else:
        torch.manual_seed(1)
        config = getattr(transformers, f"{family}Config")(
            vocab_size=40, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
            embedding_size=16, pad_token_id=0, max_position_embeddings=32)
        getattr(transformers, f"{family}ForMaskedLM")(config).save_pretrained(folder)
    model = encoder(folder)
    head = LMHead.load(folder, model, "it", tied)
    assert head.stored and (head.decoder.weight is model.get_input_embeddings().weight) == tied
    close(logits(model, head), reference(folder))
    change(model, head)
    again, same = round_trip(tmp_path / "out", model, head)
    assert (same.decoder.weight is again.get_input_embeddings().weight) == tied


@pytest.mark.parametrize(("bare", "tied"), [("distilbert", False), ("mpnet", True)], indirect=["bare"])
def test_a_made_head_starts_from_the_embeddings(bare, tied):
    model = encoder(bare)
    torch.manual_seed(0)
    head = LMHead.load(bare, model, "it", tied)
    words = model.get_input_embeddings().weight
    assert not head.stored and torch.equal(head.decoder.weight, words) and (head.decoder.weight is words) == tied
    square = [weight for weight in head.parameters() if weight.shape == (32, 32)]
    assert len(square) == 1 and square[0].std().item() == pytest.approx(0.3, rel=0.1)  # the models' initializer_range
    vectors = [weight for weight in head.parameters() if weight.ndim == 1]
    assert vectors and all(torch.equal(weight, torch.full_like(weight, weight[0].item())) for weight in vectors)
    head.train()(model(input_ids=IDS).last_hidden_state[CHOSEN]).logsumexp(1).sum().backward()
    assert [name for name, weight in head.named_parameters() if weight.grad is None] == []
    change(model, head.eval())
    round_trip(bare.parent / "out", model, head)
    config = json.loads((bare.parent / "out" / "config.json").read_text())
    assert config.get("tie_word_embeddings", True) == tied and config["architectures"][0].endswith("ForMaskedLM")


def test_export_leaves_what_is_frozen_frozen(bare):
    """The embeddings are the output layer, too."""
    frozen = encoder(bare).requires_grad_(False)
    head = LMHead.load(bare, frozen, "it", tied=True)
    as_masked_lm(frozen, head)
    assert not any(weight.requires_grad for weight in frozen.parameters())
    assert any(weight.requires_grad for weight in head.parameters())


def test_an_output_layer_of_its_own_is_kept_even_where_ties_are_asked_for(tmp_path):
    """Also of an old checkpoint with one bias. Half a head is refused."""
    folder = headed(tmp_path / "head", tied=False)
    model = encoder(folder)
    head = LMHead.load(folder, model, "it", tied=True)
    assert head.decoder.weight is not model.get_input_embeddings().weight
    close(logits(model, head), reference(folder))
    weights = load_file(folder / "model.safetensors")
    weights["cls.predictions.bias"] = weights.pop("cls.predictions.decoder.bias")
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    head = LMHead.load(folder, encoder(folder), "it", tied=False)
    assert head.stored and torch.equal(head.decoder.bias, weights["cls.predictions.bias"])
    gone = next(name for name in weights if "norm" in name.lower() and name.startswith("cls"))
    del weights[gone]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(EncoderError, match=f"it stores half a masked-LM head: it lacks {gone}"):
        LMHead.load(folder, encoder(folder), "it", True)


def test_a_step_between_encoder_and_head_is_noticed(tmp_path, monkeypatch):
    folder = headed(tmp_path / "head")
    model = encoder(folder)
    plain = transformers.BertForMaskedLM.forward

    def doubled(self, **given):
        output = plain(self, **given)
        output.logits = output.logits * 2
        return output

    monkeypatch.setattr(transformers.BertForMaskedLM, "forward", doubled)
    with pytest.raises(EncoderError, match="BertForMaskedLM does more than its head"):
        LMHead.load(folder, model, "it", True)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return Conditioned(load_backbone(build(tmp_path_factory.mktemp("tiny")), "bert", dropout=0.0)).double()


def batch(lengths=(5, 9, 2, 9, 1, 7)):
    """Tokens, the mask, and vectors much larger than embeddings are."""
    draw = torch.Generator().manual_seed(1)
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(1)).long()
    ids = torch.where(mask == 1, torch.randint(3, 60, mask.shape, generator=draw), 0)
    return ids, mask, (torch.randn(len(lengths), 32, generator=draw, dtype=torch.float64) * 3).requires_grad_()


@pytest.mark.parametrize(("family", "layer"), [
    ("distilbert", "transformer.layer.0"), ("electra", "encoder.layer.0"), ("albert", "encoder.albert_layer_groups.0"),
    ("deberta-v2", "encoder.layer.0")])
def test_the_first_layer_of_any_family_reads_the_vector_and_the_other_embeddings(family, layer):
    module = Conditioned(Backbone(family_model(family), None)).double().eval()
    assert module.width == 32
    read = []

    def keep(_, args, kwargs):
        read.append(args[0] if args else kwargs["hidden_states"])

    hook = module.model.get_submodule(layer).register_forward_pre_hook(keep, with_kwargs=True)
    ids, mask, first = batch()
    direction = torch.randn(32, dtype=torch.float64)
    with torch.no_grad():
        plain = module.model(input_ids=ids, attention_mask=mask).last_hidden_state
    before = read[0]
    for padding in (True, False):
        read.clear()
        states = module(ids, mask, first, padding)
        assert torch.equal(read[0][:, 0], first) and torch.equal(read[0][:, 1:], before[:, 1:])
        assert states.shape == (*ids.shape, 32)
        assert (states - plain)[mask.bool()].abs().max().item() > 0.1
        assert torch.autograd.grad((states[:, 0] * direction).sum(), first)[0].abs().amax(1).min().item() > 1e-6
    hook.remove()
    with torch.no_grad():
        assert torch.equal(module.model(input_ids=ids, attention_mask=mask).last_hidden_state, plain)


@pytest.mark.parametrize("padding", [True, False])
def test_no_dropout_touches_the_vector_on_its_way_in(tiny, padding):
    module = copy.deepcopy(tiny)
    module.model.embeddings.dropout.p = 0.9
    ids, mask, first = batch((1, 1, 1, 4))
    states = {training: module.train(training)(ids, mask, first, padding)[:, 0] for training in (True, False)}
    gap = (states[True] - states[False]).abs().amax(1)
    assert gap[:3].max().item() < 1e-12  # rows of slot 0 alone
    assert gap[3].item() > 1e-2  # elsewhere the embeddings' dropout acts


def test_vectors_of_another_shape_are_refused(tiny):
    ids, mask, first = batch()
    for wrong in (first[:, :31], first[:-1], first[0]):
        for padding in (True, False):
            with pytest.raises(ValueError, match="6 rows and width 32 need vectors of that shape"):
                tiny(ids, mask, wrong, padding)


@pytest.mark.parametrize("padding", [True, False])
def test_the_copy_shares_nothing_with_the_encoder(tmp_path, padding):
    backbone = load_backbone(build(tmp_path), "bert")
    backbone.model.requires_grad_(False)
    module = Conditioned(backbone).train()
    own, others = list(module.parameters()), list(backbone.parameters())
    assert len(own) == len(list(backbone.model.parameters())) > 40
    assert all(torch.equal(one, other) for one, other in zip(own, backbone.model.parameters(), strict=True))
    assert not {one.data_ptr() for one in own} & {other.data_ptr() for other in others}
    ids, mask, first = batch((1, 1))
    module(ids, mask, first.float(), padding).square().sum().backward()
    assert all(weight.grad is not None for weight in own)  # of single tokens, too, where DDP asks for each of them
    assert all(weight.grad is None for weight in others)
