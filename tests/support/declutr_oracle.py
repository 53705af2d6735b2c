"""DeCLUTR written out: the spans by draws that are given, and both terms of the loss span by span."""

from __future__ import annotations

import math

import numpy as np
import torch
from info_nce_oracle import naive_nt_xent
from method_oracle import MemoryRows, _tokenizer, logits, make, states

from stsbench.methods.declutr.method import DeCLUTR

SMALL = {"l_min": 2, "l_max": 6}
WORDS = ["man", "cat", "dog", "runs", "food", "park", "red", "blue", "plays", "the", "a", "guitar", "big", "sleeps", "."]


class GivenDraws:
    """Hands out numbers that were written down; `asked`: the ranges that they were asked for in."""

    def __init__(self, numbers):
        self.numbers, self.asked = list(numbers), []

    def beta(self, a, b):
        self.asked.append((a, b))
        return self.numbers.pop(0)

    def integer(self, low, high):
        self.asked.append((low, high))
        return self.numbers.pop(0)


class NotedDraws:
    """A generator's draws, written down."""

    def __init__(self, rng):
        self.rng, self.numbers = rng, []

    def beta(self, a, b):
        self.numbers.append(float(self.rng.beta(a, b)))
        return self.numbers[-1]

    def integer(self, low, high):
        self.numbers.append(int(self.rng.integers(low, high + 1)))
        return self.numbers[-1]


def naive_spans(n, numbers, anchors=2, positives=2, l_min=32, l_max=512, sampling="default"):
    """[anchor] -> (start, end, [(start, end) of each positive]). numbers: the draws, in their order.

    A span's start is drawn itself, but for an adjacent one, where the place of it among the one or two there are is.
    """
    numbers, result = list(numbers), []
    free = [start for start in range(n) if start % l_max == 0 and start + l_max <= n]
    for done in range(anchors):
        length, which, begin = math.floor(numbers.pop(0) * (l_max - l_min) + l_min), numbers.pop(0), numbers.pop(0)
        if math.floor(len(free) / (anchors - done)) < anchors - done:
            which = [0, len(free) - 1][which]
        assert free[which] <= begin <= free[which] + l_max - length
        free = [start for place, start in enumerate(free) if abs(place - which) > 1]
        end, near = begin + length, []
        for _ in range(positives):
            longest = {"default": l_max, "subsuming": length, "adjacent": min(l_max, max(begin, n - end))}[sampling]
            size, start = math.floor(numbers.pop(0) * (longest - l_min) + l_min), numbers.pop(0)
            if sampling == "adjacent":
                starts = [begin - size] if begin - size > 0 else []
                starts += [end] if end + size <= n else []
                start = starts[start]
            elif sampling == "subsuming":
                assert begin <= start <= end - size
            else:
                assert max(0, begin - size) <= start <= min(end, n - size)
            near.append((start, start + size))
        result.append((begin, end, near))
    assert not numbers
    return result


def spans_of(pairs):
    """What `sample_spans` gave, in the oracle's form."""
    return [(a.start, a.end, [(p.start, p.end) for p in near]) for a, near in pairs]


class Documents(MemoryRows):
    """Rows that are documents, whole."""

    def ids(self, role):
        spaced = [" " + text for text in self.texts(role)]
        read = _tokenizer(self.folder)(spaced, add_special_tokens=False, padding=False, truncation=False)["input_ids"]
        return [np.array(row, np.int32) for row in read]


def documents(folder, lengths=(31, 24, 40), seed=0):
    """Documents of so many words, a word piece each."""
    rng = np.random.default_rng(seed)
    return Documents(folder, {"sentence": [" ".join(rng.choice(WORDS, length)) for length in lengths]})


def declutr(folder, pooler="mean", dropout=0.0, **options):
    """In float64 and train mode, of spans that fit into ten tokens."""
    return make(DeCLUTR, folder, {**SMALL, **options}, pooler=pooler, dropout=dropout)


def naive_contrastive(folder, views, documents, anchors, positives, temperature=0.05):
    """NT-Xent of the pairs of an anchor and the mean of its positives, all spans read one by one. views: `views.tokens`."""
    first, second = [], []
    for row in range(documents):
        for a in range(anchors):
            first.append(states(folder, [views[a][row]])[0].mean(0))
            near = [states(folder, [views[anchors + a * positives + p][row]])[0].mean(0) for p in range(positives)]
            second.append(sum(near) / positives)
    return float(naive_nt_xent(torch.stack(first), torch.stack(second), temperature).mean())


def naive_mlm(folder, views, labels):
    """The mean over chosen tokens of the negative log-probability of what stood there."""
    losses = []
    for view, wanted in zip(views, labels, strict=False):
        for ids, row in zip(view, wanted, strict=True):
            each = torch.log_softmax(logits(folder, [ids])[0], dim=1)
            losses += [-float(each[place, token]) for place, token in enumerate(row) if token != -100]
    return sum(losses) / len(losses)
