"""What all tests of training share: one thread, a tiny backbone, and a folder with a tiny model, a text and a cache."""

import pytest
from training_runs import one_thread, place
from transformers import AutoModel, AutoTokenizer

from stsbench.training.api import Backbone

__all__ = ["one_thread", "place"]


@pytest.fixture(scope="module")
def backbone(place):
    model, tokenizer = (kind.from_pretrained(place / "tiny") for kind in (AutoModel, AutoTokenizer))
    return Backbone(model, tokenizer, max_length=16)
