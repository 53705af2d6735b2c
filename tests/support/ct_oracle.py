"""Contrastive Tension made small, and its losses once more: lists of floats, loops, math, texts encoded one at a time."""

from __future__ import annotations

import math

from method_oracle import make, states, tokens
from tiny_models import sentences

from stsbench.methods.ct.method import ContrastiveTension

TEXTS = sentences(40, longest=9, seed=3)


def ct(folder, *, dropout=0.0, pooler="mean", apart=True, **options):
    """The method in float64; apart: model1 a little away from where both start, so that a mix-up shows."""
    import torch

    method = make(ContrastiveTension, folder, options, dropout=dropout, pooler=pooler)
    if apart:
        generator = torch.Generator().manual_seed(5)
        with torch.no_grad():
            for weight in method.first.parameters():
                weight += 0.05 * torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
    return method


def means(model, folder, texts):
    """[text] -> the mean of the last states of one text read alone, as floats."""
    import torch

    rows = []
    for ids in tokens(folder, texts):
        with torch.no_grad():
            state = model(input_ids=torch.tensor([ids])).last_hidden_state[0].tolist()
        rows.append([sum(column) / len(state) for column in zip(*state, strict=True)])
    return rows


def plain_means(folder, texts):
    """The same of the untrained checkpoint, by transformers alone."""
    return [[sum(column) / len(state) for column in zip(*state.tolist(), strict=True)]
            for state in states(folder, tokens(folder, texts))]


def drawn(texts, negatives, k):
    """[(what model1 reads, what model2 reads, label)] of groups that follow one another."""
    texts, pairs = list(texts), []
    while texts:
        sentence = texts.pop(0)
        pairs.append((sentence, sentence, 1))
        if negatives == "fresh":
            for_one = [texts.pop(0) for _ in range(k)]
            for_two = [texts.pop(0) for _ in range(k)]
            pairs += [(a, b, 0) for a, b in zip(for_one, for_two, strict=True)]
        elif negatives == "consecutive":
            pairs += [(texts.pop(0), texts.pop(0), 0) for _ in range(k)]
        else:
            pairs += [(sentence, texts.pop(0), 0) for _ in range(k)]
    return pairs


def dot(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def pair_losses(first, second, labels):
    """-log of the probability of each label, by the logistic function of the dot product."""
    losses = []
    for a, b, label in zip(first, second, labels, strict=True):
        z = dot(a, b) * (1 if label else -1)
        losses.append(math.log1p(math.exp(-z)) if z > 0 else -z + math.log1p(math.exp(z)))
    return losses


def both_ways(first, second, scale, cosine):
    """sentence-transformers' loss over the batch: the mean of a cross-entropy of rows and one of columns."""
    def likeness(a, b):
        return scale * (dot(a, b) / (math.hypot(*a) * math.hypot(*b)) if cosine else dot(a, b))

    table = [[likeness(a, b) for b in second] for a in first]
    losses = []
    for square in (table, list(zip(*table, strict=True))):
        for i, row in enumerate(square):
            top = max(row)
            losses.append(math.log(sum(math.exp(each - top) for each in row)) + top - row[i])
    return sum(losses) / len(losses)
