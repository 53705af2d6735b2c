"""What a recipe puts around a method, training.chunk, matryoshka, guide and ranking: a method takes it or refuses it. The
section adaptive_layers: losses and gradients of sentence-transformers' AdaptiveLayerLoss, with matryoshka its 2D."""

import ast
import itertools
import json
import random

import pytest
import torch
from method_options import effect
from method_oracle import LIMIT, MemoryRows, batch_of, make, total
from method_runs import cached_place, recipe_of, train
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import losses as library
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from simcse_oracle import PLAIN, TRIPLETS
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.functional import normalize

from stsbench.encoders.load import load_encoder
from stsbench.errors import StsbenchError
from stsbench.losses.variants import GuideRule
from stsbench.methods.simcse.method import SimCSE
from stsbench.torch_random import Generators, drawing
from stsbench.training.engine.objective import AdaptiveLayers, Wrapped
from stsbench.training.engine.passes import checkpoint_layers, draw_repeatedly
from stsbench.training.modules.backbone import load_backbone, set_chunk
from stsbench.training.recipes.sections import AdaptiveLayersSettings, GuideSettings, MatryoshkaSettings

GUIDE = {"guide": {"model": "lexical:token-set", "margin": 0.7}}
RANKING = {"ranking.teachers": [{"model": "lexical:token-set"}], "gor": {}}  # what stands beside the loss
NO_HEAD = {"options.head": "none"}
GIVEN = {"view": "given", "head": "none"}
ALL = ("matryoshka", "guide", "ranking")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    yield from cached_place(tmp_path_factory.mktemp("sections"))


@pytest.fixture(scope="module")
def started(place):
    """(name, changes) -> what a run of them begins with, or the error that refuses it; each computed once."""
    results = {}

    def start(name, changes=None):
        key = name, json.dumps(changes or {}, sort_keys=True)
        if key not in results:
            try:
                results[key] = effect(place, place / "run", name, changes or {}, tested=False)
            except StsbenchError as error:  # before there is a run: the plan refuses it
                results[key] = error
        return results[key]

    return start


SECTION = {"matryoshka": {"matryoshka": {"dims": [32, 6]}}, "guide": GUIDE, "ranking": RANKING}


def terms_of(first_steps):
    assert isinstance(first_steps, str), first_steps
    parts = ast.literal_eval(first_steps)
    return {(parts[at][0], term): values for at in range(0, len(parts), 4) for term, values in parts[at + 1].items()}


# of a method of each kind: its name in RUNS, what it needs beside the sections, those that it takes
@pytest.mark.parametrize(("name", "needs", "taken"), [
    ("simcse-semi", NO_HEAD, ALL), ("mirror-bert", {}, ALL), ("diffaug", {}, ("guide", "ranking")),
    ("cosent", {}, ("matryoshka",))])
def test_shorter_vectors_and_a_guide_change_the_contrastive_term_and_teachers_add_theirs(started, name, needs, taken):
    """The method's other terms are what they were, to the last bit; so is its contrastive one with teachers alone."""
    first = [which for which in taken if which != "matryoshka"]
    steps = [needs]
    for sections in ([first] if first else []) + ([taken] if "matryoshka" in taken else []):
        steps.append({**needs, **{key: value for which in sections for key, value in SECTION[which].items()}})
    results = [terms_of(started(name, changes)) for changes in steps]
    contrastive = {key for key in results[0] if key[1].startswith("contrastive")}
    if first:
        plain, around = results[:2]
        added = {"ranking", "consistency", "gor"} if "ranking" in first else set()
        added |= {"masked"} if "guide" in first else set()
        assert around.keys() >= plain.keys() and {term for _, term in around.keys() - plain.keys()} == added
        compare(plain, around, contrastive if "guide" in first else set())
        for weight, share, count in (values for (_, term), values in around.items() if term == "masked"):
            assert weight == 0 and 0 < share <= 1  # in the log, and no part of the loss
            assert count in {count for *_, count in plain.values()}
    if "matryoshka" in taken:
        before, nested = results[-2:]
        assert before.keys() == nested.keys()
        compare(before, nested, contrastive or {*before})  # of labelled pairs every term is shortened, whatever its name


def compare(before, after, changed):
    """The terms of two runs: values that differ are those of `changed`, weights and counts are the same."""
    for key, (weight, value, count) in before.items():
        assert after[key][::2] == (weight, count), key
        assert (after[key][1] != value) == (key in changed), key


@pytest.mark.parametrize("name", ["simcse", "pcl", "mirror-bert", "esimcse"])
def test_further_directions_change_the_contrastive_term_or_are_refused(started, name):
    both_ways = {"contrast.directions": ["query_to_doc", "doc_to_query"], "contrast.partition": "per_direction"}
    plain, directed = started(name), started(name, both_ways)
    assert isinstance(directed, str) == (name not in ("mirror-bert", "esimcse")), directed
    if isinstance(directed, str):
        compare(*map(terms_of, (plain, directed)), {key for key in terms_of(plain) if key[1].startswith("contrastive")})
    else:
        assert isinstance(directed, StsbenchError) and "contrast" in str(directed) and "\n" not in str(directed)


@pytest.mark.parametrize("name", ["simcse", "promptbert", "consert", "is-bert"])
def test_a_method_s_loss_is_that_of_earlier_layers_too_or_refuses_it(started, name):
    plain, layered = started(name), started(name, {"adaptive_layers.per_step": 1})
    if isinstance(layered, StsbenchError):
        assert "adaptive_layers" in str(layered) and "\n" not in str(layered)
        return
    before, after = terms_of(plain), terms_of(layered)
    assert {term for _, term in after.keys() - before.keys()} == {"adaptive_layers"}
    for key, (weight, value, count) in before.items():
        assert after[key][::2] == (weight, count) and (after[key][1] != value or not weight or value < 1e-4), key


def test_a_section_that_cannot_act_or_would_do_nothing_is_refused_in_a_line(started):
    """Also one of another row's view."""
    for which, names in (("matryoshka", "mlm simcse diffaug"), ("guide", "mlm cosent ct"),
                         ("ranking", "mlm angle declutr rankcse")):
        for name in names.split():
            error = started(name, SECTION[which])
            assert isinstance(error, StsbenchError) and which in str(error) and "\n" not in str(error), name
    for sections in (GUIDE, RANKING):
        assert isinstance(started("simcse", {"options.view": "next3", "data.contiguous": True, **sections}), StsbenchError)
    for settings, why in (({"guide.margin": 0.0}, "margin 0 masks nothing"), ({"guide.dropout": True}, "has no dropout")):
        error = started("simcse", {**NO_HEAD, "guide.model": "lexical:token-set", "guide.margin": 0.5, **settings})
        assert isinstance(error, StsbenchError) and why in str(error)


@pytest.mark.parametrize("changed", [{"guide.dropout": True}, {"matryoshka.weights": [1, 2]}, {"matryoshka.dims": [16, 6]}],
                         ids=str)
def test_settings_of_the_sections_have_an_effect(place, started, changed):
    start = {"guide.model": str(place / "model"), "guide.settings": {"pooler": "mean"}, "matryoshka.dims": [32, 6]}
    first_steps = [started("simcse-given", {**start, **NO_HEAD, **change}) for change in ({}, changed)]
    assert all(isinstance(text, str) for text in first_steps), first_steps
    assert first_steps[0] != first_steps[1]


@pytest.mark.parametrize("rule", [
    {"threshold": "fixed", "phi": 0.3, "contrast_anchors": False, "masked": "zero"},
    {"threshold": "relative", "margin": 0.2, "contrast_positives": False, "diagonals": "by_guide", "loss": "bce_of_softmax"},
], ids=str)
def test_the_rule_of_a_guide_is_what_its_section_says(folder, rule):
    method = make(SimCSE, folder, GIVEN)
    assert Wrapped(method, method, None, GuideSettings(model="lexical:token-set", **rule)).rule == GuideRule(**rule)


def test_a_run_knows_its_guide_and_exports_neither_it_nor_a_dimension(place, tmp_path):
    changes = {"training.max_steps": 1, "training.accumulate": 1, "selection.by": "none"}
    summary, _ = train(recipe_of(place, "simcse-wrapped", **changes), tmp_path / "run", place)
    fingerprint = load_encoder(str(place / "model"), pooler="mean").identity.fingerprint()
    assert summary["teachers"] == {"guide": fingerprint, "teacher 1": fingerprint}
    assert len([*(tmp_path / "run" / "best").rglob("*.safetensors")]) == 1
    assert not [path for path in (tmp_path / "run" / "best").rglob("*.json") if "truncate_dim" in path.read_text("utf-8")]


def numbers(value):
    if isinstance(value, list | tuple | set):
        return [part for each in value for part in numbers(each)]
    if isinstance(value, dict):
        return [part for key, each in value.items() for part in (key, *numbers(each))]
    return [value]


@pytest.mark.parametrize("name", ["diffcse-rtd", "promptbert", "diffaug", "consert"])
def test_without_dropout_a_method_in_chunks_has_the_gradient_of_the_whole_batch(place, started, name, monkeypatch):
    if name == "diffcse-rtd":  # it draws words behind the encoder's pass, and each packed pass draws the seed of its masks
        monkeypatch.setattr("stsbench.training.modules.backbone.packable", lambda model: False)
        whole, chunked = (
            effect(place, place / "run", name, changes, tested=False) for changes in ({}, {"training.chunk": 4}))
    else:
        whole, chunked = started(name), started(name, {"training.chunk": 4})
    assert isinstance(chunked, str), chunked
    for before, after in itertools.zip_longest(*(numbers(ast.literal_eval(text)) for text in (whole, chunked))):
        assert after == (pytest.approx(before, rel=2e-4, abs=1e-5) if isinstance(before, float) else before)


@pytest.mark.parametrize(("name", "chunk"), [("diffaug-lora", 4), ("simcse", 12)])
def test_chunks_are_refused_where_something_acts_around_a_pass_or_none_is_cut(place, tmp_path, name, chunk):
    """12: two views of six sentences."""
    with pytest.raises(StsbenchError, match=r"training\.chunk"):
        train(recipe_of(place, name, **{"training.chunk": chunk, "selection.by": "none"}), tmp_path / "run", place)


def gradient(backbone, ids, mask, passes):
    """The loss of the vectors that `passes` gives, and every gradient, after one seed."""
    backbone.zero_grad()
    torch.manual_seed(0)
    vectors = normalize(passes(ids, mask), dim=1)
    loss = torch.logsumexp(vectors @ vectors.T / 0.05, 1).sum() - vectors.square().sum() / 0.05
    loss.backward()
    return loss.item(), [weight.grad.clone() for weight in backbone.parameters() if weight.grad is not None]


@pytest.mark.parametrize(("engine", "pooler"), [("padded", "mean"), ("packed", "first_last:layer1")])
def test_with_dropout_it_is_one_loss_of_chunks_read_one_after_the_other(place, engine, pooler):
    """To the last bit: each chunk's masks are drawn once, and again where its gradient is computed."""
    backbone = load_backbone(place / "model", "model", pooler, 12, dropout=0.3)
    backbone.engine = engine
    texts = backbone.tokenise(["cat", "the man runs .", "blue dog", "a cat in the park eats", "dog"] * 3)
    ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(text) for text in texts], batch_first=True)
    mask = (torch.arange(ids.shape[1]) < torch.tensor([len(text) for text in texts])[:, None]).long()
    parts = [slice(start, start + 4) for start in range(0, len(ids), 4)]
    separate = gradient(
        backbone, ids, mask, lambda ids, mask: torch.cat([backbone.pooled(ids[at], mask[at]) for at in parts]))
    set_chunk(backbone, 4)
    chunked = gradient(backbone, ids, mask, backbone.pooled)
    assert chunked[0] == separate[0] and backbone.chunked
    assert len(chunked[1]) == len(separate[1]) and all(map(torch.equal, chunked[1], separate[1]))
    set_chunk(backbone, None)
    assert gradient(backbone, ids, mask, backbone.pooled)[0] != separate[0] and not backbone.chunked  # other draws


@pytest.mark.parametrize("offload", [False, True])
def test_layers_that_are_computed_again_have_the_same_gradient_and_keep_less(place, offload):
    """To the last bit, as they draw the same masks again."""
    backbone = load_backbone(place / "model", "model", "mean", 12, dropout=0.3)
    backbone.engine = "padded"
    ids = torch.arange(5, 53).view(4, 12)

    def counted():
        sizes = []
        with drawing(Generators(3)), saved_tensors_hooks(lambda one: sizes.append(one.numel()) or one, lambda one: one):
            return gradient(backbone, ids, torch.ones_like(ids), backbone.pooled), sum(sizes)

    (loss, gradients), kept = counted()
    checkpoint_layers(backbone.model, "model")
    draw_repeatedly(backbone, offload)
    (again, same), fewer = counted()
    assert again == loss and all(map(torch.equal, same, gradients)) and fewer < kept / 2


def test_activations_of_one_chunk_are_held_at_a_time(place):
    """Tensors that autograd keeps for the backward pass: with chunks none but those of the loss."""
    backbone = load_backbone(place / "model", "model", "cls", 12, dropout=0.0)
    ids = torch.full((64, 12), 5)

    def kept(size):
        set_chunk(backbone, size)
        sizes = []
        with saved_tensors_hooks(lambda tensor: sizes.append(tensor.numel()) or tensor, lambda tensor: tensor):
            backbone.pooled(ids, torch.ones_like(ids)).sum().backward()
        return sum(sizes)

    assert kept(8) < kept(None) / 20


def objective(folder, options=GIVEN, dims=None, pooler="mean", dims_per_step=None, **settings):
    method = make(SimCSE, folder, options, pooler=pooler)
    shorter = None if dims is None else MatryoshkaSettings(dims=dims, per_step=dims_per_step)
    inner = method if dims is None else Wrapped(method, method, shorter, None)
    return AdaptiveLayers(method, inner, AdaptiveLayersSettings(**settings))


@pytest.mark.parametrize(("engine", "dims", "pooler", "settings"), [
    ("packed", None, "cls", {"weighting": "log", "prior_weight": 0.7, "last_weight": 1.3}),
    ("padded", (32, 8), "mean", {"weighting": "linear", "kl_weight": 0.4, "kl_temperature": 0.8}),
    ("packed", None, "max", {"kl_weight": 0.0}), ("packed", (32, 20, 8, 4), "mean", {"per_step": 1, "dims_per_step": 1}),
    ("packed", (32, 20, 8, 4), "mean", {"per_step": 1, "dims_per_step": 2})])
def test_layers_and_dims_have_the_loss_and_gradients_of_the_library(folder, monkeypatch, engine, dims, pooler, settings):
    made = objective(folder, dims=dims, pooler=pooler, **{"per_step": None, **settings})
    made.method.backbone.engine = engine
    batch = batch_of(made, MemoryRows(folder, TRIPLETS), more_padding=2)
    batch.by_row = {name: values.double() for name, values in batch.by_row.items()}
    value = total(made(batch))
    value.backward()
    transformer = Transformer(str(folder), max_seq_length=LIMIT)
    width = transformer.get_embedding_dimension()
    model = SentenceTransformer(modules=[transformer, Pooling(width, pooling_mode=pooler)], device="cpu").double().eval()
    inner = library.MultipleNegativesRankingLoss(model, scale=20)
    if dims is not None:
        inner = library.MatryoshkaLoss(model, inner, list(dims), n_dims_per_step=settings.get("dims_per_step", -1))
    draws = {len(dims or ()): "matryoshka dims", made.layers: "adaptive layers"}
    monkeypatch.setattr(random, "sample", lambda numbers, count: batch.by_row[draws[len(numbers)]][0].int().tolist())
    how = {"n_layers_per_step": settings.get("per_step", -1), "kl_div_weight": settings.get("kl_weight", 1.0)}
    how |= {"last_layer_weight": settings.get("last_weight", 1.0), "prior_layers_weight": settings.get("prior_weight", 1.0),
            "layer_weighting": settings.get("weighting", "uniform"), "kl_temperature": settings.get("kl_temperature", 0.3)}
    expected = library.AdaptiveLayerLoss(model, inner, **how)([model.preprocess(texts) for texts in TRIPLETS.values()], None)
    expected.backward()
    assert value.item() == pytest.approx(expected.item(), abs=1e-9)
    theirs = dict(transformer.model.named_parameters())
    for name, weight in made.method.backbone.model.named_parameters():
        if weight.grad is not None and weight.grad.abs().max() > 1e-12:
            torch.testing.assert_close(weight.grad, theirs[name].grad, atol=1e-9, rtol=1e-6)


def test_a_step_draws_layers_by_the_batch_s_numbers_and_reads_one_pass(folder, monkeypatch):
    made = objective(folder, {"head": "none"}, per_step=1)
    passes = []
    run = made.method.backbone.model.encoder.forward
    monkeypatch.setattr(made.method.backbone.model.encoder, "forward", lambda *a, **b: passes.append(1) or run(*a, **b))
    batches = [batch_of(made, MemoryRows(folder, PLAIN), seed=seed) for seed in (0, *range(12))]
    drawn = [int(batch.by_row["adaptive layers"][0, 0]) for batch in batches]
    assert drawn[0] == drawn[1] and set(drawn) == set(range(made.layers))
    plain = made.method(batches[0])["contrastive"].value
    alone = len(passes)
    terms = made(batches[0])
    assert len(passes) == 2 * alone and terms.keys() == {"contrastive", "adaptive_layers"}
    assert terms["contrastive"].value > plain and terms["adaptive_layers"].value > 0
    assert made.method.backbone.layer_states is None
    assert made.method(batches[0])["contrastive"].value == plain  # nothing is left behind


def test_a_step_draws_dims_by_the_batch_s_numbers(folder):
    method = make(SimCSE, folder, {"head": "none"})
    made = Wrapped(method, method, MatryoshkaSettings(dims=(32, 20, 8), per_step=2), None)
    batches = [batch_of(made, MemoryRows(folder, PLAIN), seed=seed) for seed in (0, *range(12))]
    drawn = [tuple(sorted(batch.by_row["matryoshka dims"][0].int().tolist())) for batch in batches]
    assert drawn[0] == drawn[1] and set(drawn) == {(0, 1), (0, 2), (1, 2)}


def test_what_has_no_earlier_layer_is_refused(folder):
    for options, more, why in (({"queue": {"size": 4}}, {"pooler": "cls"}, "options.queue"),
                               ({}, {"pooler": "first_last:layer1"}, "pooler"), ({}, {"per_step": 9}, "per_step")):
        with pytest.raises(StsbenchError, match=why):
            objective(folder, {"head": "none", **options}, **more)
