"""Small models as a method hands them over, and their vectors computed from the model itself."""

import numpy as np
import pytest
import torch
from tiny_models import build
from torch import nn

from stsbench.encoders.forward.checkpoint import load_model
from stsbench.encoders.prompt.tokenizer import load_tokenizer
from stsbench.training.api.method import Inference


def inference(folder, family="bert", pooler="cls"):
    """As a method gives it: every weight trainable, train mode, no pooler layer, a head where one is kept."""
    model, _ = load_model(build(folder, family), "tiny", "float32")
    if getattr(model, "pooler", None) is not None:
        model.pooler = None
    torch.manual_seed(3)
    dense = nn.Linear(32, 32) if pooler == "cls+dense" else None
    return Inference(model.requires_grad_(True).train(), load_tokenizer(folder, "tiny"), pooler, dense)


def by_hand(made, texts, limit=64):
    """Vectors from the model itself: one text at a time, so that nothing is padded."""
    modes = [(part, part.training) for part in made.model.modules()]
    made.model.eval()
    rows = []
    with torch.no_grad():
        for text in texts:
            ids = made.tokenizer(text, truncation=True, max_length=limit, return_tensors="pt")["input_ids"]
            states = made.model(input_ids=ids, output_hidden_states=True).hidden_states
            first = states[-1][0, 0]
            rows.append({
                "cls": lambda s=states: s[-1][0, 0],
                "cls+dense": lambda f=first: torch.tanh(f @ made.dense.weight.T + made.dense.bias),
                "mean": lambda s=states: s[-1][0].mean(0), "cls_avg": lambda s=states: (s[-1][0, 0] + s[-1][0].mean(0)) / 2,
                "max": lambda s=states: s[-1][0].max(0).values, "last": lambda s=states: s[-1][0, -1],
                "weighted_mean": lambda s=states: np.average(s[-1][0], axis=0, weights=range(1, len(s[-1][0]) + 1)),
                "first_last:embeddings": lambda s=states: ((s[0] + s[-1]) / 2)[0].mean(0),
                "first_last:layer1": lambda s=states: ((s[1] + s[-1]) / 2)[0].mean(0),
                "last2": lambda s=states: ((s[-2] + s[-1]) / 2)[0].mean(0),
            }[made.pooler]())
    for part, training in modes:
        part.training = training
    return np.stack(rows)


def close(vectors, want, bound=1e-6):
    """To 1e-6 of a vector's length, or of 1: an empty text, denoised, has the zero vector."""
    gap = np.linalg.norm(np.asarray(vectors) - want, axis=1) / np.linalg.norm(want, axis=1).clip(min=1)
    assert gap.max() < bound, gap.max()


def library(folder, **options):
    module = pytest.importorskip("sentence_transformers")
    return module.SentenceTransformer(str(folder), device="cpu", local_files_only=True, **options)
