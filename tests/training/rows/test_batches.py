"""Batches are a function of seed and step; shares of several processes put together are the whole batch."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stsbench.errors import StsbenchError
from stsbench.training.api.batch import IGNORED, Views
from stsbench.training.recipes.sections import TrainingSettings
from stsbench.training.rows.batches import Batches, TokenBatches, split_shares, to_batch

CPU = torch.device("cpu")
SMALL = st.integers(1, 7)


def batches(n, least=1, processes=1, lengths=None, **values):
    return Batches(np.arange(100, 100 + n), TrainingSettings(**values), 42, least=least, processes=processes,
                   lengths=lengths)


@settings(deadline=None, max_examples=30)
@given(n=st.integers(1, 60), size=SMALL, accumulate=SMALL, length_order=st.booleans())
def test_an_epoch_holds_every_row_once(n, size, accumulate, length_order):
    lengths = np.random.default_rng(n).integers(1, 30, 200)
    one = batches(n, batch_size=size, accumulate=accumulate, order="length" if length_order else "random", lengths=lengths)
    assert one.steps == one.steps_an_epoch == math.ceil(math.ceil(n / size) / accumulate)
    parts = [part for step in range(one.steps) for part in one.step(step)]
    assert sorted(np.concatenate(parts)) == list(range(100, 100 + n))
    again = batches(n, batch_size=size, accumulate=accumulate, order="length" if length_order else "random", lengths=lengths)
    last = one.steps - 1  # a step does not depend on the steps before
    assert [part.tolist() for part in again.step(last)] == [part.tolist() for part in one.step(last)]
    assert sorted(map(len, parts), reverse=True) == [size] * (n // size) + ([n % size] if n % size else [])
    assert all(len(one.step(step)) <= accumulate for step in range(one.steps))


def token_batches(n, lengths, least=1, processes=1, group=1, seed=42, **values):
    return TokenBatches(np.arange(n), TrainingSettings(**values), seed, lengths=lengths, least=least, processes=processes,
                        group=group)


@settings(deadline=None, max_examples=40)
@given(n=st.integers(6, 60), size=st.integers(3, 9), budget=st.integers(5, 120), accumulate=SMALL, group=st.integers(1, 3),
       length_order=st.booleans(), epochs=st.sampled_from([1.0, 2.5, 3.0]))
def test_batches_of_tokens_hold_every_row_once_and_no_more_than_the_budget(
    n, size, budget, accumulate, group, length_order, epochs
):
    lengths = np.random.default_rng(n).integers(1, 30, n)
    one = token_batches(n, lengths, least=2, group=group, batch_size=size * group, batch_tokens=budget, epochs=epochs,
                        accumulate=accumulate, order="length" if length_order else "random")
    parts, passes = {}, []
    for step in range(one.steps):
        passes += [one.forward_pass(step, number) for number in range(len(one.step(step)))]
        assert 0 < len(one.step(step)) <= accumulate
        parts.setdefault(int(one.epoch(step)), []).extend(one.step(step))
    assert passes == list(range(len(passes)))
    assert len(parts) == math.ceil(epochs)
    fewest = group * math.ceil(2 / group)
    for epoch, of_epoch in parts.items():
        rows = np.concatenate(of_epoch)
        assert len(set(rows.tolist())) == len(rows)
        if epoch + 1 <= epochs:
            assert len(rows) > n - group - fewest
        for part in of_epoch:
            assert len(part) % group == 0 and fewest <= len(part) <= size * group
            assert len(part) == fewest or len(part) * lengths[part].max() <= budget
    for step in (one.steps - 1, 0):  # whatever was asked for before
        again = token_batches(n, lengths, least=2, group=group, batch_size=size * group, batch_tokens=budget, epochs=epochs,
                              accumulate=accumulate, order="length" if length_order else "random")
        assert [part.tolist() for part in again.step(step)] == [part.tolist() for part in one.step(step)]


def test_a_batch_of_tokens_takes_all_that_fit():
    lengths = np.full(40, 5)
    one = token_batches(40, lengths, batch_size=16, batch_tokens=50)
    assert [len(part) for step in range(one.steps) for part in one.step(step)] == [10] * 4
    assert token_batches(40, lengths, batch_size=8, batch_tokens=50).steps == 5
    many = token_batches(41, np.full(41, 5), batch_size=16, batch_tokens=50, drop_last=True, epochs=1.5)
    assert (many.steps, many.dropped) == (6, 1)
    with pytest.raises(StsbenchError, match=r"10 rows do not fill one batch by training\.batch_tokens, and the last one is"):
        token_batches(10, lengths, batch_size=16, batch_tokens=50, drop_last=True)


def test_steps_and_the_last_batch():
    for values, steps in (({"epochs": 3}, 21), ({"epochs": 0.5}, 4), ({"max_steps": 5}, 5), ({"accumulate": 2}, 4),
                          ({"epochs": 3, "max_steps": 100}, 21), ({"accumulate": 2, "epochs": 2}, 8)):
        assert batches(100, batch_size=15, **values).steps == steps
    one = batches(50, batch_size=50, epochs=3)  # epochs, seeds and uses differ
    more = (Batches(np.arange(100, 150), TrainingSettings(batch_size=50), seed, use=use)
            for seed, use in ((43, "order"), (42, "labelled order"), (43, "labelled order")))
    orders = [*(one.step(step)[0] for step in range(3)), *(each.step(0)[0] for each in more)]
    assert len({tuple(order) for order in orders}) == 6
    assert batches(65, batch_size=64).steps == 2
    assert batches(65, batch_size=64).dropped == 0
    assert batches(65, batch_size=64, drop_last=True).dropped == 1
    alone = batches(65, batch_size=64, least=2)  # one example has nothing to contrast with
    assert (alone.steps, alone.dropped) == (1, 1)
    assert batches(66, batch_size=64, least=2, processes=2).dropped == 0
    assert batches(66, batch_size=64, least=2, processes=3).dropped == 2
    with pytest.raises(StsbenchError, match=r"one batch: 3 rows.*drop_last"):
        batches(3, batch_size=64, drop_last=True)


@settings(deadline=None, max_examples=30)
@given(count=st.integers(1, 20), processes=st.integers(1, 5), views=st.integers(1, 3), seed=st.integers(0, 99))
def test_shares_together_are_the_batch(count, processes, views, seed):
    if count < processes:
        return
    rng = np.random.default_rng(seed)
    tokens = [[rng.integers(5, 50, rng.integers(1, 9)).tolist() for _ in range(count)] for _ in range(views)]
    labels = [[[IGNORED] * (len(row) - 1) + [row[-1]] for row in view] for view in tokens]
    numbers = [rng.integers(0, 9, (count, 2, 2)) for _ in range(views)]
    made = Views(tokens, {"mlm_labels": labels, "mlm_ids": tokens}, labels=list(range(count)),
                 scores=[example / 3 for example in range(count)], by_row={"kept": numbers})
    seen = {}
    for rank in range(processes):
        shares = split_shares(count, processes, rank)
        batch = to_batch(made, shares, 0, CPU)
        assert len(batch) == shares.sizes[rank] and batch.mask.sum(1).max() == batch.ids.shape[1]
        for i in range(views * len(batch)):
            view, example = i // len(batch), shares.start + i % len(batch)
            length = int(batch.mask[i].sum())
            assert batch.ids[i, :length].tolist() == tokens[view][example]
            assert not batch.ids[i, length:].any() and not batch.mask[i, length:].any()
            assert batch.extra["mlm_labels"][i].tolist() == labels[view][example] + [IGNORED] * (
                batch.ids.shape[1] - length
            )
            assert batch.extra["mlm_ids"][i].tolist() == batch.ids[i].tolist()
            assert batch.by_row["kept"][i].tolist() == numbers[view][example].tolist()
            assert batch.scores[i % len(batch)].item() == example / 3 and batch.scores.dtype == torch.float64
            seen[view, example] = int(batch.labels[i % len(batch)])
    assert seen == {(view, example): example for view in range(views) for example in range(count)}
