"""Tiny models that all methods' tests share, written once a session; tiny models compute on one thread."""

import pytest
import tiny_models
from training_runs import one_thread

__all__ = ["one_thread"]


@pytest.fixture(scope="session")
def masked_lms(tmp_path_factory):
    """family -> folder of a masked LM of two layers; RoBERTa's tokenizer knows the blank before a word."""
    place = tmp_path_factory.mktemp("masked-lms")
    return {"bert": tiny_models.masked_lm(place / "bert"),
            "roberta": tiny_models.masked_lm(place / "roberta", "roberta", spaced=True)}


@pytest.fixture(scope="session")
def encoders(tmp_path_factory):
    """family -> folder of an encoder of two layers that stores neither a pooler nor a masked-LM head."""
    place = tmp_path_factory.mktemp("encoders")
    return {family: tiny_models.build(place / family, family, pooler=False) for family in ("bert", "roberta")}


@pytest.fixture(scope="session")
def folder(masked_lms):
    """The folder of a masked BERT that clearly prefers some words."""
    return masked_lms["bert"]
