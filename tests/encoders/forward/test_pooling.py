"""Poolers against formulas written out, and how texts are packed."""

import numpy as np
import torch

from stsbench.encoders.forward import batching
from stsbench.encoders.forward.pooling import pool


def test_poolers_on_a_worked_example():
    last = torch.tensor([[1.0, 2], [3, 4], [5, 9], [7, 7], [1, 0]])
    other = torch.zeros(5, 2) + 2
    groups = [(1, 3), (2, 1)]
    assert pool("cls", [last], groups).tolist() == [[1, 2], [7, 7], [1, 0]]
    assert pool("mean", [last], groups).tolist() == [[3, 5], [7, 7], [1, 0]]
    assert pool("cls_avg", [last], groups).tolist() == [[2, 3.5], [7, 7], [1, 0]]
    assert pool("max", [last], groups).tolist() == [[5, 9], [7, 7], [1, 0]]
    assert pool("last2", [other, last], groups).tolist() == [[2.5, 3.5], [4.5, 4.5], [1.5, 1]]
    assert pool("mask", [last], groups, torch.tensor([1, 3, 4])).tolist() == [[3, 4], [7, 7], [1, 0]]
    assert pool("cls+dense", [last], groups, dense=lambda x: x * 2).tolist() == [[2, 4], [14, 14], [2, 0]]


def test_batches_keep_to_the_budget_and_cover_every_text():
    lengths = np.sort(np.random.default_rng(0).integers(1, 60, 500))[::-1].copy()
    start = 0
    while start < len(lengths):
        stop = batching.batch_end(lengths, start, 256)
        assert stop > start
        assert int(lengths[start]) * (stop - start) <= 256
        groups = batching.groups(lengths[start:stop])
        assert sum(texts * length for texts, length in groups) == lengths[start:stop].sum()
        start = stop
    assert batching.batch_end(np.array([900, 900]), 0, 256) == 1  # a text longer than the budget goes alone
