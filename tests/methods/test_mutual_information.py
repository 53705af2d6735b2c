"""SG-OPT written out: every state by transformers, one text at a time; its weights, layers and copy. IS-BERT's two terms of
vectors computed token by token, and what it pads with. Their losses in loops: tests/losses."""

import numpy as np
import pytest
import torch
from method_oracle import LIMIT, MemoryRows, _reference, batch_of, make, states, tokens
from tiny_models import build, sentences
from token_pooler_oracle import MEAN_CNN, local_vectors
from torch.nn import functional
from transformers import AutoModel

from stsbench import losses
from stsbench.errors import StsbenchError
from stsbench.losses.group import jensen_shannon
from stsbench.methods.isbert.method import ISBERT
from stsbench.methods.sgopt.method import SGOPT
from stsbench.training.modules.backbone import load_backbone

TEXTS = ["the man plays guitar in the park", "a dog", "the big cat sleeps on the red food .", "a woman eats", "blue"]
POOLINGS = {"mean": lambda state: state.mean(0), "max": lambda state: state.amax(0), "sum": lambda state: state.sum(0)}


def sgopt(folder, dropout=0.0, moved=True, **options):
    """In float64 and train mode. moved: the weights are no longer those at the start, so that nothing is 0 by chance."""
    method = make(SGOPT, folder, {"projection_width": 12, **options}, dropout=dropout)
    add_noise(method.projector, 0.3)
    method.start_stage("main")
    if moved:
        add_noise(method.backbone, 0.02)
    return method


def add_noise(module, size):
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for weight in module.parameters():
            if weight.requires_grad:
                weight.add_(torch.randn(weight.shape, generator=generator, dtype=weight.dtype) * size)


def projected(method, vectors):
    for linear in (method.projector.inner, method.projector.outer):
        vectors = functional.gelu(vectors @ linear.weight.T + linear.bias)
    return vectors


def one_layer(c, h, temperature, with_vectors, skip=False):
    """opt1 with the other sentences' c among the negatives; opt2 without, and with `skip` without the first other h."""
    values = []
    for i, anchor in enumerate(c):
        others = [m for m in range(len(c)) if m != i]
        compared = [h[i], *(h[m] for m in others[skip:]), *(c[m] for m in others if with_vectors)]
        values.append((torch.cosine_similarity(anchor, torch.stack(compared)) / temperature).log_softmax(0)[0])
    return -torch.stack(values).mean()


ORACLES = {"sg": lambda c, h, t: losses.consert(c, h, temperature=t), "opt1": lambda c, h, t: one_layer(c, h, t, True),
           "opt2": lambda c, h, t: one_layer(c, h, t, False), "skip": lambda c, h, t: one_layer(c, h, t, False, True)}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    place = tmp_path_factory.mktemp("sgopt")
    return {family: build(place / family, family, pooler=False, layers=3) for family in ("bert", "roberta")}


@pytest.mark.parametrize(("family", "engine", "options"), [
    ("roberta", "padded", {"layer_pooling": "max", "first_layer": 1}),
    ("bert", "padded", {"layer_pooling": "sum", "last_layer": 1, "guide": "trained"}),
    ("bert", "packed", {"objective": "sg", "temperature": 0.01}), ("roberta", "padded", {"objective": "opt2"}),
    ("bert", "padded", {"objective": "opt1", "first_layer": 1}),
    ("bert", "packed", {"objective": "opt2", "skip_negative": True, "guide": "trained"})], ids=str)
def test_loss_and_gradients_are_those_of_single_texts(folders, family, engine, options):
    folder = folders[family]
    method = sgopt(folder, **{"temperature": 0.05, **options})
    batch = batch_of(method, rows(folder, TEXTS), more_padding=2)
    for backbone in (method.backbone, method.reference.backbone):
        backbone.engine = engine
    terms, trained, chosen = method(batch), method.backbone.model, method.options
    guide, pool = _reference(AutoModel, folder) if chosen.guide == "frozen" else trained, POOLINGS[chosen.layer_pooling]
    read = [torch.tensor([ids]) for ids in tokens(folder, TEXTS)]
    layers = [guide(ids, output_hidden_states=True).hidden_states for ids in read]
    stop = None if chosen.last_layer is None else chosen.last_layer + 1
    h = torch.stack([torch.stack([pool(state[0]) for state in states[chosen.first_layer : stop]]) for states in layers])
    h = projected(method, h.detach() if chosen.guide == "frozen" else h)
    c = projected(method, torch.stack([trained(ids).last_hidden_state[0, 0] for ids in read]))
    if chosen.objective == "sg-opt":
        expected = losses.sgopt(c, h, temperature=chosen.temperature)  # in loops: tests/losses
    else:
        one = h[torch.arange(len(TEXTS)), batch.by_row["layer"].flatten().long() - chosen.first_layer]
        expected = ORACLES["skip" if chosen.skip_negative else chosen.objective](c, one, chosen.temperature)
    assert set(terms) == {"contrastive", "regulariser"} and ("layer" in batch.by_row) == (chosen.objective != "sg-opt")
    assert abs(terms["contrastive"].value.item() - expected.item()) < 1e-8
    weights = [weight for weight in method.parameters() if weight.requires_grad]
    actual, theirs = (torch.autograd.grad(value, weights, materialize_grads=True, allow_unused=True)
                     for value in (terms["contrastive"].value, expected))
    assert all((ours - other).abs().max() < 1e-8 * max(1, float(other.abs().max()))
               for ours, other in zip(actual, theirs, strict=True))
    assert sum(bool(each.any()) for each in actual) > 20


def test_the_regulariser_is_the_sum_of_squared_differences(folders):
    method = sgopt(folders["bert"], moved=False, regulariser_weight=0.3)
    batch = batch_of(method, rows(folders["bert"], TEXTS))
    assert method(batch)["regulariser"].value.item() == 0
    add_noise(method.backbone, 0.02)
    term, start = method(batch)["regulariser"], dict(_reference(AutoModel, folders["bert"]).named_parameters())
    apart = {name: weight - start[name] for name, weight in method.backbone.model.named_parameters()}
    assert abs(term.value.item() - sum(float(part.square().sum()) for part in apart.values())) < 1e-8 and term.weight == 0.3
    name = "encoder.layer.1.output.dense.weight"
    (gradient,) = torch.autograd.grad(term.value, method.backbone.model.get_parameter(name))
    assert (gradient - 2 * apart[name]).abs().max() < 1e-12
    method.start_stage("main")  # a stage begins with a copy of what was trained before, as by labelled rows (recipe.semi)
    assert method(batch)["regulariser"].value.item() == 0


def test_a_layer_of_each_kind_is_drawn_for_each_sentence(folders):
    method = sgopt(folders["bert"], objective="opt1", first_layer=1)
    drawn = batch_of(method, rows(folders["bert"], TEXTS * 40)).by_row["layer"].flatten().tolist()
    assert set(drawn) == set(method.layers) == set(range(1, 4)) and min(map(drawn.count, set(drawn))) > 40


def test_a_copy_is_in_memory_where_something_reads_it(folders):
    for guide, weight, there in (("trained", 0.0, False), ("trained", 0.1, True), ("frozen", 0.0, True)):
        method = sgopt(folders["bert"], guide=guide, regulariser_weight=weight)
        assert (method.reference is not None) == there
        assert any(name.startswith("reference") for name in method.state_dict()) == there


SENTENCES = [*sentences(12, longest=9, seed=3), "a", "a cat"]


def isbert(folder, activation="relu", **options):
    torch.manual_seed(1)
    poolers = {"mean_cnn": {**MEAN_CNN, "activation": activation}}
    backbone = load_backbone(folder, folder.name, "mean_cnn", LIMIT, 0.0, poolers)
    return ISBERT(backbone, ISBERT.Options(**options)).double().train()


def rows(folder, texts=SENTENCES):
    return MemoryRows(folder, {"sentence": list(texts)})


def check_terms(method, batch, states_of_texts, counts):
    """The terms are those of the texts' local vectors; states_of_texts: (places, d) numbers of each."""
    head = method.backbone.head
    vectors = [torch.tensor(local_vectors(head, state, count), dtype=torch.float64)
               for state, count in zip(states_of_texts, counts, strict=True)]
    owners, number = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts)), sum(counts)
    values = jensen_shannon(torch.cat(vectors), owners, torch.stack([vector.mean(0) for vector in vectors]))
    losses = method(batch)
    for name, value, count in zip(("negative", "positive"), values, (number * (len(counts) - 1), number), strict=True):
        assert abs(losses[name].value.item() - value) < 1e-8 and losses[name].count == method.counts(batch)[name] == count


def test_the_terms_are_those_of_each_token(encoders):
    folder = encoders["bert"]
    method, ids = isbert(folder), tokens(folder, SENTENCES)
    assert len({len(row) for row in ids}) > 4
    batch = batch_of(method, rows(folder), more_padding=3)
    check_terms(method, batch, [state.tolist() for state in states(folder, ids)], [*map(len, ids)])


def test_the_released_codes_padding(encoders):
    """The convolutions read the encoder's states behind a text's end, as far as the batch is padded: to one token more than
    the longest text, unless that is as long as may be. The mean leaves them out."""
    folder = encoders["bert"]
    method = isbert(folder, "none", padding="states")
    assert method.views(rows(folder), np.random.default_rng(0)).one_length and method.backbone.engine == "padded"
    short = [text for text, row in zip(SENTENCES, tokens(folder, SENTENCES), strict=True) if len(row) < LIMIT - 1]
    for texts, more in ((SENTENCES, 0), (short, 1)):
        batch = batch_of(method, rows(folder, texts))
        ids, mask = (torch.nn.functional.pad(values, (0, more)) for values in (batch.ids, batch.mask))
        with torch.no_grad():
            padded = method.backbone.model(input_ids=ids, attention_mask=mask).last_hidden_state.tolist()
        counts = batch.mask.sum(1).tolist()
        assert ids.shape[1] == (max(counts) + 1 if more else LIMIT)
        check_terms(method, batch, padded, counts)


def test_a_batch_of_one_sentence_and_gathering_without_gradients_are_refused(encoders):
    method = isbert(encoders["bert"])
    with pytest.raises(StsbenchError, match=r"^is-bert needs two sentences in a batch at least"):
        method(batch_of(method, rows(encoders["bert"], SENTENCES[:1])))
    method.gather_mode = "simcse"
    with pytest.raises(StsbenchError, match=r"^training\.gather simcse has no meaning for is-bert.*set exact or local$"):
        method(batch_of(method, rows(encoders["bert"])))
