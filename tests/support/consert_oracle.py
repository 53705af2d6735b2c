"""ConSERT written out: what was drawn is read text by text, numbers are set to 0 in a loop, the layers are transformers'."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from info_nce_oracle import naive_nt_xent
from method_oracle import MemoryRows, _reference, make
from tiny_models import build, sentences
from transformers import AutoModel

from stsbench.methods.consert.method import ConSERT
from stsbench.training.api.batch import Shares
from stsbench.training.rows.batches import to_batch

TEXTS = ["the man plays guitar in the park", "a dog", "the big cat sleeps on the red food .", "a woman eats", "blue"]
LABELS = [2, 0, 1, 1, 0]
START = {"bert": 0, "roberta": 2}  # the position id of a text's first token
PAD = {"bert": 0, "roberta": 1}


class Rows(MemoryRows):
    """With labels."""

    def labels(self):
        return [LABELS[row] for row in self.rows]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """family -> the folder of a tiny model."""
    place = tmp_path_factory.mktemp("consert")
    return {family: build(place / family, family) for family in ("bert", "roberta")}


def plain(folder):
    return Rows(folder, {"sentence": TEXTS})


def pairs(folder):
    rows = Rows(folder, {"premise": TEXTS, "hypothesis": sentences(len(TEXTS), longest=6, seed=3)})
    rows.roles = ("premise", "hypothesis")
    return rows


def consert(folder, pooler="mean", dropout=0.0, **options):
    """In float64 and train mode; with the classifier where there is one."""
    method = make(ConSERT, folder, options, pooler=pooler, dropout=dropout)
    if method.classifier is not None:
        torch.manual_seed(5)
        method.classifier.set_shape(method.backbone.width, 3)
        method.double()
    return method


def batch_for(method, rows, shares=None, labelled=False, seed=0, more_padding=0):
    """(a batch, the views it was made of)."""
    make_views = method.labelled_views if labelled else method.views
    views = make_views(rows, np.random.default_rng(seed))
    pad = method.backbone.tokenizer.pad_token_id
    shares = shares or Shares((len(rows.rows),))
    batch = to_batch(views, shares, pad, torch.device("cpu"))
    batch.labelled_only = labelled
    if more_padding:
        grow = torch.nn.functional.pad
        batch.ids, batch.mask = grow(batch.ids, (0, more_padding), value=pad), grow(batch.mask, (0, more_padding))
        batch.extra = {name: grow(values, (0, more_padding), value=pad) for name, values in batch.extra.items()}
        batch.by_row = {  # elements of padding: whatever they are, nothing reads them
            name: grow(values, (0, 0, 0, more_padding), value=True) if values.ndim == 3 else values
            for name, values in batch.by_row.items()
        }
    return batch, views


def embedded(folder, family, tokens, positions=None):
    """(1, n, d) the embedding output of one text. positions: ids, or None for the model's own."""
    positions = [START[family] + place for place in range(len(tokens))] if positions is None else positions
    return _reference(AutoModel, folder).embeddings(
        input_ids=torch.tensor([list(map(int, tokens))]), position_ids=torch.tensor([positions])
    )


def pooled(folder, states, pooler="mean"):
    """(d,) the vector of one text from its embeddings (1, n, d)."""
    hidden = _reference(AutoModel, folder).encoder(states).last_hidden_state[0]
    return {"mean": hidden.mean(0), "cls": hidden[0], "max": hidden.max(0).values}[pooler]


def vector(folder, family, views, slot, name, text, row, pooler="mean"):
    """(d,) of one view of one text, by what was drawn for it. text: 0, or 1 for hypotheses."""
    tokens = list(map(int, views.tokens[text][row]))
    with torch.no_grad():
        if name == "span":
            tokens = list(map(int, views.extra[f"{slot} ids"][text][row]))
        positions = None
        if name == "shuffle":
            positions = [START[family] + int(place) for place in views.extra[f"{slot} order"][text][row]]
        states = embedded(folder, family, tokens, positions).clone()
        for place in range(len(tokens)):
            for feature in range(states.shape[2]):
                if (
                    (name == "token_cutoff" and views.extra[f"{slot} cut"][text][row][place])
                    or (name == "feature_cutoff" and views.by_row[f"{slot} cut"][text][row][feature])
                    or (name == "dropout" and views.by_row[f"{slot} cut"][text][row][place][feature])
                ):
                    states[0, place, feature] = 0
        return pooled(folder, states, pooler)


def vectors(folder, family, views, slot, name, text=0, pooler="mean"):
    """(n, d) of all texts."""
    rows = range(len(views.tokens[text]))
    return torch.stack([vector(folder, family, views, slot, name, text, row, pooler) for row in rows])


def contrastive(first, second, temperature=0.1):
    return naive_nt_xent(first, second, temperature).mean()


def cross_entropy(u, v, weight, bias, labels, features):
    """The mean over pairs, number by number."""
    total = 0.0
    for one, two, label in zip(u.tolist(), v.tolist(), labels, strict=True):
        seen = []
        for name in features:
            for a, b in zip(one, two, strict=True):
                seen.append({"u": a, "v": b, "difference": abs(a - b), "max_square": max(a, b) ** 2}[name])
        logits = [sum(w * x for w, x in zip(line, seen, strict=True)) + b
                  for line, b in zip(weight.tolist(), bias.tolist(), strict=True)]
        total += math.log(sum(math.exp(logit - logits[label]) for logit in logits))
    return total / len(labels)
