"""SARCSE's equations once more in float64 loops over texts encoded one at a time, and the method against them."""

import math
from collections import namedtuple

import numpy as np
import pytest
import torch
from method_oracle import LIMIT, MemoryRows, batch_of, states, tokens, total
from simcse_oracle import info_nce
from tiny_models import sentences
from token_pooler_oracle import by_loops

from stsbench.errors import StsbenchError
from stsbench.methods.sarcse.method import SARCSE
from stsbench.training.modules.backbone import load_backbone
from stsbench.training.recipes.sections import TextCNNSettings

SIZES = {"kernels": (3, 4, 5), "channels": 6}  # of most tests
ODD = {"kernels": (2, 1, 4, 6), "channels": 7, "fusion_channels": 2, "fusion_width": 3, "activation": "tanh"}
SINGLE = {"kernels": (3,), "channels": 5, "fusion_width": 1, "activation": "none"}
# no token, one, two, as many as fit, and more than fit
LONG = "the big cat plays a red guitar in the blue park with food ."
TEXTS = ["", "cat", "a dog", *sentences(16, longest=9, seed=5), LONG]
PLAIN = {"sentence": [TEXTS[i] for i in (3, 0, 4, 1, 19, 2)]}
TRIPLETS = {"anchor": PLAIN["sentence"], "positive": TEXTS[6:12], "negative": [TEXTS[1], TEXTS[0], *TEXTS[12:16]]}
NO_DECODER = {"beta": 0.0, "gamma": 0.0}


def sarcse(folder, sizes=SIZES, *, dropout=0.0, weighted=True, **options):
    """The method in float64 and train mode. weighted: random weights of tokens, as if `prepare` had been called."""
    torch.manual_seed(1)
    settings = {"text_cnn": TextCNNSettings(**sizes).model_dump()}
    backbone = load_backbone(folder, folder.name, "text_cnn", LIMIT, dropout, settings)
    backbone.folder, backbone.name = folder, folder.name
    method = SARCSE(backbone, SARCSE.Options(**options)).double().train()
    if weighted and method.decoder is not None and method.options.self_adaptive:
        with torch.no_grad():
            method.weights.copy_(torch.rand(len(method.weights), generator=torch.Generator().manual_seed(2)) * 0.9 + 0.1)
    return method


# of one text: its vector flattened, its tokens (N, d) and what became of them, None without a decoder
Naive = namedtuple("Naive", "vector tokens rebuilt")


def naive_text(method, states):
    """Eq. 1 to 7 for the states of one text, its special tokens around it."""
    head, decoder, unpool = method.backbone.head, method.decoder, method.options.unpool
    X, (vector, _, places) = states[1:-1], by_loops(head, states)
    (N, d), width, C = X.shape, head.fusion_width, head.channels
    if decoder is None:
        return Naive(vector.tolist(), X, None)
    rebuilt = np.zeros((N, d))
    for r, conv in enumerate(decoder.convs):
        fusion = decoder.fusions[r if len(decoder.fusions) > 1 else 0]
        W, back = numpy(fusion.weight), np.full(C, fusion.bias.item())
        for o, line in enumerate(vector.reshape(head.fusion_channels, -1)):
            for j, value in enumerate(line):
                for q in range(width):
                    back[j + q] += W[o, 0, r, q] * value
        W, b, k = numpy(conv.weight), numpy(conv.bias), conv.kernel_size[0]
        part = np.tile(b, (max(N, k), 1))
        for c in range(C):
            for t in range(max(N - k, 0) + 1):
                value = back[c]
                if unpool == "max" and t != places[r][c]:
                    value = 0.0
                if unpool == "repeat+position":
                    value += decoder.positions[c, t].item()
                for j in range(k):
                    part[t + j] += value * W[c, :, j]
        rebuilt += part[:N] / len(decoder.convs)
    return Naive(vector.tolist(), X, rebuilt)


def naive_view(method, folder, texts):
    """([text] -> Naive, the view's reconstruction loss) from states computed text by text in transformers."""
    ids = tokens(folder, texts)
    actual = [naive_text(method, numpy(state)) for state in states(folder, ids)]
    if method.decoder is None:
        return actual, None
    losses = []
    for row, text in zip(ids, actual, strict=True):
        errors = ((text.tokens - text.rebuilt) ** 2).sum(1) / (32 if method.options.mse_reduction == "mean" else 1)
        weights = numpy(method.weights)[row[1:-1]] if method.options.self_adaptive else 1.0
        losses.append((errors * weights).mean() if len(errors) else 0.0)
    return actual, sum(losses) / len(losses)


def numpy(values):
    return values.detach().double().numpy()


@pytest.fixture
def folder(encoders):
    return encoders["roberta"]


def terms(method, data, **more):
    return method(batch_of(method, MemoryRows(method.backbone.folder, data), **more))


@pytest.mark.parametrize(("sizes", "data", "options"), [
    (SIZES, PLAIN, {**NO_DECODER, "similarity": "dot"}), (ODD, TRIPLETS, {"unpool": "repeat"}),
    (SIZES, PLAIN, {"beta": 0.0, "gamma": 0.3, "temperature": 0.2, "contrastive_weight": 0.5, "self_adaptive": False}),
    (SINGLE, TRIPLETS, {"unpool": "repeat+position", "transposed_fusion": "separate", "mse_reduction": "sum"})])
def test_the_losses(folder, sizes, data, options):
    view = "given" if "anchor" in data else "dropout"
    method = sarcse(folder, sizes, view=view, **options)
    texts = list(data.values()) if view == "given" else [data["sentence"]] * 2
    actual = [naive_view(method, folder, view) for view in texts]
    blocks, chosen = [torch.tensor([text.vector for text in view]).double() for view, _ in actual], method.options
    value = info_nce(*blocks, temperature=chosen.temperature, similarity=chosen.similarity)
    expected, weights = {"contrastive": value.item()}, {"contrastive": chosen.contrastive_weight}
    counts = {"contrastive": len(blocks[0])}
    if chosen.beta or chosen.gamma:
        losses = [loss for _, loss in actual]
        expected |= {"reconstruction": losses[0], "reconstruction_positive": sum(losses[1:]) / len(losses[1:])}
        weights |= {"reconstruction": chosen.beta, "reconstruction_positive": chosen.gamma}
        counts |= {"reconstruction": len(blocks[0]), "reconstruction_positive": len(blocks[0]) * len(losses[1:])}
    measured = terms(method, data, more_padding=7)
    assert {name: term.value.item() for name, term in measured.items()} == pytest.approx(expected, rel=1e-6, abs=1e-9)
    assert {name: term.weight for name, term in measured.items()} == weights
    assert {name: term.count for name, term in measured.items()} == counts
    assert total(measured).item() == pytest.approx(sum(weights[name] * expected[name] for name in expected), rel=1e-6)


def test_a_batch_without_a_token_is_rebuilt_without_error(folder):
    method = sarcse(folder)
    actual = terms(method, {"sentence": ["", "", ""]})
    total(actual).backward()
    assert actual["reconstruction"].value.item() == actual["reconstruction_positive"].value.item() == 0
    assert actual["contrastive"].value.item() == pytest.approx(math.log(3))
    assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in method.parameters())
    assert method.metrics() == {}


@pytest.mark.parametrize("detach", [False, True])
def test_the_gradient_passes_through_the_tokens_that_are_rebuilt_unless_they_are_detached(folder, detach):
    method = sarcse(folder, detach_target=detach, contrastive_weight=0.0, beta=1.0, gamma=1.0)
    batch = batch_of(method, MemoryRows(folder, PLAIN))
    weight = method.backbone.model.encoder.layer[-1].output.LayerNorm.bias
    (exact,) = torch.autograd.grad(total(method(batch)), weight)
    place, step, values = int(exact.abs().argmax()), 1e-6, []
    for change in (step, -2 * step):
        with torch.no_grad():
            weight[place] += change
            values.append(total(method(batch)).item())
    numeric = (values[0] - values[1]) / (2 * step)
    assert abs(numeric) > 1e-4 and (exact[place].item() == pytest.approx(numeric, rel=1e-5)) != detach


def test_the_head_has_its_own_rate(folder):
    assert sarcse(folder, head_rate=7.0).rates() == {"backbone.head.": 7.0, "decoder.": 7.0} and sarcse(folder).rates() == {}


def test_weights_come_from_the_counts_of_the_training_text(folder, monkeypatch):
    """The counts: tests/data/text/test_text_tokens.py. Without them the loss is NaN, and not all of it need be counted."""
    asked, theta, scale = [], 0.6, 5.0
    method, other = (sarcse(folder, weighted=False, theta=theta, frequency_scale=scale) for _ in range(2))
    counts = np.bincount([token for row in tokens(folder, TEXTS) for token in row[1:-1]], minlength=len(method.weights))
    monkeypatch.setattr("stsbench.methods.sarcse.method.token_counts", lambda *given: asked.append(given) or counts)
    assert method.weights.isnan().all()  # no number that could be mistaken for one
    assert total(method(batch_of(method, MemoryRows(folder, PLAIN)))).isnan()
    method.prepare("rows")
    expected = [max(theta, 1 - scale * count / counts.sum()) for count in counts]
    assert method.weights.tolist() == pytest.approx(expected, abs=1e-6)
    tokenizer = method.backbone.tokenizer
    [(rows, size, special)] = asked
    assert (rows, size) == ("rows", len(counts)) and method.inputs() == {} and method.notes() == []
    assert {tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.pad_token_id} <= {*special}
    other.load_state_dict(method.state_dict())  # a trained model needs no training text
    assert torch.equal(other.weights, method.weights)
    for options in ({"self_adaptive": False}, NO_DECODER):
        method = sarcse(folder, **options)
        method.prepare(None)
        assert method.decoder is None or torch.equal(method.weights, torch.ones_like(method.weights))
    assert len(asked) == 1


def test_metrics(folder):
    method = sarcse(folder, mse_reduction="sum")
    squares = weights = count = 0.0
    for texts in (PLAIN["sentence"], TEXTS[6:9]):
        method(batch_of(method, MemoryRows(folder, {"sentence": texts})))
        view, _ = naive_view(method, folder, texts)
        for row, text in zip(tokens(folder, texts), view, strict=True):
            squares += 2 * float(((text.tokens - text.rebuilt) ** 2).sum()) / 32
            weights += 2 * sum(method.weights[token].item() for token in row[1:-1])
            count += 2 * len(text.tokens)
    assert method.state_dict()["tokens"].item() == count  # what a resumed run goes on with
    expected = {"reconstruction_error": squares / count, "token_weight": weights / count}
    assert method.metrics() == pytest.approx(expected, rel=1e-6)


def test_token_losses(folder, monkeypatch):
    method = sarcse(folder, dropout=0.1)
    method.decoder.eval()  # whatever modes there are, they stay
    monkeypatch.setattr("stsbench.methods.sarcse.method._TEXTS", 4)
    state, random = {name: value.clone() for name, value in method.state_dict().items()}, torch.get_rng_state()
    actual = method.token_losses(TEXTS)
    assert method.training and method.backbone.model.training and not method.decoder.training
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(value, state[name]) for name, value in method.state_dict().items())
    assert all(weight.grad is None for weight in method.parameters())
    view, _ = naive_view(method, folder, TEXTS)
    ids = tokens(folder, TEXTS)
    spell = method.backbone.tokenizer.convert_ids_to_tokens
    for losses, row, text in zip(actual, ids, view, strict=True):
        errors = ((text.tokens - text.rebuilt) ** 2).sum(1) / 32
        assert [spelling for spelling, _, _ in losses] == spell(row[1:-1])
        assert [error for _, error, _ in losses] == pytest.approx(errors.tolist(), rel=1e-6)
        assert [weight for _, _, weight in losses] == [method.weights[token].item() for token in row[1:-1]]
    assert actual[0] == [] and len(actual[-1]) == LIMIT - 2 and method.token_losses([]) == []
    with pytest.raises(StsbenchError, match="has no decoder to rebuild tokens"):
        sarcse(folder, **NO_DECODER).token_losses(["cat"])
