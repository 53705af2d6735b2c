"""SG-OPT written out: every state by transformers, one text at a time; pooling, projection and losses in loops."""

from __future__ import annotations

import math

import numpy as np
import torch
from method_oracle import MemoryRows, _reference, make, tokens
from transformers import AutoModel

from stsbench.methods.sgopt.method import SGOPT
from stsbench.training.api.batch import Shares
from stsbench.training.rows.batches import to_batch

TEXTS = ["the man plays guitar in the park", "a dog", "the big cat sleeps on the red food .", "a woman eats", "blue"]
INNER = 12  # width of the projection


def sgopt(folder, dropout=0.0, moved=True, pooler="cls", **options):
    """In float64 and train mode. moved: the weights are no longer those at the start, so that nothing is 0 by chance."""
    method = make(SGOPT, folder, {"projection_width": INNER, **options}, pooler=pooler, dropout=dropout)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for weight in method.projector.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator, dtype=weight.dtype) * 0.3)
    method.start_stage("main")
    if moved:
        move(method)
    return method


def move(method):
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for weight in method.backbone.parameters():
            if weight.requires_grad:
                weight.add_(torch.randn(weight.shape, generator=generator, dtype=weight.dtype) * 0.02)


def batch_for(method, folder, shares=None, more_padding=0, texts=TEXTS):
    """(a batch, the layers drawn for its texts or None)."""
    views = method.views(MemoryRows(folder, {"sentence": texts}), np.random.default_rng(0))
    pad = method.backbone.tokenizer.pad_token_id
    batch = to_batch(views, shares or Shares((len(texts),)), pad, torch.device("cpu"))
    if more_padding:
        batch.ids = torch.nn.functional.pad(batch.ids, (0, more_padding), value=pad)
        batch.mask = torch.nn.functional.pad(batch.mask, (0, more_padding))
    drawn = views.by_row.get("layer")
    return batch, None if drawn is None else [int(layer) for layer in drawn[0]]


def layer_vectors(folder, pooling="mean", texts=TEXTS):
    """[text][layer] -> numbers, by the checkpoint's own weights; layer 0 is the embedding output."""
    model, by_text = _reference(AutoModel, folder), []
    for ids in tokens(folder, texts):
        with torch.no_grad():
            states = model(input_ids=torch.tensor([ids]), output_hidden_states=True).hidden_states
        by_text.append([[_pooled(column, pooling) for column in zip(*state[0].tolist(), strict=True)] for state in states])
    return by_text


def _pooled(numbers, pooling):
    return {"mean": sum(numbers) / len(numbers), "max": max(numbers), "sum": sum(numbers)}[pooling]


def sentence_vectors(method, folder, texts=TEXTS):
    """[text] -> numbers: the first token's, by the weights that are trained."""
    model = method.backbone.model
    mode = model.training
    model.eval()
    with torch.no_grad():
        by_text = [model(input_ids=torch.tensor([ids])).last_hidden_state[0, 0].tolist() for ids in tokens(folder, texts)]
    model.train(mode)
    return by_text


def projected(method, vector):
    for linear in (method.projector.inner, method.projector.outer):
        vector = [sum(w * x for w, x in zip(row, vector, strict=True)) + b
                  for row, b in zip(linear.weight.tolist(), linear.bias.tolist(), strict=True)]
        vector = [x * (1 + math.erf(x / math.sqrt(2))) / 2 for x in vector]
    return vector


def e(a, b, temperature):
    dot, norms = sum(x * y for x, y in zip(a, b, strict=True)), [math.sqrt(sum(x * x for x in v)) for v in (a, b)]
    return math.exp(dot / norms[0] / norms[1] / temperature)


def sg_opt(c, h, temperature):
    """c[i], h[i][k]."""
    losses = []
    for i, anchor in enumerate(c):
        for positive in h[i]:
            top = e(anchor, positive, temperature)
            rest = sum(e(anchor, each, temperature) for m in range(len(c)) if m != i for each in h[m])
            losses.append(-math.log(top / (top + rest)))
    return sum(losses) / len(losses)


def sg(c, h, temperature):
    """c[i], h[i]: NT-Xent of both as views."""
    views, losses = [*c, *h], []
    for i, anchor in enumerate(views):
        other = (i + len(c)) % len(views)
        top = e(anchor, views[other], temperature)
        losses.append(-math.log(top / sum(e(anchor, views[m], temperature) for m in range(len(views)) if m != i)))
    return sum(losses) / len(losses)


def opt(c, h, temperature, with_vectors, skip=False):
    """opt1 with the other sentences' c among the negatives; opt2 without, and with `skip` without the first other h."""
    losses = []
    for i, anchor in enumerate(c):
        others = [m for m in range(len(c)) if m != i]
        rest = [e(anchor, h[m], temperature) for m in (others[1:] if skip else others)]
        if with_vectors:
            rest += [e(anchor, c[m], temperature) for m in others]
        top = e(anchor, h[i], temperature)
        losses.append(-math.log(top / (top + sum(rest))))
    return sum(losses) / len(losses)


def distance(method, folder):
    """Number by number, of all weights."""
    start = dict(_reference(AutoModel, folder).named_parameters())
    trained = dict(method.backbone.model.named_parameters())
    return math.fsum((a - b) ** 2 for name, weight in trained.items()
                     for a, b in zip(weight.flatten().tolist(), start[name].flatten().tolist(), strict=True))
