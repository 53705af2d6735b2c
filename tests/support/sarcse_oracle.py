"""SARCSE made small, and its equations once more: numpy in float64, loops, texts encoded one at a time."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from method_oracle import LIMIT, states, tokens
from tiny_models import build, sentences

from stsbench.methods.sarcse.method import SARCSE
from stsbench.training.modules.backbone import load_backbone
from stsbench.training.recipes.sections import TextCNNSettings

SIZES = {"kernels": (3, 4, 5), "channels": 6}  # of most tests
ODD = {"kernels": (2, 1, 4, 6), "channels": 7, "fusion_channels": 2, "fusion_width": 3, "activation": "tanh"}
SINGLE = {"kernels": (3,), "channels": 5, "fusion_width": 1, "activation": "none"}
# no token, one, two, as many as fit, and more than fit
LONG = "the big cat plays a red guitar in the blue park with food ."
TEXTS = ["", "cat", "a dog", *sentences(16, longest=9, seed=5), LONG]
PLAIN = {"sentence": [TEXTS[i] for i in (3, 0, 4, 1, 19, 2)]}
TRIPLETS = {"anchor": PLAIN["sentence"], "positive": TEXTS[6:12], "negative": [TEXTS[1], TEXTS[0], *TEXTS[12:16]]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return build(tmp_path_factory.mktemp("sarcse") / "tiny-roberta", "roberta", pooler=False)


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return build(tmp_path_factory.mktemp("sarcse") / "tiny-bert", pooler=False)


def text_cnn_backbone(folder, sizes=SIZES, *, dropout=0.0, seed=1):
    """A backbone with the pooler text_cnn, as a run loads it."""
    torch.manual_seed(seed)
    settings = {"text_cnn": TextCNNSettings(**sizes).model_dump()}
    backbone = load_backbone(folder, folder.name, "text_cnn", LIMIT, dropout, settings)
    backbone.folder, backbone.name = folder, folder.name
    return backbone


def sarcse(folder, sizes=SIZES, *, dropout=0.0, weighted=True, **options):
    """The method in float64 and train mode. weighted: random weights of tokens, as if `prepare` had been called."""
    method = SARCSE(text_cnn_backbone(folder, sizes, dropout=dropout), SARCSE.Options(**options)).double().train()
    if weighted and method.decoder is not None and method.options.self_adaptive:
        with torch.no_grad():
            method.weights.copy_(torch.rand(len(method.weights), generator=torch.Generator().manual_seed(2)) * 0.9 + 0.1)
    return method


@dataclass
class Naive:
    """One text: its vector flattened, its tokens and what became of them."""

    vector: list[float]
    tokens: np.ndarray  # (N, d)
    rebuilt: np.ndarray | None  # (N, d)


def naive_text(method, X):
    """Eq. 1 to 7 for the (N, d) token vectors of one text."""
    head, decoder, unpool = method.backbone.head, method.decoder, method.options.unpool
    N, d = X.shape
    H, places = [], []
    for conv in head.convs:
        W, b, k = numpy(conv.weight), numpy(conv.bias), conv.kernel_size[0]
        padded = np.concatenate([X, np.zeros((max(k - N, 0), d))])
        row, where = [], []
        for c in range(head.channels):
            values = [b[c] + sum(float(W[c, :, j] @ padded[t + j]) for j in range(k)) for t in range(max(N - k, 0) + 1)]
            best = values.index(max(values))
            activated = {"relu": max(values[best], 0.0), "tanh": math.tanh(values[best]), "none": values[best]}
            row.append(activated[head.activation])
            where.append(best)
        H.append(row)
        places.append(where)
    W, b = numpy(head.fusion.weight), numpy(head.fusion.bias)
    rows, width, C = len(H), head.fusion_width, head.channels
    Z = [[b[o] + sum(W[o, 0, r, q] * H[r][j + q] for r in range(rows) for q in range(width)) for j in range(C - width + 1)]
         for o in range(head.fusion_channels)]
    vector = [value for line in Z for value in line]
    if decoder is None:
        return Naive(vector, X, None)
    rebuilt = np.zeros((N, d))
    for r, conv in enumerate(decoder.convs):
        fusion = decoder.fusions[r if len(decoder.fusions) > 1 else 0]
        W, back = numpy(fusion.weight), np.full(C, fusion.bias.item())
        for o, line in enumerate(Z):
            for j, value in enumerate(line):
                for q in range(width):
                    back[j + q] += W[o, 0, r, q] * value
        W, b, k = numpy(conv.weight), numpy(conv.bias), conv.kernel_size[0]
        part = np.tile(b, (max(N, k), 1))
        for c in range(C):
            for t in range(max(N - k, 0) + 1):
                value = back[c]
                if unpool == "max" and t != places[r][c]:
                    value = 0.0
                if unpool == "repeat+position":
                    value += decoder.positions[c, t].item()
                for j in range(k):
                    part[t + j] += value * W[c, :, j]
        rebuilt += part[:N] / len(decoder.convs)
    return Naive(vector, X, rebuilt)


def naive_view(method, folder, texts):
    """([text] -> Naive, the view's reconstruction loss) from states computed text by text in transformers."""
    ids = tokens(folder, texts)
    found = [naive_text(method, numpy(state)[1:-1]) for state in states(folder, ids)]
    if method.decoder is None:
        return found, None
    losses = []
    for row, text in zip(ids, found, strict=True):
        total = 0.0
        for token, x, y in zip(row[1:-1], text.tokens, text.rebuilt, strict=True):
            error = sum((a - b) ** 2 for a, b in zip(x.tolist(), y.tolist(), strict=True))
            weight = float(method.weights[token]) if method.options.self_adaptive else 1.0
            total += weight * (error / len(x) if method.options.mse_reduction == "mean" else error)
        losses.append(total / len(text.tokens) if len(text.tokens) else 0.0)
    return found, sum(losses) / len(losses)


def numpy(values):
    return values.detach().double().numpy()
