"""`training.chunk`: the encoder reads a few texts at a time, and loss and gradient are those of the whole batch."""

from __future__ import annotations

import ast
import itertools

import pytest
import torch
from method_options import effect
from method_runs import RUNS, cached_place, recipe_of
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.functional import normalize

from stsbench.errors import StsbenchError
from stsbench.losses.contrastive import info_nce
from stsbench.training.modules.backbone import load_backbone, set_chunk
from stsbench.training.runs.request import TrainOptions
from stsbench.training.runs.run import train


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    yield from cached_place(tmp_path_factory.mktemp("chunk"))


def flat(value):
    """All numbers of a nested value, and all else, in order."""
    if isinstance(value, list | tuple | set):
        return [part for each in value for part in flat(each)]
    if isinstance(value, dict):
        return [part for key, each in value.items() for part in (key, *flat(each))]
    return [value]


ADAPTED = ("diffaug-adapter", "diffaug-lora")  # they act around a pass
NAMES = list({method: name for name, (method, _) in reversed(RUNS.items()) if name not in ADAPTED}.values())
OTHERS = ["diffcse-rtd", "consert", "angle-triplets", "simcse-given"]  # other views


@pytest.mark.parametrize("name", dict.fromkeys([*NAMES, *OTHERS]))
def test_without_dropout_every_method_has_the_gradient_of_the_whole_batch(place, tmp_path, name, monkeypatch):
    if name == "diffcse-rtd":  # it draws words behind the encoder's pass, and each packed pass draws the seed of its masks
        monkeypatch.setattr("stsbench.training.modules.backbone.packable", lambda model: False)
    whole, chunked = (effect(place, tmp_path / "run", name, change) for change in ({}, {"training.chunk": 4}))
    assert isinstance(chunked, str), chunked
    before, after = (flat(ast.literal_eval(text)) for text in (whole, chunked))
    for one, other in itertools.zip_longest(before, after):
        assert other == (pytest.approx(one, rel=2e-4, abs=1e-5) if isinstance(one, float) else one)


@pytest.mark.parametrize("name", ADAPTED)
def test_what_acts_around_a_pass_is_refused(place, tmp_path, name):
    error = effect(place, tmp_path / "run", name, {"training.chunk": 4})
    assert isinstance(error, StsbenchError) and "training.chunk must be null with options.module" in str(error)


def gradient(backbone, ids, mask, passes):
    """The loss of the vectors that `passes` gives, and every gradient, after one seed."""
    backbone.zero_grad()
    torch.manual_seed(0)
    vectors = normalize(passes(ids, mask), dim=1)
    loss = torch.logsumexp(vectors @ vectors.T / 0.05, 1).sum() - vectors.square().sum() / 0.05
    loss.backward()
    return loss.item(), [weight.grad.clone() for weight in backbone.parameters() if weight.grad is not None]


@pytest.mark.parametrize("engine", ["packed", "padded"])
@pytest.mark.parametrize("pooler", ["cls", "mean", "first_last:layer1"])
def test_with_dropout_it_is_one_loss_of_chunks_read_one_after_the_other(place, engine, pooler):
    """To the last bit: each chunk's masks are drawn once, and again where its gradient is computed."""
    backbone = load_backbone(place / "model", "model", pooler, 12, dropout=0.3)
    backbone.engine = engine
    texts = backbone.tokenise(["cat", "the man runs .", "blue dog", "a cat in the park eats", "dog"] * 3)
    ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(text) for text in texts], batch_first=True)
    mask = (torch.arange(ids.shape[1]) < torch.tensor([len(text) for text in texts])[:, None]).long()
    parts = [slice(start, start + 4) for start in range(0, len(ids), 4)]
    apart = gradient(backbone, ids, mask, lambda ids, mask: torch.cat([backbone.pooled(ids[at], mask[at]) for at in parts]))
    set_chunk(backbone, 4)
    chunked = gradient(backbone, ids, mask, backbone.pooled)
    assert chunked[0] == apart[0] and backbone.chunked
    assert len(chunked[1]) == len(apart[1]) and all(map(torch.equal, chunked[1], apart[1]))
    set_chunk(backbone, None)
    assert gradient(backbone, ids, mask, backbone.pooled)[0] != apart[0] and not backbone.chunked  # other draws


def test_activations_of_one_chunk_are_held_at_a_time(place):
    """Tensors that autograd keeps for the backward pass: with chunks none but those of the loss."""
    backbone = load_backbone(place / "model", "model", "cls", 12, dropout=0.0)
    ids = torch.full((64, 12), 5)

    def kept(size):
        set_chunk(backbone, size)
        numbers = []
        with saved_tensors_hooks(lambda tensor: numbers.append(tensor.numel()) or tensor, lambda tensor: tensor):
            backbone.pooled(ids, torch.ones_like(ids)).sum().backward()
        return sum(numbers)

    assert kept(8) < kept(None) / 20


def test_it_must_have_an_effect(place, tmp_path):
    recipe = recipe_of(place, "simcse", **{"training.chunk": 12})  # two views of six sentences
    options = TrainOptions(recipe=recipe, output=tmp_path / "run", device="cpu", data_dir=place / "data")
    with pytest.raises(StsbenchError, match=r"training.chunk 12 has no effect in stage main: no pass of the encoder with a"):
        train(options, lambda line: None)


def test_cached_negatives_of_sentence_transformers(place):
    """CachedMultipleNegativesRankingLoss, in float64: value and gradients."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.losses import CachedMultipleNegativesRankingLoss
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    backbone = load_backbone(place / "model", "model", "mean", 12, dropout=0.0).double()
    anchors = ["cat", "the man runs .", "blue dog", "a cat eats", "dog"]
    positives = ["a dog", "he runs", "dog .", "eats", "cat"]
    module = Transformer(str(place / "model"), max_seq_length=12)
    library = SentenceTransformer(modules=[module, Pooling(module.get_embedding_dimension())], device="cpu").double()
    library.train()
    for part in library.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    features = [library.tokenize(texts) for texts in (anchors, positives)]
    theirs = CachedMultipleNegativesRankingLoss(library, mini_batch_size=2)(features, None)
    theirs.backward()
    set_chunk(backbone, 2)
    views = [backbone.pooled(each["input_ids"], each["attention_mask"]) for each in features]
    ours = info_nce(*views)
    ours.backward()
    assert ours.item() == pytest.approx(theirs.item(), abs=1e-9)
    wanted = dict(library[0].auto_model.named_parameters())
    for name, weight in backbone.model.named_parameters():
        if weight.grad is not None:
            assert torch.allclose(weight.grad, wanted[name].grad, atol=1e-9), name
