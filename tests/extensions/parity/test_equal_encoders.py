"""Two ways to compute one encoder are equal: no cause is named, whatever the batches, the passes and the library are."""

import numpy as np
import planted
import pytest
from model_folders import PROMPT, declare, normalize, pooling, transformer
from planted import Naive, bert
from sentence_transformers import SentenceTransformer
from tiny_decoders import decoder_folder
from transformers import AutoModel, AutoTokenizer

from stsbench.encoders.load import load_encoder
from stsbench.extensions.parity.parity import parity
from stsbench.extensions.parity.texts import TEXTS

PROBE = [text for kind, group in TEXTS.items() for text in group[:2]]


@pytest.fixture(scope="module")
def homes(tmp_path_factory):
    root = tmp_path_factory.mktemp("equal")
    return {
        "plain": bert(root / "plain"),
        "prompt": bert(root / "prompt", prompts={"query": PROMPT}, default_prompt_name="query"),
        "modernbert": declare(transformer(root / "modernbert", "modernbert"), pooling("mean"), normalize()),
        "llama": decoder_folder(root / "llama"),
    }


def encode(folder, **how):
    """A function of sentence-transformers' own."""
    model = SentenceTransformer(str(folder), device="cpu")
    return lambda texts: model.encode(texts, **how)


def shuffled(folder):
    """Encodes texts in another order, and puts them back."""
    encoder = load_encoder(folder)

    def run(texts):
        order = np.random.default_rng(0).permutation(len(texts))
        return encoder.run([texts[i] for i in order]).vectors[np.argsort(order)]

    return run


LLAMA = {"pooler": "last"}
PAIRS = {
    "itself": lambda home, tmp: (home["plain"], home["plain"], {}),
    "varlen": lambda home, tmp: (home["plain"], home["plain"], {"b_options": {"attention": "varlen"}}),
    "library": lambda home, tmp: (home["plain"], encode(home["plain"]), {}),
    "transformers alone": lambda home, tmp: (home["plain"], Naive(home["plain"]), {}),
    "another order": lambda home, tmp: (home["plain"], shuffled(home["plain"]), {}),
    "prompt": lambda home, tmp: (home["prompt"], encode(home["prompt"]), {}),
    "modernbert": lambda home, tmp: (home["modernbert"], encode(home["modernbert"]), {}),
    "llama, pair in memory": lambda home, tmp: (home["llama"], load_encoder(
        (AutoModel.from_pretrained(home["llama"]), AutoTokenizer.from_pretrained(home["llama"])), **LLAMA),
        {"a_options": LLAMA}),
}


@pytest.mark.parametrize("name", PAIRS)
def test_equal_pairs(name, homes, tmp_path):
    a, b, how = PAIRS[name](homes, tmp_path)
    texts = [text for text in PROBE if text.strip()] if "llama" in name else PROBE
    result = parity(a, b, texts=texts, **how)
    assert result.verdict == "equal" and result.equal and result.explanation is None and result.causes == ()
    assert result.largest < 1e-5 and "\nequal: on " in str(result)


def test_random_revisions_are_no_rounding(homes, tmp_path):
    """The thresholds of likeness: what moves at random is never called a rounding."""
    for seed, by in enumerate((1e-3, 3e-2)):
        other = planted.moved_weights(homes["plain"], tmp_path / str(seed), by)
        result = parity(homes["plain"], Naive(other), texts=PROBE[:30])
        assert result.verdict == "different" and result.causes == ()
