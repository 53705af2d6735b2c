"""WhitenedCSE once more: texts one at a time by transformers, a flat list of rows, loops over parts and groups."""

from __future__ import annotations

import numpy as np
import scipy.linalg
import torch
from method_oracle import make
from tiny_models import sentences
from transformers import AutoModel

from stsbench.methods.whitenedcse.method import WhitenedCSE
from stsbench.training.api.batch import Shares
from stsbench.training.rows.batches import to_batch

TEXTS = sentences(60, longest=9, seed=7)


def whitenedcse(folder, *, dropout=0.0, pooler="cls", **options):
    return make(WhitenedCSE, folder, options, dropout=dropout, pooler=pooler)


def batch_for(method, rows, shares=None, seed=0):
    """Of all rows the share of one process, or all of them."""
    views = method.views(rows, np.random.default_rng(seed))
    shares = shares or Shares((len(views.tokens[0]),))
    return to_batch(views, shares, method.backbone.tokenizer.pad_token_id, torch.device("cpu"))


def whitened(rows, groups, order, eps, detach):
    """A list of (d,) vectors, whitened together. order: which old feature stands at each index."""
    width, result = len(rows[0]), [[None] * len(rows[0]) for _ in rows]
    size = width // groups
    for group in range(groups):
        features = [int(order[group * size + at]) for at in range(size)]
        table = torch.stack([torch.stack([row[feature] for feature in features]) for row in rows])
        mean = sum(table) / len(table)
        covariance = sum(torch.outer(row - mean, row - mean) for row in table) / len(table) + eps * torch.eye(size).double()
        if detach:
            root = torch.from_numpy(scipy.linalg.inv(scipy.linalg.sqrtm(covariance.detach().numpy())).real)
        else:
            values, vectors = torch.linalg.eigh(covariance)
            root = sum(torch.outer(vector, vector) / value.sqrt() for value, vector in zip(values, vectors.T, strict=True))
        for number, row in enumerate(table):
            for at, feature in enumerate(features):
                result[number][feature] = (row - mean) @ root[:, at]
    return [torch.stack(row) for row in result]


class Naive:
    """The released head sees the flat batch: all views of the first sentence, then all of the second, ..."""

    def __init__(self, folder, method):
        self.model = AutoModel.from_pretrained(folder, dtype=torch.float32).double().eval()
        self.weight, self.bias = (each.detach().clone().requires_grad_() for each in method.head.dense.parameters())
        self.options = method.options

    def weights(self):
        """By the names that the method has for them."""
        weights = {f"backbone.model.{name}": weight for name, weight in self.model.named_parameters()
                   if "pooler" not in name}
        return {**weights, "head.dense.weight": self.weight, "head.dense.bias": self.bias}

    def loss(self, views):
        """A scalar with a graph. views: the method's, token ids and seeds."""
        options, v, n = self.options, len(views.tokens), len(views.tokens[0])
        flat = [self.model(input_ids=torch.tensor([[int(token) for token in views.tokens[k][i]]])).last_hidden_state[0, 0]
                for i in range(n) for k in range(v)]
        if options.split == "per_third":
            parts = [range(part * n, part * n + n) for part in range(v)]
        else:
            parts = {"per_view": [range(k, n * v, v) for k in range(v)], "whole": [range(n * v)], "none": []}[options.split]
        for number, part in enumerate(parts):
            order = np.arange(len(flat[0]))
            if views.by_row:
                order = np.random.default_rng(views.by_row["permutation"][number][0]).permutation(len(order))
            rows = whitened([flat[row] for row in part], options.groups, order, options.eps, options.detach_matrix)
            for row, new in zip(part, rows, strict=True):
                flat[row] = new
        flat = [torch.tanh(self.weight @ row + self.bias) for row in flat]
        total = 0.0
        for k in range(1, v):
            for i in range(n):
                anchor = flat[i * v]
                keys = [flat[j * v + k] for j in range(n)]
                scores = [anchor @ key / (anchor.norm() * key.norm()) / options.temperature for key in keys]
                total = total + torch.log(sum(torch.exp(score - scores[i]) for score in scores)) / n
        return total / (v - 1) if options.reduce == "mean" else total
