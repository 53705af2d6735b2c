"""SimCSE made small, and its vectors once more, of texts read one at a time."""

import math

import numpy as np
import pytest
import torch
from method_oracle import batch_of, make, states, tokens
from tiny_models import sentences

from stsbench import losses
from stsbench.encoders.load import load_encoder
from stsbench.methods.simcse.method import SimCSE

TEXTS = sentences(60, longest=9, seed=5)
PLAIN = {"sentence": TEXTS[:5]}
PAIRS = {"anchor": TEXTS[:5], "positive": TEXTS[5:10]}
TRIPLETS = {**PAIRS, "negative": TEXTS[10:15]}


def simcse(folder, *, dropout=0.0, pooler="cls", **options):
    return make(SimCSE, folder, options, dropout=dropout, pooler=pooler)


def loss(method, rows, **batch):
    return method(batch_of(method, rows, **batch))["contrastive"].value


def heads(vectors, dense):
    """(n, d) tanh(W x + b) of n vectors; without a dense layer the vectors themselves."""
    rows = torch.stack([*vectors])
    return rows if dense is None else torch.tanh(rows @ dense.weight.T + dense.bias)


def cls(folder, texts, dense=None):
    return heads([state[0] for state in states(folder, tokens(folder, texts))], dense)


def info_nce(queries, keys, *negatives, **options):
    """SimCSE's public loss, which tests/losses holds against loops."""
    return losses.simcse(queries, keys, torch.cat(negatives) if negatives else None, **options)


def same(value, expected):
    assert value.item() == pytest.approx(float(expected), rel=1e-9, abs=1e-9)


def count_passes(backbone):
    """(texts, their pooled vectors) of each pass through a backbone from now on."""
    calls, pooled = [], backbone.pooled

    def counted(ids, mask):
        vectors = pooled(ids, mask)
        calls.append((len(ids), vectors.detach()))
        return vectors

    backbone.pooled = counted
    return calls


def naive_teacher(folder, anchors, others, pooler):
    """[i][j] a quarter of the encoder's cosine and three of the words', as float32 holds them."""
    encoder = load_encoder(str(folder), pooler=pooler)
    vectors = {text: encoder.encode([text])[0].tolist() for text in {*anchors, *others}}

    def words(a, b):
        one, other = set(a.lower().split()), set(b.lower().split())
        return len(one & other) / math.sqrt(len(one) * len(other))

    return torch.tensor([[float(np.float32(0.25 * cosine(vectors[a], vectors[b]) + 0.75 * words(a, b))) for b in others]
                         for a in anchors], dtype=torch.float64)


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True)) / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))
