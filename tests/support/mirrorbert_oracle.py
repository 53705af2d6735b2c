"""Mirror-BERT written out: spans by loops over characters, the layers head by head, the mean position by position."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from info_nce_oracle import naive_nt_xent
from method_oracle import MemoryRows, _reference, make, tokens
from tiny_models import build
from torch.nn import functional
from transformers import AutoModel

from stsbench.methods.mirrorbert.method import MirrorBERT
from stsbench.training.api.batch import Shares
from stsbench.training.rows.batches import to_batch

TEXTS = ["the man plays guitar in the park", "a dog", "the big cat sleeps on the red food .", "a woman eats", "blue"]
OTHERS = ["a man in a park", "the small dog runs with the cat in the park", "big", "food", "red cat means : blue dog"]
PAD = {"bert": 0, "roberta": 1}
MASK = {"bert": "[MASK]", "roberta": "<mask>"}
SPAN = {"span_chars": 3, "min_chars": 6}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """family -> the folder of a tiny model."""
    place = tmp_path_factory.mktemp("mirrorbert")
    return {family: build(place / family, family) for family in ("bert", "roberta")}


def plain(folder):
    return MemoryRows(folder, {"sentence": TEXTS})


def pairs(folder):
    return MemoryRows(folder, {"anchor": TEXTS, "positive": OTHERS})


def mirrorbert(folder, pooler="mean_padded:12", dropout=0.0, **options):
    """In float64 and train mode."""
    return make(MirrorBERT, folder, {**SPAN, **options}, pooler=pooler, dropout=dropout)


def batch_for(method, rows, shares=None, seed=0, more_padding=0):
    """(a batch, the views it was made of)."""
    views = method.views(rows, np.random.default_rng(seed))
    pad = method.backbone.tokenizer.pad_token_id
    batch = to_batch(views, shares or Shares((len(rows.rows),)), pad, torch.device("cpu"))
    grow = functional.pad
    batch.ids, batch.mask = grow(batch.ids, (0, more_padding), value=pad), grow(batch.mask, (0, more_padding))
    return batch, views


def masked(texts, mask, seed=0, size=3, least=6, first=False):
    """The texts of the second view, character by character; the numbers are those that a generator of `seed` draws."""
    result = []
    for text, draw in zip(texts, np.random.default_rng(seed).random(len(texts)), strict=True):
        if len(text) < least or len(text) <= size:
            result.append(text)
            continue
        start = int(np.floor(draw * (len(text) - size)))
        if first:
            span = text[start : start + size]
            start = next(place for place in range(len(text)) if text[place : place + size] == span)
        before = "".join(char for place, char in enumerate(text) if place < start)
        after = "".join(char for place, char in enumerate(text) if place >= start + size)
        result.append(before + " " + mask + " " + after)
    return result


def states(folder, ids, real, kept=None):
    """float64 (L, d) last states of one text with padding: each head by itself, its keys the real tokens.

    ids: (L,) padding included; real: how many are real; kept: (layers, heads), whose heads count, or None for all.
    """
    model = _reference(AutoModel, folder)
    with torch.no_grad():
        hidden = model.embeddings(input_ids=torch.tensor([ids]))[0]
        for number, layer in enumerate(model.encoder.layer):
            inner, size = layer.attention.self, layer.attention.self.attention_head_size
            heads = []
            for head in range(inner.num_attention_heads):
                part = slice(head * size, (head + 1) * size)
                q, k, v = (
                    functional.linear(hidden, linear.weight[part], linear.bias[part])
                    for linear in (inner.query, inner.key, inner.value)
                )
                shares = torch.softmax(q @ k[:real].T / size**0.5, dim=1)
                factor = 1.0
                if kept is not None:
                    count = int(sum(kept[number]))
                    factor = len(kept[number]) / count if kept[number][head] else 0.0
                heads.append(factor * shares @ v[:real])
            output = layer.attention.output
            hidden = output.LayerNorm(output.dense(torch.cat(heads, dim=1)) + hidden)
            hidden = layer.output.LayerNorm(layer.output.dense(layer.intermediate(hidden)) + hidden)
    return hidden


def vectors(folder, family, texts, pooler="mean_padded:12", kept=None):
    """(n, d) of texts, by transformers' own truncation at the tests' length. kept: (n, layers, heads), or None."""
    pooled = []
    for row, ids in enumerate(tokens(folder, texts)):
        length = int(pooler.partition(":")[2]) if pooler.startswith("mean_padded") else len(ids)
        padded = list(ids) + [PAD[family]] * (length - len(ids))
        hidden = states(folder, padded, len(ids), None if kept is None else kept[row])
        if pooler == "cls":
            pooled.append(hidden[0])
        else:
            pooled.append(sum(hidden[place] for place in range(length)) / length)
    return torch.stack(pooled)


def loss(first, second, temperature=0.04):
    return naive_nt_xent(first, second, temperature).mean()
