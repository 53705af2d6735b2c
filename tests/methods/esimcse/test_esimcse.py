"""ESimCSE step by step against a loop of its own: loss, gradients, the momentum encoder and the queue."""

import copy
import math

import numpy as np
import pytest
import torch
from esimcse_oracle import TEXTS, Naive, batch_for, esimcse
from method_oracle import MemoryRows, batch_of, make, masked_lm_folder
from simcse_oracle import naive_info_nce
from tiny_models import build
from two_processes import check_same_as_one, passes_of_two, shares_of

from stsbench import losses
from stsbench.errors import StsbenchError
from stsbench.methods.diffcse.method import DiffCSE
from stsbench.methods.esimcse.method import ESimCSE
from stsbench.methods.simcse.method import SimCSE
from stsbench.training.api.batch import Shares
from stsbench.training.api.contrasting import NegativeQueue
from stsbench.training.api.options import Queue

N, RATE = 5, 0.6
REPEAT = {"rate": RATE}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return masked_lm_folder(tmp_path_factory.mktemp("esimcse") / "tiny-mlm")


def queue(size=12, **more):
    return {"size": size, **more}


def rows(folder, step=0):
    return MemoryRows(folder, {"sentence": TEXTS[N * step : N * step + N]})


def gradients(method):
    return {name: weight.grad for name, weight in method.named_parameters() if weight.requires_grad}


# The released training, step by step ------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [
    {"queue": queue(7, start="random")}, {"queue": queue(12, momentum=0.5), "temperature": 0.3},
    {"queue": queue(3, momentum=0.0)}, {"queue": None}, {"repeat": None, "queue": queue(7)},
])
def test_four_steps_are_those_of_a_loop(folder, options):
    """Value and gradients to 1e-8, with padding that no row needs, while weights move and the queue fills and runs over."""
    method = esimcse(folder, **{"repeat": REPEAT, **options})
    held = method.options.queue
    naive = Naive(folder, method, held.size if held else 0, held.momentum if held else 0)
    if held and held.start == "random":
        naive.slow.load_state_dict(method.queue.encoder.backbone.model.state_dict(), strict=False)
    for step in range(4):
        batch = batch_of(method, rows(folder, step), seed=step, more_padding=3)
        views = method.views(rows(folder, step), np.random.default_rng(step)).tokens
        if not held:
            naive.queue = []
        term = method(batch)["contrastive"]
        expected = naive.loss(*views, method.options.temperature)
        assert term.count == N and term.value.item() == pytest.approx(expected.item(), abs=1e-8)
        term.value.backward()
        expected.backward()
        theirs, ours = naive.weights(), gradients(method)
        assert theirs.keys() == ours.keys()
        with torch.no_grad():
            for name, weight in method.named_parameters():
                if weight.requires_grad:
                    assert (ours[name] - theirs[name].grad).abs().max() < 1e-8, name
                    for moved in (weight, theirs[name]):
                        moved -= 0.01 * moved.grad / moved.grad.norm().clamp(min=1e-12)
                        moved.grad = None
    if held:
        stored = method.queue.stored()
        assert len(stored) == min(held.size, 4 * N) == len(naive.queue)
        assert (stored - torch.stack(naive.queue)).abs().max() < 1e-8
        assert not any(weight.requires_grad or weight.grad is not None for weight in method.queue.parameters())


def test_the_share_of_the_start_that_is_left(folder):
    """momentum^k after k forward passes of an encoder that stands still."""
    method = esimcse(folder, queue=queue(momentum=0.9, start="random"))
    models = method.queue.encoder.backbone.model, method.backbone.model
    start, target = (copy.deepcopy(model.state_dict()) for model in models)
    for step in range(6):
        method(batch_of(method, rows(folder, step)))
    for name, weight in method.queue.encoder.backbone.model.named_parameters():
        expected = 0.9**6 * start[name] + (1 - 0.9**6) * target[name]
        assert (weight - expected).abs().max() < 1e-12, name


def test_a_random_start_knows_nothing_of_the_encoder_and_a_copy_is_the_encoder(tmp_path):
    folder = build(tmp_path / "tiny", pooler=False)
    for start, related in (("random", False), ("copy", True)):
        method = esimcse(folder, queue=queue(start=start))
        method.start_stage("main")
        pairs = [(name, own, weight) for (name, own), weight in zip(
            method.queue.encoder.backbone.named_parameters(), method.backbone.parameters(), strict=True)]
        assert len(pairs) > 20
        for name, own, weight in pairs:
            assert torch.equal(own, weight) == (related or weight.std() == 0 or weight.abs().max() == 0), name
        one, other = (torch.cat([pair[index].flatten() for pair in pairs if pair[1].ndim == 2]) for index in (1, 2))
        assert (torch.corrcoef(torch.stack([one, other]))[0, 1] > 0.05) == related


def test_dropout_acts_on_the_views_and_not_on_what_is_stored(folder):
    method = esimcse(folder, dropout=0.3, queue=queue(momentum=0.0))
    batch = batch_of(method, rows(folder))
    method(batch)
    assert method.training and not any(module.training for module in method.queue.encoder.modules())
    stored = method.queue.stored()
    method.eval()
    with torch.no_grad():
        plain = method.vectors(batch.ids[:N], batch.mask[:N])
    assert (stored - plain).abs().max() < 1e-12


def test_held_out_rows_see_no_queue_and_leave_it_alone(folder):
    method = esimcse(folder, queue=queue(), repeat=None)
    method(batch_of(method, rows(folder)))
    before = {name: value.clone() for name, value in method.state_dict().items()}
    method.eval()
    value = method(batch_of(method, rows(folder, 1)))["contrastive"].value
    vectors = method.vectors(batch_of(method, rows(folder, 1)).ids, batch_of(method, rows(folder, 1)).mask).tolist()
    assert value.item() == pytest.approx(naive_info_nce(vectors[:N], vectors[N:]), abs=1e-9)
    assert all(torch.equal(value, before[name]) for name, value in method.state_dict().items())


def test_a_stage_begins_with_an_empty_queue_and_the_encoder_as_it_is(folder):
    for start in ("copy", "random"):
        method = esimcse(folder, queue=queue(start=start))
        method(batch_of(method, rows(folder)))
        slow = copy.deepcopy(method.queue.encoder.backbone.state_dict())
        with torch.no_grad():
            for weight in method.backbone.parameters():
                weight.add_(0.01)
        method.start_stage("main")
        assert len(method.queue.stored()) == 0
        expected = method.backbone.state_dict() if start == "copy" else slow
        now = method.queue.encoder.backbone.state_dict()
        assert all(torch.equal(now[name], value) for name, value in expected.items())


@pytest.mark.parametrize("kind", [ESimCSE, SimCSE, DiffCSE])
@pytest.mark.parametrize("change", [{"size": 3}, {"momentum": 0.5}, {"start": "copy"}, None])
def test_every_choice_of_the_queue_shows_in_later_batches_and_not_in_the_first(folder, kind, change):
    plain, losses = {"size": 9, "momentum": 0.9, "start": "random"}, []
    for held in (plain, None if change is None else {**plain, **change}):
        method = make(kind, folder, {"queue": held, **({"rtd_weight": 0.0} if kind is DiffCSE else {})})
        method.start_stage("main")
        losses.append([method(batch_of(method, rows(folder, step)))["contrastive"].value.item() for step in range(3)])
    assert losses[0][0] == losses[1][0]
    assert abs(losses[0][2] - losses[1][2]) > 1e-6


# The same by other methods' options --------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "more"), [
    (SimCSE, {}), (DiffCSE, {"projector": "tanh", "rtd_weight": 0.0}),
])
def test_simcse_and_diffcse_with_its_options_are_esimcse(folder, kind, more):
    options = {"repeat": REPEAT, "queue": queue(7)}
    one, other = make(ESimCSE, folder, options), make(kind, folder, {**options, **more})
    other.load_state_dict({name.replace("head.", "projector.") if kind is DiffCSE else name: value
                           for name, value in one.state_dict().items()})
    for step in range(3):
        values = [method(batch_of(method, rows(folder, step), seed=step))["contrastive"].value for method in (one, other)]
        assert values[0].item() == values[1].item()
    assert torch.equal(one.queue.stored(), other.queue.stored())


def test_pairs_with_hard_negatives_and_a_queue(folder):
    data = {"anchor": TEXTS[:5], "positive": TEXTS[5:10], "negative": TEXTS[10:15]}
    method = make(SimCSE, folder, {"view": "given", "repeat": REPEAT, "queue": queue(), "alpha": 2.0})
    method(batch_of(method, MemoryRows(folder, data), seed=1))
    stored, plain = method.queue.stored(), [MemoryRows(folder, data).ids(role) for role in data]
    batch = batch_of(method, MemoryRows(folder, data), seed=2)
    lengths = batch.mask.sum(1).split(N)
    assert lengths[0].tolist() == [len(ids) for ids in plain[0]]  # the anchor stays, what comes later is repeated
    assert all(later.sum() > sum(map(len, ids)) for later, ids in zip(lengths[1:], plain[1:], strict=True))
    queries, keys, hard = method.vectors(batch.ids, batch.mask).detach().split(N)
    losses = []
    for i, query in enumerate(queries):
        score = [float(torch.cosine_similarity(query, other, 0)) / 0.05 for other in [*keys, *hard, *stored]]
        total = sum(math.exp(each) for each in score) + math.exp(score[N + i])  # alpha 2: its own twice
        losses.append(math.log(total) - score[i])
    assert method(batch)["contrastive"].value.item() == pytest.approx(sum(losses) / N, abs=1e-8)


def test_the_batch_norm_projector_stores_by_its_running_statistics(folder):
    method = make(DiffCSE, folder, {"rtd_weight": 0.0, "queue": queue(momentum=0.0)})
    method(batch_of(method, rows(folder)))
    stored, counted = method.queue.stored(), int(method.projector.inner_norm.num_batches_tracked)
    assert counted == 1 and method.projector.training
    batch = batch_of(method, rows(folder))
    method.eval()
    with torch.no_grad():
        expected = method.vectors(batch.ids[:N], batch.mask[:N])
    assert (stored - expected).abs().max() < 1e-12


def test_a_head_stands_on_the_first_token_s_vector(folder):
    with pytest.raises(StsbenchError, match=r"^options\.head mlp_train_only stands on the pooler cls, not on mean"):
        esimcse(folder, pooler="mean")
    method = esimcse(folder, pooler="mean", head="none", queue=queue())
    method(batch_of(method, rows(folder)))
    assert method.queue.stored().shape == (N, method.backbone.width)


def test_the_loss_as_a_function_of_vectors(folder):
    method = esimcse(folder, queue=queue())
    method(batch_of(method, rows(folder)))
    batch, stored = batch_of(method, rows(folder, 1)), method.queue.stored()
    first, second = method.vectors(batch.ids, batch.mask).split(N)
    value = losses.esimcse(first, second, stored)
    assert value.item() == method(batch)["contrastive"].value.item()
    with pytest.raises(ValueError, match="anchors"):
        losses.esimcse(first, second[:2])


# Several processes -------------------------------------------------------------------------------------------------

CHOSEN = [(ESimCSE, {"queue": {"size": 7}, "temperature": 0.3}), (SimCSE, {"queue": {"size": 12}, "temperature": 0.3}),
          (DiffCSE, {"queue": {"size": 7}, "rtd_weight": 0.0, "temperature": 0.3})]
SPLITS = [(3, 2), (4, 1)]


def made(folder, chosen, split=None, rank=0):
    kind, options = chosen
    method = make(kind, folder, {**options, "repeat": REPEAT})
    return method, batch_for(method, rows(folder), shares_of(N, split, rank))[0]


@pytest.fixture(scope="module")
def both(folder, tmp_path_factory):
    return passes_of_two(tmp_path_factory.mktemp("shares"), made, folder, CHOSEN, SPLITS)


@pytest.mark.parametrize("number", range(len(CHOSEN)))
def test_two_processes_have_the_gradient_of_one(folder, both, number):
    """In the second pass, against the vectors of the first."""
    check_same_as_one(both, number, *made(folder, CHOSEN[number]))


def test_the_newest_vectors_are_kept_in_their_order(folder):
    method = esimcse(folder, queue=None)
    held = NegativeQueue(method.backbone, method.backbone.width, Queue(size=3)).double()
    head = torch.nn.Identity()
    for step in range(2):
        batch = batch_of(method, rows(folder, step))
        held.enqueue(method.backbone, batch.ids[:2], batch.mask[:2], head, Shares((2,)))
    assert len(held.stored()) == 3 and int(held.filled) == 3
    assert torch.equal(held.stored()[1:], held.encoder.backbone.pooled(batch.ids[:2], batch.mask[:2]).detach())
