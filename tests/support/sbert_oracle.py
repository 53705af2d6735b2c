"""Sentence-BERT's objectives written out in loops, of vectors computed one text at a time; rows in memory."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import torch
from method_oracle import MemoryRows, make, states, tokens

from stsbench.methods.sbert.method import SBERT
from stsbench.training.api.batch import Shares
from stsbench.training.rows.batches import to_batch

LABELS = ("contradiction", "entailment", "neutral")
ROLES = {"nli": ("premise", "hypothesis"), "sts": ("sentence1", "sentence2"), "triplet": ("anchor", "positive", "negative")}
# block of features -> one number of it, of one of u and the same one of v
BLOCKS = {
    "u": lambda a, b: a, "v": lambda a, b: b, "difference": lambda a, b: a - b if a > b else b - a,
    "product": lambda a, b: a * b, "max_square": lambda a, b: max(a, b) ** 2,
}


class ValuedRows(MemoryRows):
    """Rows in memory with a class number or a score each."""

    def __init__(self, folder, texts, values, names=LABELS):
        super().__init__(folder, texts)
        self.values, self.store = values, SimpleNamespace(label_names=names)

    def labels(self):
        return [self.values[row] for row in self.rows]

    scores = labels


def rows_of(folder, stage, texts, values=None):
    """Rows of a stage: `texts` in turn for its roles."""
    roles = ROLES[stage]
    count = len(texts) // len(roles)
    parts = {role: texts[i * count : (i + 1) * count] for i, role in enumerate(roles)}
    return ValuedRows(folder, parts, values)


def sbert(folder, stage, pooler="mean", seed=1, classes=3, **options):
    """The method in float64, its classifier made where the stage has one."""
    method = make(SBERT, folder, {"objective": stage, **options}, pooler=pooler, seed=seed)
    if stage == "nli":
        rows = ValuedRows(folder, {"premise": ["cat"], "hypothesis": ["cat"]}, [0], LABELS[:classes])
        torch.manual_seed(seed)
        method.prepare_labelled(rows)
        method.double()
    return method


def batch_of(method, stage, rows, shares=None, more_padding=0):
    """A process's share of the batch of all rows."""
    rng = np.random.default_rng(0)
    views = method.labelled_views(rows, rng) if stage == "nli" else method.views(rows, rng)
    pad = method.backbone.tokenizer.pad_token_id
    batch = to_batch(views, shares or Shares((len(rows.rows),)), pad, torch.device("cpu"))
    batch.labelled_only = stage == "nli"
    if more_padding:
        grow = torch.nn.functional.pad
        batch.ids, batch.mask = grow(batch.ids, (0, more_padding), value=pad), grow(batch.mask, (0, more_padding))
    return batch


def vectors(folder, texts, pooler="mean"):
    """[text] -> list of numbers: the pooled last layer, each text alone and unpadded, special tokens included."""
    found = []
    for hidden in states(folder, tokens(folder, texts)):
        columns = hidden.T.tolist()
        pool = {"mean": lambda c: sum(c) / len(c), "max": max, "cls": lambda c: c[0]}[pooler]
        found.append([pool(column) for column in columns])
    return found


def nli(u, v, labels, weight, bias, features):
    """The mean over pairs of -log softmax(W f(u, v) + b)[label]."""
    losses = []
    for first, second, label in zip(u, v, labels, strict=True):
        seen = [BLOCKS[name](a, b) for name in features for a, b in zip(first, second, strict=True)]
        scores = [sum(w * x for w, x in zip(row, seen, strict=True)) + b for row, b in zip(weight, bias, strict=True)]
        losses.append(math.log(sum(math.exp(score) for score in scores)) - scores[label])
    return sum(losses) / len(losses)


def regression(u, v, scores, scale, rescaled):
    """The mean over pairs of (cos - score on the scale from 0 to 1)^2."""
    losses = []
    for first, second, score in zip(u, v, scores, strict=True):
        dot = sum(a * b for a, b in zip(first, second, strict=True))
        cos = dot / math.sqrt(sum(a * a for a in first)) / math.sqrt(sum(b * b for b in second))
        target = (score - scale[0]) / (scale[1] - scale[0])
        losses.append(((cos + 1) / 2 - target if rescaled else cos - target) ** 2)
    return sum(losses) / len(losses)


def triplet(anchors, positives, negatives, margin):
    """The mean over triplets of max(|a - p| - |a - n| + margin, 0)."""
    losses = [max(math.dist(a, p) - math.dist(a, n) + margin, 0.0)
              for a, p, n in zip(anchors, positives, negatives, strict=True)]
    return sum(losses) / len(losses)
