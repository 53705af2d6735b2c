"""SimCSE made small, and its loss once more: lists of floats, loops, math, texts encoded one at a time."""

from __future__ import annotations

import math

import pytest
from method_oracle import batch_of, make, masked_lm_folder, states, tokens
from tiny_models import sentences

from stsbench.methods.simcse.method import SimCSE

TEXTS = sentences(60, longest=9, seed=5)
PLAIN = {"sentence": TEXTS[:5]}
PAIRS = {"anchor": TEXTS[:5], "positive": TEXTS[5:10]}
TRIPLETS = {**PAIRS, "negative": TEXTS[10:15]}
QUADRUPLES = {**TRIPLETS, "negative2": TEXTS[15:20]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return masked_lm_folder(tmp_path_factory.mktemp("simcse") / "tiny-mlm")


def simcse(folder, *, dropout=0.0, pooler="cls", **options):
    return make(SimCSE, folder, options, dropout=dropout, pooler=pooler)


def loss(method, rows, **batch):
    return method(batch_of(method, rows, **batch))["contrastive"].value


def heads(vectors, dense):
    """tanh(W x + b), entry by entry; without a dense layer the vectors themselves."""
    rows = [vector.tolist() for vector in vectors]
    if dense is None:
        return rows
    weight, bias = dense.weight.tolist(), dense.bias.tolist()
    return [[math.tanh(sum(w * x for w, x in zip(line, row, strict=True)) + b)
             for line, b in zip(weight, bias, strict=True)] for row in rows]


def naive_info_nce(queries, keys, negatives=(), temperature=0.05, similarity="cosine", alpha=1.0):
    def likeness(a, b):
        dot = sum(x * y for x, y in zip(a, b, strict=True))
        return dot if similarity == "dot" else dot / (math.hypot(*a) * math.hypot(*b)) / temperature

    losses = []
    for i, query in enumerate(queries):
        scores = [likeness(query, key) for key in keys]
        weights = [1.0] * len(keys)
        for block in negatives:
            scores += [likeness(query, key) for key in block]
            weights += [alpha if i == j else 1.0 for j in range(len(block))]
        top = max(scores)
        partition = sum(w * math.exp(score - top) for w, score in zip(weights, scores, strict=True))
        losses.append(math.log(partition) + top - scores[i])
    return sum(losses) / len(losses)


def cls(folder, texts, dense=None):
    return heads([state[0] for state in states(folder, tokens(folder, texts))], dense)


def same(value, expected):
    assert value.item() == pytest.approx(expected, rel=1e-9, abs=1e-9)


def count_passes(backbone):
    """(texts, their pooled vectors) of each pass through a backbone from now on."""
    calls, pooled = [], backbone.pooled

    def counted(ids, mask):
        vectors = pooled(ids, mask)
        calls.append((len(ids), vectors.detach()))
        return vectors

    backbone.pooled = counted
    return calls
