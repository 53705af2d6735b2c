"""What the tests of training methods share: rows in memory, a tiny masked LM, and vectors computed one text at a time."""

import copy
import math
from dataclasses import replace
from functools import cache

import numpy as np
import torch
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer

from stsbench.training.api.batch import IGNORED, Shares
from stsbench.training.modules import packed_training
from stsbench.training.modules.backbone import load_backbone
from stsbench.training.modules.packed_training import packable
from stsbench.training.rows.batches import to_batch

LIMIT = 10  # tokens


class MemoryRows:
    """Rows as a method sees them, over lists in memory. documents: the document of each sentence; values: each row's class
    number or score."""

    def __init__(self, folder, texts, rows=None, documents=None, values=None):
        self.folder, self.all, self.documents, self.values = folder, texts, documents, values
        self.roles = tuple(texts)
        self.rows = list(range(len(texts[self.roles[0]]))) if rows is None else list(rows)

    def __len__(self):
        return len(self.rows)

    def texts(self, role):
        return [self.all[role][row] for row in self.rows]

    def ids(self, role):
        return [np.array(row, np.int32) for row in tokens(self.folder, self.texts(role))]

    def labels(self):
        return [self.values[row] for row in self.rows]

    scores = labels

    def following(self, k):
        last = len(self.documents) - 1
        same = [row + k <= last and self.documents[row + k] == self.documents[row] for row in self.rows]
        return np.array([row + k if is_same else -1 for row, is_same in zip(self.rows, same, strict=True)])

    def at(self, rows):
        return MemoryRows(self.folder, self.all, rows, self.documents, self.values)


def tokens(folder, texts, limit=LIMIT):
    return _tokenizer(folder)(list(texts), truncation=True, max_length=limit, padding=False)["input_ids"]


@cache
def _tokenizer(folder):
    return AutoTokenizer.from_pretrained(folder)


@cache
def _reference(kind, folder):
    return kind.from_pretrained(folder, dtype=torch.float32).double().eval()


@cache
def _backbone(folder, pooler, dropout):
    """Loaded once: a copy takes an eighth of the time. A learned pooler starts alike in every process."""
    torch.manual_seed(1)
    backbone = load_backbone(folder, folder.name, pooler, LIMIT, dropout)
    return backbone, packable(backbone.model)


def make(kind, folder, options=None, *, dropout=0.0, pooler="cls", seed=1):
    backbone, alone = copy.deepcopy(_backbone(folder, pooler, dropout))
    packed_training._alone[backbone.model] = alone  # which each copy would be tried for again
    backbone.folder, backbone.name = folder, folder.name
    torch.manual_seed(seed)
    return kind(backbone, kind.Options(**(options or {}))).double().train()


def batch_of(method, rows, seed=0, more_padding=0):
    """The whole batch for one process. more_padding: columns of padding that no row needs."""
    views = method.views(rows, np.random.default_rng(seed))
    batch = to_batch(views, Shares((len(views.tokens[0]),)), method.backbone.tokenizer.pad_token_id, torch.device("cpu"))
    return grown(method, batch, more_padding)


def grown(method, batch, columns=3):
    """The same rows with padding that none of them needs."""
    pad, grow = method.backbone.tokenizer.pad_token_id, torch.nn.functional.pad
    extra = {name: grow(values, (0, columns), value=IGNORED if name.endswith("labels") else pad)
             for name, values in batch.extra.items()}
    return replace(batch, ids=grow(batch.ids, (0, columns), value=pad), mask=grow(batch.mask, (0, columns)), extra=extra)


def states(folder, ids):
    """float64 (length, d) last hidden states of one text, by transformers alone."""
    model = _reference(AutoModel, folder)
    with torch.no_grad():
        return [model(input_ids=torch.tensor([list(map(int, row))])).last_hidden_state[0] for row in ids]


def logits(folder, ids):
    """float64 (length, V) masked-LM logits of each text, by transformers alone."""
    model = _reference(AutoModelForMaskedLM, folder)
    with torch.no_grad():
        return [model(input_ids=torch.tensor([list(map(int, row))])).logits[0] for row in ids]


def total(terms):
    """The loss of one process: its terms by their weights."""
    return sum(term.weight * term.value for term in terms.values())


def naive_mlm(folder, batch):
    """(mean of -log p, right guesses, count) over the labelled places, by AutoModelForMaskedLM, one text at a time."""
    lost, right = [], 0
    for row, wanted, real in zip(batch.extra.get("mlm_ids", batch.ids), batch.extra["mlm_labels"], batch.mask, strict=True):
        length = int(real.sum())
        (actual,) = logits(folder, [row[:length].tolist()])
        for position in np.flatnonzero(wanted[:length].numpy() != IGNORED):
            scores, label = actual[position].tolist(), int(wanted[position])
            top = max(scores)
            lost.append(math.log(sum(math.exp(score - top) for score in scores)) + top - scores[label])
            right += scores.index(top) == label
    return sum(lost) / len(lost), right, len(lost)
