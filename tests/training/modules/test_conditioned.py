"""The transformer that reads a vector in slot 0, of any family. Its states and gradients: the equations of DiffCSE."""

from __future__ import annotations

import copy

import pytest
import torch
import transformers
from tiny_models import build

from stsbench.errors import EncoderError
from stsbench.training.modules.backbone import Backbone, load_backbone
from stsbench.training.modules.copies import Conditioned

LENGTHS = (5, 9, 2, 9, 1, 7)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return Conditioned(load_backbone(build(tmp_path_factory.mktemp("tiny")), "bert", dropout=0.0)).double()


def batch(lengths=LENGTHS):
    """Tokens, the mask, and vectors much larger than embeddings are."""
    draw = torch.Generator().manual_seed(1)
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(1)).long()
    ids = torch.where(mask == 1, torch.randint(3, 60, mask.shape, generator=draw), 0)
    first = torch.randn(len(lengths), 32, generator=draw, dtype=torch.float64) * 3
    return ids, mask, first.requires_grad_()


SHAPE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48, "vocab_size": 60}
OTHERS = {  # family -> its name in transformers, its embeddings' width, its first layer
    "electra": ("Electra", 20, "encoder.layer.0"),
    "albert": ("Albert", 20, "encoder.albert_layer_groups.0"), "deberta": ("DebertaV2", 32, "encoder.layer.0"),
}


@pytest.mark.parametrize("family", ["distilbert", *OTHERS])
def test_the_first_layer_of_any_family_reads_the_vector_and_the_other_embeddings(tmp_path, family):
    torch.manual_seed(3)
    if family in OTHERS:
        name, width, layer = OTHERS[family]
        config = getattr(transformers, f"{name}Config")(**SHAPE, embedding_size=width, pad_token_id=0)
        model = getattr(transformers, f"{name}Model")(config)
        model.pooler = None
    else:
        model, layer = load_backbone(build(tmp_path, family), family, dropout=0.0).model, "transformer.layer.0"
    module = Conditioned(Backbone(model, None)).double().eval()
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
        gradient = torch.autograd.grad((states[:, 0] * direction).sum(), first)[0]
        assert gradient.abs().amax(1).min().item() > 1e-6
    hook.remove()
    with torch.no_grad():
        assert torch.equal(module.model(input_ids=ids, attention_mask=mask).last_hidden_state, plain)


@pytest.mark.parametrize("padding", [True, False])
def test_no_dropout_touches_the_vector_on_its_way_in(tiny, padding):
    module = copy.deepcopy(tiny)
    module.model.embeddings.dropout.p = 0.9
    ids, mask, first = batch((1, 1, 1, 4))
    states = {}
    for training in (True, False):
        states[training] = module.train(training)(ids, mask, first, padding)[:, 0]
    gap = (states[True] - states[False]).abs().amax(1)
    assert gap[:3].max().item() < 1e-12  # rows of slot 0 alone
    assert gap[3].item() > 1e-2  # elsewhere the embeddings' dropout acts


def test_vectors_of_another_shape_and_models_without_an_entrance_are_refused(tiny):
    ids, mask, first = batch()
    for wrong in (first[:, :31], first[:-1], first[0]):
        for padding in (True, False):
            with pytest.raises(ValueError, match="6 rows and width 32 need vectors of that shape"):
                tiny(ids, mask, wrong, padding)
    config = transformers.T5Config(vocab_size=60, d_model=32, d_kv=8, d_ff=48, num_layers=1, num_heads=4)
    with pytest.raises(EncoderError, match=r"^no vector can be put in the place of a token of T5EncoderModel"):
        Conditioned(Backbone(transformers.T5EncoderModel(config), None))


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
