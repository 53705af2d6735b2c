"""SARCSE's losses under every option against loops over texts encoded one at a time, and where their gradients go."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from method_oracle import MemoryRows, batch_of, tokens, total
from sarcse_oracle import ODD, PLAIN, SINGLE, SIZES, TEXTS, TRIPLETS, bert, folder, naive_view, sarcse
from simcse_oracle import naive_info_nce

from stsbench.encoders.forward.token_pooler import TextCNN
from stsbench.losses.tokens import reconstruction, token_errors
from stsbench.methods.sarcse.decoder import Decoder
from stsbench.methods.sarcse.method import SARCSE
from stsbench.methods.sarcse.options import SARCSEOptions
from stsbench.training.api.batch import Shares, Views
from stsbench.training.engine.optimiser import make_optimiser, set_step
from stsbench.training.recipes.recipe import TrainingSettings
from stsbench.training.recipes.sections import TrainingSettings
from stsbench.training.rows.batches import to_batch

__all__ = ["bert", "folder"]
OPTIONS = [
    {}, {"similarity": "dot"}, {"temperature": 0.2}, {"contrastive_weight": 0.5}, {"contrastive_weight": 0.0},
    {"beta": 0.1, "gamma": 0.3}, {"beta": 0.0}, {"gamma": 0.0}, {"beta": 0.0, "gamma": 0.0}, {"self_adaptive": False},
    {"unpool": "repeat"}, {"unpool": "repeat+position"}, {"transposed_fusion": "separate"}, {"mse_reduction": "sum"},
    {"detach_target": True}, {"unpool": "repeat+position", "transposed_fusion": "separate", "mse_reduction": "sum"},
]


def terms(method, data, **more):
    return method(batch_of(method, MemoryRows(method.backbone.folder, data), **more))


# --- the losses ---


def cases():
    """Every option at one size; at every size and for every kind of data those that the decoder's shapes depend on."""
    shapes = [options for options in OPTIONS if not options or {"unpool", "transposed_fusion"} & options.keys()]
    kinds = [(SIZES, TRIPLETS), (ODD, PLAIN), (ODD, TRIPLETS), (SINGLE, PLAIN)]
    return [*((SIZES, PLAIN, options) for options in OPTIONS), *((*kind, options) for kind in kinds for options in shapes)]


@pytest.mark.parametrize(("sizes", "data", "options"), cases())
def test_the_losses(folder, sizes, data, options):
    view = "given" if "anchor" in data else "dropout"
    method = sarcse(folder, sizes, view=view, **options)
    texts = list(data.values()) if view == "given" else [data["sentence"]] * 2
    found = [naive_view(method, folder, view) for view in texts]
    queries, keys, *negatives = [[text.vector for text in view] for view, _ in found]
    chosen = method.options
    expected = {"contrastive": naive_info_nce(queries, keys, negatives, chosen.temperature, chosen.similarity)}
    weights = {"contrastive": chosen.contrastive_weight}
    counts = {"contrastive": len(queries)}
    if chosen.beta or chosen.gamma:
        losses = [loss for _, loss in found]
        expected |= {"reconstruction": losses[0], "reconstruction_positive": sum(losses[1:]) / len(losses[1:])}
        weights |= {"reconstruction": chosen.beta, "reconstruction_positive": chosen.gamma}
        counts |= {"reconstruction": len(queries), "reconstruction_positive": len(queries) * len(losses[1:])}
    for padding in (0, 7):
        measured = terms(method, data, more_padding=padding)
        assert {name: term.value.item() for name, term in measured.items()} == pytest.approx(expected, rel=1e-6, abs=1e-9)
        assert {name: term.weight for name, term in measured.items()} == weights
        assert {name: term.count for name, term in measured.items()} == counts
    assert total(measured).item() == pytest.approx(sum(weights[name] * expected[name] for name in expected), rel=1e-6)


def test_a_batch_without_a_token_is_rebuilt_without_error(folder):
    method = sarcse(folder)
    found = terms(method, {"sentence": ["", "", ""]})
    total(found).backward()
    assert found["reconstruction"].value.item() == found["reconstruction_positive"].value.item() == 0
    assert found["contrastive"].value.item() == pytest.approx(math.log(3))
    assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in method.parameters())
    assert method.metrics() == {}


def test_separate_differs_from_shared_by_its_biases_alone(folder):
    """The row of an op that a kernel reads sees one row of its weights: nothing but the bias is new."""
    shared, separate = sarcse(folder), sarcse(folder, transposed_fusion="separate")
    separate.decoder.convs.load_state_dict(shared.decoder.convs.state_dict())
    for fusion in separate.decoder.fusions:
        fusion.load_state_dict(shared.decoder.fusions[0].state_dict())
    for name in ("reconstruction", "reconstruction_positive"):
        assert terms(separate, PLAIN)[name].value.item() == pytest.approx(terms(shared, PLAIN)[name].value.item(), rel=1e-12)


@pytest.mark.parametrize("unpool", ["max", "repeat", "repeat+position"])
@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=5), st.integers(0, 5), st.integers(0, 1000))
def test_a_text_is_rebuilt_alike_in_any_company(unpool, lengths, padding, seed):
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    head = TextCNN(5, **SIZES).double()
    decoder = Decoder(head, SARCSEOptions(unpool=unpool), longest=9).double()
    states = [torch.randn(1, length + 2, 5, generator=generator, dtype=torch.float64) for length in lengths]
    width = max(lengths) + 2 + padding
    together = torch.randn(len(states), width, 5, generator=generator, dtype=torch.float64)
    mask = torch.zeros(len(states), width, dtype=torch.long)
    for row, state in enumerate(states):
        together[row, : state.shape[1]], mask[row, : state.shape[1]] = state[0], 1
    rebuilt = decoder(head.features(together, mask))
    for row, (state, length) in enumerate(zip(states, lengths, strict=True)):
        alone = decoder(head.features(state, torch.ones(1, length + 2, dtype=torch.long)))
        if length:
            assert (alone[0, :length] - rebuilt[row, :length]).abs().max() < 1e-12


# --- gradients ---


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_parameters_that_learn(folder, options):
    method = sarcse(folder, **options)
    total(terms(method, PLAIN)).backward()
    assert not [name for name, weight in method.named_parameters() if weight.grad is None or not weight.grad.any()]
    decoded = [name for name, _ in method.named_parameters() if name.startswith("decoder.")]
    assert bool(decoded) == bool(method.options.beta or method.options.gamma)
    assert (method.decoder is None) != bool(decoded)
    assert any(name.startswith("backbone.head.") for name, _ in method.named_parameters())
    assert not [name for name, _ in method.named_parameters() if "pooler" in name]


@pytest.mark.parametrize("weights", [(1.0, 0.0), (0.0, 1.0)])
def test_each_reconstruction_term_sees_its_own_views(folder, weights):
    """beta rebuilds the first view, gamma all others: only their tokens get a gradient through the target."""
    beta, gamma = weights
    method = sarcse(folder, view="given", contrastive_weight=0, beta=beta, gamma=gamma)
    seen = []
    encode = method.backbone.forward

    def kept(ids, mask, wanted=(-1,)):
        (states,) = encode(ids, mask, wanted)
        states.retain_grad()
        seen.append(states)
        return [states]

    method.backbone.forward = kept
    total(terms(method, TRIPLETS)).backward()
    (states,) = seen
    reached = states.grad.abs().sum((1, 2)) > 0
    real = torch.tensor([text != "" for role in TRIPLETS.values() for text in role])
    first = torch.arange(len(real)) < len(TRIPLETS["anchor"])
    assert torch.equal(reached, real & (first if beta else ~first))


@pytest.mark.parametrize("detach", [False, True])
def test_the_gradient_of_the_target(detach):
    """Finite differences of the loss in a token vector; with detach_target of the loss against what the tokens were."""
    torch.manual_seed(3)
    head = TextCNN(4, **SIZES).double()
    decoder = Decoder(head, SARCSEOptions(detach_target=detach), longest=8).double()
    states, mask = torch.randn(2, 8, 4, dtype=torch.float64), torch.tensor([[1] * 8, [1] * 5 + [0] * 3])
    weights = torch.rand(2, 6, dtype=torch.float64)
    was = head.features(states, mask).tokens

    def loss(values):
        features = head.features(values, mask)
        target = was if detach else features.tokens
        return reconstruction(token_errors(decoder(features), target), weights, features.real)

    own = SimpleNamespace(options=SARCSEOptions(detach_target=detach), decoder=decoder, weights=weights.flatten())
    given_states = states.clone().requires_grad_()
    features = head.features(given_states, mask)
    ids = torch.nn.functional.pad(torch.arange(12).view(2, 6), (1, 1))  # token i has weight i
    errors, found = SARCSE._errors(own, features, ids)
    reconstruction(errors, found, features.real).backward()
    with torch.no_grad():
        inside, around = ((0, 1, 0), (0, 4, 2), (0, 6, 3), (1, 1, 1), (1, 3, 3)), ((0, 0, 0), (0, 7, 1), (1, 4, 0))
        for row, place, coordinate in (*inside, *around):
            step = torch.zeros_like(states)
            step[row, place, coordinate] = 1e-5
            numeric = (loss(states + step) - loss(states - step)) / 2e-5
            assert given_states.grad[row, place, coordinate].item() == pytest.approx(numeric.item(), rel=1e-5, abs=1e-9)
    outside = [given_states.grad[0, 0], given_states.grad[0, 7], given_states.grad[1, 4:]]
    assert not any(part.any() for part in outside)  # special tokens and padding are no part of it


@pytest.mark.parametrize("options", [*OPTIONS, {"head_rate": 10.0}], ids=str)
def test_ten_steps(folder, options):
    method = sarcse(folder, dropout=0.1, **options).float()
    before = {name: weight.detach().clone() for name, weight in method.named_parameters()}
    chosen = TrainingSettings(learning_rate=1e-3)
    optimiser = make_optimiser(method, chosen, method.rates())
    losses = []
    for step in range(10):
        set_step(optimiser, chosen.learning_rate, step, chosen)
        optimiser.zero_grad()
        loss = total(terms(method, PLAIN, seed=step))
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert np.isfinite(losses).all()
    assert all((weight != before[name]).any() for name, weight in method.named_parameters())


def test_the_head_has_its_own_rate(folder):
    method = sarcse(folder, head_rate=7.0)
    optimiser = make_optimiser(method, TrainingSettings(), method.rates())
    set_step(optimiser, 1e-3, 0, TrainingSettings())
    rates = {id(weight): group["lr"] for group in optimiser.param_groups for weight in group["params"]}
    for name, weight in method.named_parameters():
        own = name.startswith(("backbone.head.", "decoder."))
        assert rates[id(weight)] == pytest.approx(7e-3 if own else 1e-3), name
    assert sarcse(folder).rates() == {}


def test_training_learns_to_rebuild(folder):
    weights = {"contrastive_weight": 0.0, "beta": 1.0, "gamma": 1.0}
    method = sarcse(folder, {**SIZES, "channels": 24}, **weights, detach_target=True).float()
    method.backbone.model.requires_grad_(False)
    chosen = TrainingSettings(learning_rate=1e-2)
    optimiser = make_optimiser(method, chosen)
    terms(method, PLAIN)
    first = method.metrics()["reconstruction_error"]
    for _ in range(60):
        optimiser.zero_grad()
        total(terms(method, PLAIN)).backward()
        optimiser.step()
    method.metrics()
    terms(method, PLAIN)
    assert method.metrics()["reconstruction_error"] < first / 2


def test_bfloat16_has_its_loss_in_float32(folder):
    method = sarcse(folder, mse_reduction="sum").float()
    wide = terms(method, PLAIN)
    with torch.autocast("cpu", torch.bfloat16):
        narrow = terms(method, PLAIN)
    total(narrow).backward()
    for name, term in narrow.items():
        assert term.value.dtype == torch.float32
        assert term.value.item() == pytest.approx(wide[name].value.item(), rel=0.05)
    assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in method.parameters())


def test_views(folder):
    method, rng = sarcse(folder), np.random.default_rng(0)
    first, second = method.views(MemoryRows(folder, PLAIN), rng).tokens
    assert [list(row) for row in first] == [list(row) for row in second] == tokens(folder, PLAIN["sentence"])
    views = sarcse(folder, view="given").views(MemoryRows(folder, TRIPLETS), rng).tokens
    assert [[list(row) for row in view] for view in views] == [tokens(folder, texts) for texts in TRIPLETS.values()]


def test_dropout_makes_two_views_of_one_text(folder):
    method = sarcse(folder, dropout=0.1)
    found = terms(method, {"sentence": TEXTS[3:9]})
    one, two = (found[name].value.item() for name in ("reconstruction", "reconstruction_positive"))
    assert abs(one - two) > 1e-6  # each view is rebuilt into its own states
    method.eval()
    found = terms(method, {"sentence": TEXTS[3:9]})
    one, two = (found[name].value.item() for name in ("reconstruction", "reconstruction_positive"))
    assert one == pytest.approx(two, rel=1e-9)


def test_one_length_changes_nothing(folder):
    method = sarcse(folder)
    rows = MemoryRows(folder, PLAIN)
    ids = rows.ids("sentence")
    batches = [to_batch(Views([ids, ids], one_length=flag), Shares((6,)), 1, torch.device("cpu")) for flag in (False, True)]
    assert total(method(batches[0])).item() == pytest.approx(total(method(batches[1])).item(), rel=1e-12)
