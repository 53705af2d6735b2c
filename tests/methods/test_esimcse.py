"""ESimCSE step by step against a loop over texts encoded one at a time; its queue and repetition, in other methods, too."""

import copy
from collections import Counter

import numpy as np
import pytest
import torch
from method_oracle import MemoryRows, batch_of, make, tokens
from simcse_oracle import info_nce, same
from tiny_models import sentences
from transformers import AutoModel

from stsbench import losses
from stsbench.losses.contrastive import info_nce as info_nce_of_all
from stsbench.methods.diffcse.method import DiffCSE
from stsbench.methods.esimcse.method import ESimCSE
from stsbench.methods.simcse.method import SimCSE
from stsbench.training.api.options import Repetition
from stsbench.training.api.views import repeated

TEXTS = sentences(60, longest=9, seed=5)
N, REPEAT, DRAWS = 5, {"rate": 0.6}, 2000


def esimcse(folder, *, dropout=0.0, pooler="cls", **options):
    return make(ESimCSE, folder, options, dropout=dropout, pooler=pooler)


def queue(size=12, **more):
    return {"size": size, **more}


def rows(folder, step=0):
    return MemoryRows(folder, {"sentence": TEXTS[N * step : N * step + N]})


class Naive:
    """What the released code does in one step after another, without its Trainer: loss, then theta_m, then the queue."""

    def __init__(self, folder, method, size, momentum):
        self.model = AutoModel.from_pretrained(folder, dtype=torch.float32).double().eval()
        self.slow = copy.deepcopy(self.model)
        self.weight, self.bias = (part.detach().clone().requires_grad_() for part in method.head.dense.parameters())
        self.size, self.momentum, self.queue = size, momentum, []

    def weights(self):
        """By the names that the method has for them."""
        weights = {f"backbone.model.{name}": weight for name, weight in self.model.named_parameters()
                   if "pooler" not in name}
        return {**weights, "head.dense.weight": self.weight, "head.dense.bias": self.bias}

    def vector(self, model, ids):
        hidden = model(input_ids=torch.tensor([[int(token) for token in ids]])).last_hidden_state[0, 0]
        return torch.tanh(self.weight @ hidden + self.bias)

    def loss(self, first, second, temperature):
        """A scalar with a graph; then theta_m and the queue as they are for the next step."""
        queries, keys = (torch.stack([self.vector(self.model, ids) for ids in view]) for view in (first, second))
        stored = torch.stack(self.queue) if self.queue else None
        value = losses.esimcse(queries, keys, stored, temperature=temperature)  # in loops: tests/losses
        with torch.no_grad():
            fast = dict(self.model.named_parameters())
            for name, weight in self.slow.named_parameters():
                weight.copy_(weight * self.momentum + fast[name] * (1 - self.momentum))
            self.queue += [self.vector(self.slow, ids).clone() for ids in first]
        self.queue = self.queue[-self.size :]
        return value


@pytest.mark.parametrize("options", [
    {"queue": queue(7, start="random")}, {"queue": queue(3, momentum=0.5), "temperature": 0.3},
])
def test_four_steps_are_those_of_a_loop(folder, options):
    """Value and gradients to 1e-8, with padding that no row needs, while weights move and the queue fills and runs over."""
    method = esimcse(folder, **{"repeat": REPEAT, **options})
    held = method.options.queue
    naive = Naive(folder, method, held.size, held.momentum)
    if held.start == "random":
        naive.slow.load_state_dict(method.queue.encoder.backbone.model.state_dict(), strict=False)
    for step in range(4):
        term = method(batch_of(method, rows(folder, step), seed=step, more_padding=3))["contrastive"]
        views = method.views(rows(folder, step), np.random.default_rng(step)).tokens
        expected = naive.loss(*views, method.options.temperature)
        assert term.count == N and term.value.item() == pytest.approx(expected.item(), abs=1e-8)
        term.value.backward()
        expected.backward()
        theirs, ours = naive.weights(), dict(method.named_parameters())
        trained = {name for name, weight in ours.items() if weight.requires_grad}
        assert theirs.keys() == trained
        with torch.no_grad():
            for name in trained:
                assert (ours[name].grad - theirs[name].grad).abs().max() < 1e-8, name
                for weight in (ours[name], theirs[name]):
                    weight -= 0.01 * weight.grad / weight.grad.norm().clamp(min=1e-12)
                    weight.grad = None
    stored = method.queue.stored()
    assert len(stored) == held.size == len(naive.queue)
    assert (stored - torch.stack(naive.queue)).abs().max() < 1e-8
    assert not any(weight.requires_grad or weight.grad is not None for weight in method.queue.parameters())


@pytest.mark.parametrize("start", ["copy", "random"])
def test_a_stage_begins_with_an_empty_queue_and_the_encoder_as_it_is_or_weights_that_know_nothing_of_it(folder, start):
    method = esimcse(folder, queue=queue(start=start))
    method(batch_of(method, rows(folder)))
    slow = copy.deepcopy(method.queue.encoder.backbone.state_dict())
    with torch.no_grad():
        for weight in method.backbone.parameters():
            weight.add_(0.01)
    method.start_stage("main")
    assert len(method.queue.stored()) == 0
    fast, now = method.backbone.state_dict(), method.queue.encoder.backbone.state_dict()
    assert all(torch.equal(now[name], value) for name, value in (fast if start == "copy" else slow).items())
    both = [torch.cat([state[name].flatten() for name in fast if fast[name].ndim == 2]) for state in (now, fast)]
    assert (torch.corrcoef(torch.stack(both))[0, 1] > 0.05) == (start == "copy")


@pytest.mark.parametrize(("kind", "options"), [(ESimCSE, {}), (DiffCSE, {"rtd_weight": 0.0})])
def test_what_is_stored_has_neither_dropout_nor_statistics_of_the_batch(folder, kind, options):
    method = make(kind, folder, {"queue": queue(momentum=0.0), **options}, dropout=0.3)
    batch = batch_of(method, rows(folder))
    method(batch)
    assert method.training and not any(module.training for module in method.queue.encoder.modules())
    stored = method.queue.stored()
    if kind is DiffCSE:
        assert int(method.projector.inner_norm.num_batches_tracked) == 1 and method.projector.training
    method.eval()
    with torch.no_grad():
        expected = method.vectors(batch.ids[:N], batch.mask[:N])
    assert (stored - expected).abs().max() < 1e-12


def test_held_out_rows_see_no_queue_and_leave_it_alone(folder):
    method = esimcse(folder, queue=queue(), repeat=None)
    method(batch_of(method, rows(folder)))
    before = {name: value.clone() for name, value in method.state_dict().items()}
    method.eval()
    batch = batch_of(method, rows(folder, 1))
    same(method(batch)["contrastive"].value, info_nce(*method.vectors(batch.ids, batch.mask).split(N)))
    assert all(torch.equal(value, before[name]) for name, value in method.state_dict().items())


@pytest.mark.parametrize(("kind", "more"), [(SimCSE, {}), (DiffCSE, {"projector": "tanh", "rtd_weight": 0.0})])
def test_simcse_and_diffcse_with_its_options_are_esimcse(folder, kind, more):
    options = {"repeat": REPEAT, "queue": queue(7)}
    methods = make(ESimCSE, folder, options), make(kind, folder, {**options, **more})
    state = methods[0].state_dict()
    methods[1].load_state_dict(
        {name.replace("head.", "projector.") if kind is DiffCSE else name: value for name, value in state.items()})
    for step in range(3):
        values = [method(batch_of(method, rows(folder, step), seed=step))["contrastive"].value for method in methods]
        assert values[0].item() == values[1].item()
    assert torch.equal(*(method.queue.stored() for method in methods))


def test_pairs_with_hard_negatives_and_a_queue(folder):
    data = MemoryRows(folder, {"anchor": TEXTS[:5], "positive": TEXTS[5:10], "negative": TEXTS[10:15]})
    method = make(SimCSE, folder, {"view": "given", "repeat": REPEAT, "queue": queue(), "alpha": 2.0})
    method(batch_of(method, data, seed=1))
    stored, plain, batch = method.queue.stored(), [data.ids(role) for role in data.roles], batch_of(method, data, seed=2)
    lengths = batch.mask.sum(1).split(N)
    assert lengths[0].tolist() == [len(ids) for ids in plain[0]]  # the anchor stays, what comes later is repeated
    assert all(later.sum() > sum(map(len, ids)) for later, ids in zip(lengths[1:], plain[1:], strict=True))
    queries, keys, hard = method.vectors(batch.ids, batch.mask).split(N)
    same(method(batch)["contrastive"].value, info_nce_of_all(queries, keys, negatives=[hard], stored=stored, alpha=2.0))


def draws(items, **options):
    rng = np.random.default_rng(0)
    return [repeated(items, Repetition(**options), rng).tolist() for _ in range(DRAWS)]


def uniform(counter, values):
    """Each of the values as often as any other, up to five standard deviations, and no other."""
    assert set(counter) == set(values)
    p, total = 1 / len(values), sum(counter.values())
    assert all(abs(count - p * total) <= 5 * (total * p * (1 - p)) ** 0.5 for count in counter.values())


@pytest.mark.parametrize(("items", "options", "most", "first", "last"), [
    # items, options -> the most that are repeated, the first item that may be, the last
    (12, {"rate": 0.32}, 2, 1, 10), (64, {"rate": 0.32}, 9, 1, 62), (40, {"rate": 0.5, "unit": "word"}, 9, 0, 38),
    (42, {"rate": 0.5, "count": "paper"}, 20, 1, 40), (10, {"rate": 0.4, "unit": "word", "count": "paper"}, 4, 0, 9),
    (1, {"unit": "word", "count": "paper"}, 1, 0, 0), (6, {"rate": 0.32}, 0, 0, 0), (1, {"unit": "word"}, 0, 0, 0),
])
def test_how_many_are_repeated_and_which(items, options, most, first, last):
    drawn = draws(items, **options)
    assert all(indices == sorted(set(indices)) for indices in drawn)
    uniform(Counter(map(len, drawn)), range(most + 1))
    if most:
        uniform(Counter(index for indices in drawn for index in indices), range(first, last + 1))


@pytest.mark.parametrize("repeat", [REPEAT, {"unit": "word", "count": "paper", **REPEAT}], ids=str)
def test_the_first_view_is_the_sentence_and_the_second_has_what_is_drawn_twice(folder, repeat):
    """Words are repeated in the text, which is cut afterwards; repeated sub-words stand beyond backbone.max_length."""
    method, texts = esimcse(folder, repeat=repeat, queue=None), [*TEXTS[:20], "cat", "the cat " * 9]
    first, second = method.views(MemoryRows(folder, {"sentence": texts}), np.random.default_rng(4)).tokens
    plain, rng, expected = tokens(folder, texts), np.random.default_rng(4), []
    for text, ids in zip(texts, plain, strict=True):
        items = text.split(" ") if "unit" in repeat else ids
        twice = set(repeated(len(items), Repetition(**repeat), rng).tolist())
        grown = [item for index, each in enumerate(items) for item in [each] * (1 + (index in twice))]
        expected.append(tokens(folder, [" ".join(grown)])[0] if "unit" in repeat else grown)
    assert [row.tolist() for row in first] == plain
    assert [list(map(int, row)) for row in second] == expected != plain
    assert (max(map(len, second)) > 10) == ("unit" not in repeat)
