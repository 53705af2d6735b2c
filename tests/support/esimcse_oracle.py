"""ESimCSE made small, and its training once more: texts one at a time by transformers, loops, lists."""

from __future__ import annotations

import copy

import numpy as np
import torch
from method_oracle import make
from tiny_models import sentences
from transformers import AutoModel

from stsbench.methods.esimcse.method import ESimCSE
from stsbench.training.api.batch import Shares
from stsbench.training.rows.batches import to_batch

TEXTS = sentences(60, longest=9, seed=5)


def esimcse(folder, *, dropout=0.0, pooler="cls", **options):
    return make(ESimCSE, folder, options, dropout=dropout, pooler=pooler)


def batch_for(method, rows, shares=None, seed=0):
    """Of all rows the share of one process, or all of them."""
    views = method.views(rows, np.random.default_rng(seed))
    shares = shares or Shares((len(views.tokens[0]),))
    return to_batch(views, shares, method.backbone.tokenizer.pad_token_id, torch.device("cpu")), views.tokens


class Naive:
    """What the released code does in one step after another, without its Trainer: loss, then theta_m, then the queue."""

    def __init__(self, folder, method, size, momentum):
        self.model = AutoModel.from_pretrained(folder, dtype=torch.float32).double().eval()
        self.slow = copy.deepcopy(self.model)
        self.weight, self.bias = (each.detach().clone().requires_grad_() for each in method.head.dense.parameters())
        self.size, self.momentum, self.queue = size, momentum, []

    def weights(self):
        """By the names that the method has for them."""
        weights = {f"backbone.model.{name}": weight for name, weight in self.model.named_parameters()
                   if "pooler" not in name}
        return {**weights, "head.dense.weight": self.weight, "head.dense.bias": self.bias}

    def vector(self, model, ids):
        hidden = model(input_ids=torch.tensor([[int(token) for token in ids]])).last_hidden_state[0, 0]
        return torch.tanh(self.weight @ hidden + self.bias)

    def loss(self, first, second, temperature):
        """A scalar with a graph; then theta_m and the queue as they are for the next step."""
        queries, keys = ([self.vector(self.model, ids) for ids in view] for view in (first, second))
        losses = []
        for i, query in enumerate(queries):
            scores = [query @ key / (query.norm() * key.norm()) / temperature for key in [*keys, *self.queue]]
            losses.append(torch.log(sum(torch.exp(score - scores[i]) for score in scores)))
        with torch.no_grad():
            fast = dict(self.model.named_parameters())
            for name, weight in self.slow.named_parameters():
                weight.copy_(weight * self.momentum + fast[name] * (1 - self.momentum))
            self.queue += [self.vector(self.slow, ids).clone() for ids in first]
        self.queue = self.queue[-self.size :]
        return sum(losses) / len(losses)
