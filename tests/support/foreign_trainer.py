"""Tiny models of sentence-transformers, for the methods' losses in its trainer."""

import pytest
import tiny_models
from method_runs import cached_place
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling

from stsbench import methods
from stsbench.encoders.forward.token_pooler import MeanCNN, TextCNN
from stsbench.encoders.transformer.text_cnn_module import TextCNNPooling
from stsbench.encoders.transformer.token_pooling_module import MeanCNNPooling, MeanPaddedPooling
from stsbench.training.api.options import Queue

# methods that can be a loss: name -> options, pooler, and of our loop the file and whether it holds labelled rows
LOSSES = {
    "simcse": (methods.SimCSE(), "cls"),
    "simcse-given": (methods.SimCSE(view="given", alpha=2.0), "cls", "triplets.csv"),
    "simcse-crop": (methods.SimCSE(view="crop", rate=0.3, head="none", augment_both=True), "mean"),
    "esimcse": (methods.ESimCSE(), "cls"),
    "infocse": (methods.InfoCSE(frozen_layers=1), "cls"),
    "whitenedcse": (methods.WhitenedCSE(groups=4, eps=0.1), "cls"),
    "pcl": (methods.PCL(), "cls"),
    "consert-sup": (methods.ConSERT(setting="joint", joint_views=("none", "adversarial"), joint_rates=(None, None)), "mean",
                    "pairs.tsv", "labelled"),
    "mirror-bert": (methods.MirrorBERT(drophead=0.2), "mean_padded:12"),
    "sbert": (methods.SBERT(), "mean", "pairs.tsv", "labelled"),
    "sbert-sts": (methods.SBERT(objective="sts"), "mean", "scores.tsv"),
    "cosent": (methods.CoSENT(), "cls", "scores.tsv"),
    "angle": (methods.AnglE(ibn_weight=0.0, cosine_weight=1.0), "cls", "scores.tsv"),
    "ct": (methods.ContrastiveTension(k=1, keep="model2"), "mean"),
    "sg-opt": (methods.SGOPT(projection_width=8), "cls"),
    "mlm": (methods.MaskedLM(), "cls"),
    "is-bert": (methods.ISBERT(), "mean_cnn"),
    "sarcse": (methods.SARCSE(self_adaptive=False), "text_cnn"),
    "diffcse": (methods.DiffCSE(), "cls"),
    "tsdae": (methods.TSDAE(), "cls"),
    "cmlm": (methods.ConditionalMaskedLM(sentence="same", vectors=3), "mean"),
    "simcse-queue": (methods.SimCSE(queue=Queue(size=9, momentum=0.9, start="random")), "cls"),
    "rankcse": (methods.RankCSE(teachers=[{"model": "lexical:token-set"}]), "cls"),
    "distil": (methods.Distil(teachers=[{"model": "lexical:token-set"}], objective="similarities", loss="kl"), "mean"),
}
NEVER = {"declutr", "diffaug", "promptbert", "sncse"}  # a template's mask, documents
HEADS = {"text_cnn": lambda: TextCNN(width=32, kernels=(2, 3), channels=6), "mean_cnn": lambda: MeanCNN(width=32)}
TEXTS = tiny_models.sentences(8, longest=6, seed=2)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    yield from cached_place(tmp_path_factory.mktemp("loss"))


def sentence_transformer(place, pooler):
    rates = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
    model = SentenceTransformer(str(place / "model"), device="cpu", config_kwargs=rates)
    model.max_seq_length = 12
    if pooler in HEADS:
        model[1] = {"text_cnn": TextCNNPooling, "mean_cnn": MeanCNNPooling}[pooler](HEADS[pooler]())
    else:
        model[1] = MeanPaddedPooling(12, 32) if pooler == "mean_padded:12" else Pooling(32, pooler)
    return model


@pytest.fixture
def loaded(place):
    return lambda pooler="cls": sentence_transformer(place, pooler)


def features_of(model, *columns):
    return [model.preprocess(list(texts)) for texts in columns]
