"""Contrastive Tension: which pairs its encoders read, sentence-transformers' losses, and the encoder that is kept."""

import pytest
import tiny_models
import torch
from method_oracle import MemoryRows, batch_of, make, tokens
from method_runs import make_place, recipe_of, train
from sentence_transformers import SentenceTransformer, util
from sentence_transformers.sentence_transformer import losses as library
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

from stsbench.methods.ct.method import ContrastiveTension, pair_up
from stsbench.training.engine.optimiser import make_optimiser
from stsbench.training.recipes.sections import TrainingSettings
from stsbench.training.runs.finish import load_trained

TEXTS = tiny_models.sentences(40, longest=9, seed=3)
SIZES = {("fresh", 1): 3, ("fresh", 7): 15, ("consecutive", 2): 5, ("anchor", 3): 4}  # negatives, k -> sentences of a group


@pytest.fixture
def folder(encoders):
    return encoders["bert"]


def ct(folder, *, apart=True, **options):
    """The method in float64; apart: model1 a little away from where both start, so that a mix-up shows."""
    method = make(ContrastiveTension, folder, options, pooler="mean")
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for weight in method.first.parameters():
            weight += apart * 0.05 * torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
    return method


def rows(folder, count):
    return MemoryRows(folder, {"sentence": TEXTS[:count]})


def drawn(texts, negatives, k):
    """[(what model1 reads, what model2 reads, label)] of groups that follow one another."""
    texts, pairs = list(texts), []
    while texts:
        sentence = texts.pop(0)
        pairs.append((sentence, sentence, 1))
        if negatives == "fresh":
            first, second = ([texts.pop(0) for _ in range(k)] for _ in range(2))
            pairs += [(a, b, 0) for a, b in zip(first, second, strict=True)]
        elif negatives == "consecutive":
            pairs += [(texts.pop(0), texts.pop(0), 0) for _ in range(k)]
        else:
            pairs += [(sentence, texts.pop(0), 0) for _ in range(k)]
    return pairs


@pytest.mark.parametrize(("negatives", "k"), SIZES)
def test_which_pairs_each_encoder_reads(folder, negatives, k):
    method, size = ct(folder, negatives=negatives, k=k), SIZES[negatives, k]
    assert ContrastiveTension.needs(method.options).group_size == size
    batch = batch_of(method, rows(folder, 2 * size), more_padding=3)
    assert (len(batch), batch.views, batch.labels.tolist()) == (2 * (k + 1), 2, ([1] + [0] * k) * 2)
    pairs = drawn(TEXTS[: 2 * size], negatives, k)
    first, second = tokens(folder, [pair[0] for pair in pairs]), tokens(folder, [pair[1] for pair in pairs])
    rows_of_batch = [ids[: int(mask.sum())].tolist() for ids, mask in zip(batch.ids, batch.mask, strict=True)]
    assert rows_of_batch == [*first, *second] and batch.labels.tolist() == [label for *_, label in pairs]
    with pytest.raises(ValueError, match="whole groups"):
        pair_up(size + 1, method.options)


def library_model(folder):
    transformer = Transformer(str(folder))
    model = SentenceTransformer(modules=[transformer, Pooling(transformer.get_embedding_dimension(), "mean")], device="cpu")
    return model.double().eval()


def features(method, texts):
    ids = method.backbone.tokenise(list(texts))
    longest = max(map(len, ids))
    return {
        "input_ids": torch.tensor([row + [0] * (longest - len(row)) for row in ids]),
        "attention_mask": torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in ids]),
    }


def test_the_library_s_pairs_have_its_loss_and_its_gradients(folder):
    """Its loader's pairs, its sum, its two copies of a model."""
    loader = library.ContrastiveTensionDataLoader(list(TEXTS[:30]), batch_size=16, pos_neg_ratio=8)
    (examples,) = list(loader)
    assert [(*example.texts, example.label) for example in examples] == drawn(loader.sentences, "consecutive", 7)
    method = ct(folder, apart=False, negatives="consecutive", reduction="sum")
    term = method(batch_of(method, MemoryRows(folder, {"sentence": loader.sentences})))["tension"]
    (term.weight * term.value).backward()
    theirs = library.ContrastiveTensionLoss(library_model(folder))
    sides = [features(method, texts) for texts in zip(*(example.texts for example in examples), strict=True)]
    loss = theirs(sides, torch.tensor([example.label for example in examples]))
    loss.backward()
    assert abs(term.weight * term.value.item() - loss.item()) < 1e-8
    for ours, model in ((method.first, theirs.model1), (method.backbone, theirs.model2)):
        expected = dict(model[0].auto_model.named_parameters())
        for name, weight in ours.model.named_parameters():
            assert (weight.grad - expected[name].grad).abs().max() < 1e-8, name


@pytest.mark.parametrize(("options", "more"), [
    ({}, {"scale": 1, "similarity_fct": util.dot_score}), ({"similarity": "cosine", "scale": 20.0}, {})])
def test_the_library_s_loss_over_the_batch_and_its_learned_scale(folder, options, more):
    method = ct(folder, apart=False, objective="in-batch", **options)
    value = method(batch_of(method, rows(folder, 6)))["in_batch"].value
    value.backward()
    theirs = library.ContrastiveTensionLossInBatchNegatives(library_model(folder), **more).double()
    loss = theirs([features(method, TEXTS[:6])], torch.zeros(6))
    loss.backward()
    assert abs(value.item() - loss.item()) < 1e-8
    assert abs(method.log_scale.grad.item() - theirs.logit_scale.grad.item()) < 1e-8
    decayed = [group["weight_decay"] for group in make_optimiser(method, TrainingSettings(weight_decay=0.01)).param_groups
               if any(weight is method.log_scale for weight in group["params"])]
    assert decayed == [0.01]  # as in the library


def test_a_stage_begins_with_two_alike(folder):
    """Also where labelled rows (recipe.semi) trained model2 before."""
    method = ct(folder)
    method.start_stage("main")
    first, second = method.first.state_dict(), method.backbone.state_dict()
    assert all(torch.equal(first[name], second[name]) for name in second)


@pytest.mark.parametrize(("keep", "expected"), [("best", "backbone"), ("model2", "backbone"), ("model1", "first")])
def test_the_encoder_that_is_kept_is_model1_only_once_it_is_trained(folder, keep, expected):
    """A stage of labelled rows (recipe.semi) trains model2 alone; selection.over all may keep its weights."""
    method = ct(folder, keep=keep)
    assert all(kept.model is method.backbone.model for kept in (method.inference(), *method.candidates().values()))
    labelled = {name: tensor.clone() for name, tensor in method.state_dict().items()}
    method.start_stage("main")
    assert method.inference().model is getattr(method, expected).model and method.inference().pooler == "mean"
    assert [kept.model for kept in method.candidates().values()] == (
        [method.backbone.model, method.first.model] if keep == "best" else [])
    for name, encoder in (("model1", method.first), ("model2", method.backbone)):
        method.choose(name)
        assert method.inference().model is encoder.model and int(method.state_dict()["kept"]) == int(name[-1])
    method.choose("model1")
    method.load_state_dict(labelled)
    assert method.inference().model is method.backbone.model


def test_the_better_encoder_of_each_evaluation_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    place, run = make_place(tmp_path), tmp_path / "run"
    summary, log = train(recipe_of(place, "ct", **{"training.max_steps": 4}), run, place, device="cpu")
    lines = [line for line in log if line["kind"] == "dev"]
    assert [line["step"] for line in lines] == [0, 2, 4]
    for line in lines:
        assert set(line["encoders"]) == {"model1", "model2"}
        assert line["score"] == max(line["encoders"].values()) == line["encoders"][line["encoder"]]
    assert lines[0]["encoders"]["model1"] == lines[0]["encoders"]["model2"] and lines[0]["encoder"] == "model2"
    assert lines[-1]["encoders"]["model1"] != lines[-1]["encoders"]["model2"]
    best = max(lines[1:], key=lambda line: line["score"])
    assert (summary["best"]["step"], summary["best"]["score"]) == (best["step"], best["score"])
    assert summary["encoder"] == best["encoder"] and summary["after"] == lines[-1]["score"]
    assert int(load_trained(run, "cpu").kept) == int(best["encoder"][-1])
    pytest.importorskip("stsbench.extensions.publish")  # which writes the card
    assert f"of {best['encoder']} of step {best['step']}" in (run / "best" / "README.md").read_text("utf-8")
