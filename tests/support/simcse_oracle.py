"""SimCSE made small, and its loss once more: lists of floats, loops, math, texts encoded one at a time."""

from __future__ import annotations

import math

import info_nce_oracle
import numpy as np
import pytest
import torch
from method_oracle import batch_of, make, masked_lm_folder, states, tokens
from tiny_models import sentences

from stsbench.encoders.load import load_encoder
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
    first, second, *blocks = (torch.tensor(rows, dtype=torch.float64) for rows in (queries, keys, *negatives))
    options = {"temperature": temperature, "similarity": similarity, "alpha": alpha}
    return info_nce_oracle.naive_info_nce(first, second, negatives=blocks, **options).mean().item()


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


def naive_teacher(folder, anchors, others, pooler):
    """[i][j] a quarter of the encoder's cosine and three of the words', as float32 holds them."""
    encoder = load_encoder(str(folder), pooler=pooler)
    vectors = {text: encoder.encode([text])[0].tolist() for text in (*anchors, *others)}

    def words(a, b):
        one, other = set(a.lower().split()), set(b.lower().split())
        return len(one & other) / math.sqrt(len(one) * len(other))

    return torch.tensor([[float(np.float32(0.25 * cosine(vectors[a], vectors[b]) + 0.75 * words(a, b))) for b in others]
                         for a in anchors], dtype=torch.float64)


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True)) / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))
