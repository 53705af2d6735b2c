"""Tiny models of sentence-transformers, for the methods' losses in its trainer."""

from __future__ import annotations

import pytest
import tiny_models
from method_runs import cached_place
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling

from stsbench.encoders.transformer.text_cnn_module import TextCNNPooling
from stsbench.encoders.transformer.token_pooling_module import MeanCNNPooling, MeanPaddedPooling

TEXTS = tiny_models.sentences(8, longest=6, seed=2)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    yield from cached_place(tmp_path_factory.mktemp("loss"))


def sentence_transformer(place, pooler, head=None):
    rates = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
    model = SentenceTransformer(str(place / "model"), device="cpu", config_kwargs=rates)
    model.max_seq_length = 12
    if head is not None:
        model[1] = {"text_cnn": TextCNNPooling, "mean_cnn": MeanCNNPooling}[pooler](head)
    else:
        model[1] = MeanPaddedPooling(12, 32) if pooler == "mean_padded:12" else Pooling(32, pooler)
    return model


@pytest.fixture
def loaded(place):
    return lambda pooler="cls": sentence_transformer(place, pooler)


def features_of(model, *columns):
    return [model.preprocess(list(texts)) for texts in columns]
