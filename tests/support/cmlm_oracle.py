"""CMLM written out: every layer, projection and masked word in loops over tokens, one text at a time (soft_oracle)."""

from __future__ import annotations

import copy
import math
from functools import cache

import numpy as np
import pytest
import torch
from diffcse_oracle import masked_lm
from method_oracle import MemoryRows, make
from soft_oracle import HEADS, LAYERS, WIDTH, naive_states, own_positions
from transformers import AutoModelForMaskedLM

from stsbench.methods.cmlm.method import ConditionalMaskedLM
from stsbench.training.api.batch import IGNORED

TEXTS = [
    "the man plays guitar in the park", "a dog", "the big cat sleeps on the red food .", "a woman eats", "blue",
    "the dog runs with a cat", "red food", "a man sleeps in the big park .", "the woman plays", "a big blue dog eats food",
]
DOCUMENTS = [0, 0, 0, 0, 1, 1, 1, 2, 2, 2]
PAIRED = [0, 1, 2, 4, 5, 7, 8]  # rows that another one follows


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """family -> the folder of a tiny masked LM of soft_oracle's sizes."""
    place = tmp_path_factory.mktemp("cmlm")
    sizes = {"hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "intermediate_size": 20}
    return {family: masked_lm(place / family, family, **sizes) for family in ("bert", "roberta")}


def documents(folder, rows=PAIRED):
    return MemoryRows(folder, {"sentence": TEXTS}, rows, DOCUMENTS)


def cmlm(folder, pooler="mean", dropout=0.0, **options):
    """In float64 and train mode, its projections with biases and gains that a forgotten one would show by."""
    method = make(ConditionalMaskedLM, folder, options, pooler=pooler, dropout=dropout)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, weight in method.named_parameters():
            if name.startswith("projections"):
                weight.add_(0.3 * torch.randn(weight.shape, generator=generator, dtype=weight.dtype))
    return method


@cache
def _weights(folder):
    """The encoder's weights by their names in the encoder, and the head's as (dense, LayerNorm, bias of the words)."""
    state = AutoModelForMaskedLM.from_pretrained(folder, dtype=torch.float32).double().state_dict()
    arrays = {name: weight.numpy().copy() for name, weight in state.items()}
    bert = any(name.startswith("bert.") for name in arrays)
    encoder = {name.split(".", 1)[1]: weight for name, weight in arrays.items() if name.startswith(("bert.", "roberta."))}
    dense, norm = ("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm") if bert else (
        "lm_head.dense", "lm_head.layer_norm")
    bias = "cls.predictions.bias" if bert else "lm_head.bias"
    parts = [arrays[f"{name}.{kind}"] for name in (dense, norm) for kind in ("weight", "bias")]
    return encoder, parts, arrays[bias]


def _gelu(x):
    return np.array([value * 0.5 * (1 + math.erf(value / math.sqrt(2))) for value in x])


def _norm(x, gain, bias):
    centred = x - sum(x) / len(x)
    return centred / math.sqrt(sum(centred**2) / len(x) + 1e-12) * gain + bias


def naive_vector(folder, family, pooler, tokens):
    """(d,) of one text."""
    states = naive_states(_weights(folder)[0], tokens, own_positions(family, tokens))[-1]
    if pooler == "cls":
        return states[0]
    if pooler == "max":
        return np.array([max(state[feature] for state in states) for feature in range(WIDTH)])
    return sum(states) / len(states)


def naive_losses(folder, family, pooler, method, sources, masked, labels):
    """[-log p] of every masked word, text by text. sources: None, or the token ids of the sentences that give vectors."""
    encoder, (weight, bias, gain, shift), words_bias = _weights(folder)
    learned = [] if method.projections is None else [
        [part.detach().numpy() for part in (each[0].weight, each[0].bias, each[2].weight, each[2].bias)]
        for each in method.projections.learned
    ]
    losses = []
    for number, (tokens, wanted) in enumerate(zip(masked, labels, strict=True)):
        embedded = list(naive_states(encoder, tokens, own_positions(family, tokens))[0])
        before = []
        if sources is not None:
            vector = naive_vector(folder, family, pooler, sources[number])
            before = [vector, *(_norm(_gelu(a @ vector + b), g, s) for a, b, g, s in learned)]
        states = naive_states(encoder, None, None, embedded=[*before, *embedded])[-1][len(before) :]
        for state, label in zip(states, wanted, strict=True):
            if label == IGNORED:
                continue
            hidden = _norm(_gelu(weight @ state + bias), gain, shift)
            scores = [float(row @ hidden) + float(b) for row, b in zip(
                encoder["embeddings.word_embeddings.weight"], words_bias, strict=True)]
            top = max(scores)
            losses.append(math.log(sum(math.exp(score - top) for score in scores)) + top - scores[label])
    return losses


def plain_lists(ragged):
    return [[int(value) for value in row] for row in ragged]


def detached(method):
    """A copy whose sentence vectors carry no gradient."""
    other = copy.deepcopy(method)
    pooled = other.backbone.pooled
    other.backbone.pooled = lambda *arguments: pooled(*arguments).detach()
    return other
