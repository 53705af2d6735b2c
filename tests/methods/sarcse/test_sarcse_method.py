"""SARCSE as a method: its weights from the training text, what it refuses, logs and shows, and SimCSE inside it."""

from collections import Counter

import pytest
import torch
from method_oracle import LIMIT, MemoryRows, batch_of, make, tokens, total
from sarcse_oracle import PLAIN, SIZES, TEXTS, TRIPLETS, bert, folder, naive_view, sarcse, text_cnn_backbone

from stsbench.config import validate
from stsbench.data.text.examples import TextRows
from stsbench.data.text.store import open_store
from stsbench.data.text.tokens import tokenised
from stsbench.errors import StsbenchError
from stsbench.methods.sarcse.method import SARCSE
from stsbench.methods.sarcse.options import SARCSEOptions
from stsbench.methods.simcse.method import SimCSE
from stsbench.training.recipes.method_plan import MethodPlan

__all__ = ["bert", "folder"]
NO_DECODER = {"beta": 0.0, "gamma": 0.0}


@pytest.fixture
def rows(folder, tmp_path, monkeypatch):
    """The rows of a file, and its texts."""
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "text.txt"
    texts = [text for text in TEXTS if text]
    path.write_text("\n".join(texts) + "\n", "utf-8")
    store = open_store(path)
    held = tokenised(store, text_cnn_backbone(folder).tokenizer, "tiny", LIMIT, ("sentence",))
    return TextRows(store, held, range(len(store))), texts


# --- Eq. 8 ---


@pytest.mark.parametrize(("theta", "scale"), [(0.1, 50.0), (0.1, 3.0), (0.0, 5.0), (0.6, 5.0), (1.0, 50.0)])
def test_weights_come_from_the_training_text(folder, rows, theta, scale):
    method = sarcse(folder, weighted=False, theta=theta, frequency_scale=scale)
    assert method.weights.isnan().all()  # no number that could be mistaken for one
    before = method.inputs()
    method.prepare(rows[0])
    found = Counter(token for row in tokens(folder, rows[1]) for token in row[1:-1])
    expected = [max(theta, 1 - scale * found[token] / found.total()) for token in range(len(method.weights))]
    assert method.weights.tolist() == pytest.approx(expected, abs=1e-6)
    assert 0 < len(found) < len(method.weights) and method.inputs() == before == {} and method.notes() == []
    special = text_cnn_backbone(folder).tokenizer
    assert [method.weights[token] for token in (special.cls_token_id, special.sep_token_id, special.pad_token_id)] == [1] * 3
    other = sarcse(folder, weighted=False, theta=theta, frequency_scale=scale)
    other.load_state_dict(method.state_dict())  # a trained model needs no training text
    assert torch.equal(other.weights, method.weights)


def test_a_part_of_the_rows_has_its_own_weights(folder, rows):
    method, other = (sarcse(folder, weighted=False, frequency_scale=1.0) for _ in range(2))
    method.prepare(rows[0])
    other.prepare(rows[0].at([0, 1, 2]))
    assert not torch.equal(method.weights, other.weights)


def test_without_weights_nothing_is_counted(folder, rows, tmp_path):
    for options in ({"self_adaptive": False}, NO_DECODER):
        method = sarcse(folder, **options)
        method.prepare(None)
        assert method.decoder is None or torch.equal(method.weights, torch.ones_like(method.weights))
    assert not list(tmp_path.glob("cache/**/counts"))


def test_a_loss_without_counted_tokens_is_no_number(folder):
    method = sarcse(folder, weighted=False)
    assert total(method(batch_of(method, MemoryRows(folder, PLAIN)))).isnan()


# --- without a decoder it is SimCSE with this pooler ---


@pytest.mark.parametrize("data", [PLAIN, TRIPLETS], ids=["plain", "triplets"])
def test_without_a_decoder_it_is_simcse(folder, data):
    view = {"view": "given"} if "anchor" in data else {}
    ours = sarcse(folder, dropout=0.1, **NO_DECODER, **view)
    theirs = SimCSE(text_cnn_backbone(folder, dropout=0.1), SimCSE.Options(head="none", **view)).double().train()
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    found = []
    for method in (ours, theirs):
        torch.manual_seed(5)
        terms = method(batch_of(method, MemoryRows(folder, data)))
        assert list(terms) == ["contrastive"] and terms["contrastive"].weight == 1
        total(terms).backward()
        found.append((total(terms).item(), [weight.grad for weight in method.parameters()]))
    assert found[0][0] == found[1][0]
    assert all(torch.equal(one, two) for one, two in zip(found[0][1], found[1][1], strict=True))
    assert ours.metrics() == {}


# --- what is logged and shown ---


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_metrics(folder, reduction):
    method = sarcse(folder, mse_reduction=reduction)
    assert method.metrics() == {}
    squares = weights = count = 0.0
    for texts in (PLAIN["sentence"], TEXTS[6:9]):
        method(batch_of(method, MemoryRows(folder, {"sentence": texts})))
        view, _ = naive_view(method, folder, texts)
        for row, text in zip(tokens(folder, texts), view, strict=True):
            squares += 2 * float(((text.tokens - text.rebuilt) ** 2).sum()) / 32
            weights += 2 * sum(method.weights[token].item() for token in row[1:-1])
            count += 2 * len(text.tokens)
    assert method.state_dict()["tokens"].item() == count  # what a resumed run goes on with
    found = method.metrics()
    assert found == pytest.approx({"reconstruction_error": squares / count, "token_weight": weights / count}, rel=1e-6)
    assert method.metrics() == {}


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_token_losses(folder, reduction, monkeypatch):
    method = sarcse(folder, dropout=0.1, mse_reduction=reduction)
    method.decoder.eval()  # whatever modes there are, they stay
    monkeypatch.setattr("stsbench.methods.sarcse.method._TEXTS", 4)
    state, random = {name: value.clone() for name, value in method.state_dict().items()}, torch.get_rng_state()
    found = method.token_losses(TEXTS)
    assert method.training and method.backbone.model.training and not method.decoder.training
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(value, state[name]) for name, value in method.state_dict().items())
    assert all(weight.grad is None for weight in method.parameters())
    view, _ = naive_view(method, folder, TEXTS)
    ids = tokens(folder, TEXTS)
    spell = text_cnn_backbone(folder).tokenizer.convert_ids_to_tokens
    for losses, row, text in zip(found, ids, view, strict=True):
        errors = ((text.tokens - text.rebuilt) ** 2).sum(1) / (32 if reduction == "mean" else 1)
        assert [spelling for spelling, _, _ in losses] == spell(row[1:-1])
        assert [error for _, error, _ in losses] == pytest.approx(errors.tolist(), rel=1e-6)
        assert [weight for _, _, weight in losses] == [method.weights[token].item() for token in row[1:-1]]
    assert found[0] == [] and len(found[-1]) == LIMIT - 2 and method.token_losses([]) == []
    with pytest.raises(StsbenchError, match="has no decoder to rebuild tokens"):
        sarcse(folder, **NO_DECODER).token_losses(["cat"])


def test_the_tested_encoder(folder):
    method = sarcse(folder)
    found = method.inference()
    assert found.model is method.backbone.model and found.pooler == "text_cnn" and found.token_pooler is method.backbone.head
    assert found.dense is None and found.masked_lm is None


def test_bert_too(bert):
    """The tokens around a text are the tokenizer's own, whatever they are called."""
    method = sarcse(bert)
    found = method(batch_of(method, MemoryRows(bert, PLAIN)))
    _, loss = naive_view(method, bert, PLAIN["sentence"])
    assert found["reconstruction"].value.item() == pytest.approx(loss, rel=1e-6)


# --- what goes together ---


def test_another_pooler_is_refused(folder):
    with pytest.raises(StsbenchError, match=r"^sarcse trains the pooler text_cnn, not cls: set backbone\.pooler text_cnn$"):
        make(SARCSE, folder)


@pytest.mark.parametrize(("options", "message"), [
    ({"contrastive_weight": 0, **NO_DECODER}, "options.contrastive_weight, beta and gamma are all 0: there is no loss"),
    ({"unpool": "repeat", **NO_DECODER}, "options.unpool repeat has no effect without beta or gamma above 0"),
    ({"transposed_fusion": "separate", **NO_DECODER}, "options.transposed_fusion separate has no effect without beta or"),
    ({"mse_reduction": "sum", **NO_DECODER}, "options.mse_reduction sum has no effect without beta or gamma"),
    ({"detach_target": True, **NO_DECODER}, "options.detach_target true has no effect without beta or gamma"),
    ({"theta": 0.2, **NO_DECODER}, "options.theta 0.2 has no effect without beta or gamma above 0; leave it at 0.1"),
    ({"theta": 0.2, "self_adaptive": False}, "options.theta 0.2 has no effect with self_adaptive false"),
    ({"frequency_scale": 20, "self_adaptive": False}, "options.frequency_scale 20 has no effect with self_adaptive false"),
    ({"frequency_scale": 20, "theta": 1}, "options.frequency_scale 20 has no effect with theta 1: it goes with theta below"),
    ({"contrastive_weight": 0, "similarity": "dot"}, "options.similarity dot has no effect with contrastive_weight 0"),
    ({"contrastive_weight": 0, "temperature": 0.1}, "options.temperature 0.1 has no effect with contrastive_weight 0"),
    ({"similarity": "dot", "temperature": 0.1}, "options.temperature 0.1 has no effect with similarity dot"),
])
def test_options_without_an_effect(options, message):
    with pytest.raises(StsbenchError) as caught:
        validate(SARCSEOptions, options, "recipe", "options.")
    assert str(caught.value).startswith(f"recipe: {message}") and "\n" not in str(caught.value)


def test_both_ablations_of_the_paper_are_allowed(folder):
    for options in ({"self_adaptive": False}, NO_DECODER, {"self_adaptive": False, **NO_DECODER}, {"theta": 0.0}):
        sarcse(folder, **options)


def test_roles():
    plain, given = SARCSEOptions(), SARCSEOptions(view="given")
    assert MethodPlan(SARCSE, plain).roles(("sentence", "label")) == ("sentence",)
    assert MethodPlan(SARCSE, given).roles(("positive", "anchor")) == ("anchor", "positive")
    everything = ("label", "negative2", "negative", "positive", "anchor")
    assert MethodPlan(SARCSE, given).roles(everything) == ("anchor", "positive", "negative", "negative2")


@pytest.mark.parametrize(("view", "given", "message"), [
    ("dropout", ("premise",), r"needs the column sentence, or anchor and positive \(the data give premise\)"),
    ("dropout", ("sentence", "anchor"), "both sentence and anchor"),
    ("dropout", ("anchor", "positive"), "set options.view given"),
    ("given", ("sentence",), "set options.view dropout"),
    ("given", ("anchor",), "needs the column positive beside anchor"),
    ("given", ("anchor", "positive", "negative2"), "negative2 without negative"),
])
def test_data_that_do_not_go_together(view, given, message):
    with pytest.raises(StsbenchError, match=message) as caught:
        MethodPlan(SARCSE, SARCSEOptions(view=view)).roles(given)
    assert "\n" not in str(caught.value)


def test_the_decoder_is_not_tied_and_reads_no_text_twice(folder):
    method = sarcse(folder)
    calls = []
    method.backbone.model.register_forward_hook(lambda *_: calls.append(1))
    method.decoder.register_forward_hook(lambda _, inputs, output: calls.append(tuple(output.shape)))
    method(batch_of(method, MemoryRows(folder, PLAIN)))
    assert len([call for call in calls if call != 1]) == 1 and calls[-1] == (12, LIMIT - 2, 32)
    parts = [method.backbone.head.convs, method.decoder.convs]
    places = [{weight.data_ptr() for weight in part.parameters()} for part in parts]
    assert not places[0] & places[1]
    shapes = [[tuple(conv.weight.shape) for conv in part] for part in parts]
    assert shapes == [[(6, 32, k) for k in SIZES["kernels"]]] * 2
