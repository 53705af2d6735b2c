"""IS-BERT made small, and its CNN and its loss once more: lists of floats, a loop over tokens and sentences."""

from __future__ import annotations

import copy
import math
from functools import cache

import torch
from method_oracle import LIMIT
from tiny_models import sentences

from stsbench.methods.isbert.method import ISBERT
from stsbench.training.modules.backbone import load_backbone

TEXTS = [*sentences(12, longest=9, seed=3), "a", "a cat"]
SMALL = {"kernels": (1, 3, 5), "channels": 4, "activation": "relu"}


@cache
def _backbone(folder, sizes, dropout):
    torch.manual_seed(1)
    return load_backbone(folder, folder.name, "mean_cnn", LIMIT, dropout, {"mean_cnn": dict(sizes)})


def isbert(folder, *, dropout=0.0, sizes=None, **options):
    backbone = copy.deepcopy(_backbone(folder, tuple({**SMALL, **(sizes or {})}.items()), dropout))
    backbone.folder, backbone.name = folder, folder.name
    return ISBERT(backbone, ISBERT.Options(**options)).double().train()


def local_vectors(head, states, count):
    """[token] -> its vector, the kernels side by side. states: (places, d), of which the first `count` are tokens; beyond
    all places the convolutions read zeros."""
    rows = []
    for t in range(count):
        row = []
        for conv in head.convs:
            weight, bias = conv.weight.tolist(), conv.bias.tolist()
            size = len(weight[0][0])
            for kernel, start in zip(weight, bias, strict=True):
                value = start
                for j in range(size):
                    place = t + j - size // 2
                    if 0 <= place < len(states):
                        value += sum(kernel[i][j] * states[place][i] for i in range(len(kernel)))
                row.append(max(value, 0.0) if head.activation == "relu" else value)
        rows.append(row)
    return rows


def mean(rows):
    return [sum(column) / len(rows) for column in zip(*rows, strict=True)]


def softplus(x):
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def terms(texts):
    """(E_negative, -E_positive) of [text][token] -> vector."""
    globals_ = [mean(tokens) for tokens in texts]
    positive, negative = [], []
    for i, tokens in enumerate(texts):
        for token in tokens:
            for j, vector in enumerate(globals_):
                score = sum(x * y for x, y in zip(token, vector, strict=True))
                if i == j:
                    positive.append(math.log(2) - softplus(-score))
                else:
                    negative.append(softplus(-score) + score - math.log(2))
    return sum(negative) / len(negative), -sum(positive) / len(positive)
