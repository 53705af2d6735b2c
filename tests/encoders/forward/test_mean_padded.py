"""The pooler mean_padded:N: transformers' own states of padded texts, the mean over all positions, in whoever reads it."""

import json

import numpy as np
import pytest
import tiny_models
import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoTokenizer

from stsbench.encoders.forward.pooling import check_pooler, padded_length
from stsbench.encoders.load import load_encoder
from stsbench.errors import EncoderError, StsbenchError
from stsbench.training.api.method import Inference
from stsbench.training.export.export import export_model
from stsbench.training.recipes.sections import BackboneSettings

TEXTS = [*tiny_models.sentences(12), "", "a cat", "the cat " * 25]


def expected(folder, length):
    """float64 (n, d), one text after another."""
    model, tokenizer, rows = AutoModel.from_pretrained(folder).double().eval(), AutoTokenizer.from_pretrained(folder), []
    for text in TEXTS:
        read = tokenizer(text, padding="max_length", max_length=length, truncation=True, return_tensors="pt")
        assert read["input_ids"].shape == (1, length)
        with torch.no_grad():
            states = model(input_ids=read["input_ids"], attention_mask=read["attention_mask"]).last_hidden_state[0]
        rows.append(sum(states[place] for place in range(length)) / length)
    return torch.stack(rows).numpy()


def test_the_mean_over_all_positions(tmp_path):
    folder, vectors = tiny_models.build(tmp_path, "roberta"), {}
    for length in (10, 16):
        encoder = load_encoder(str(folder), pooler=f"mean_padded:{length}", batch_tokens=70)
        assert (encoder.spec.pooler, encoder.spec.max_length) == (f"mean_padded:{length}", length)
        encoded = encoder.run(TEXTS)
        vectors[length] = encoded.vectors
        assert np.abs(encoded.vectors - expected(folder, length)).max() < 1e-5
        assert encoded.truncated[-1] and not encoded.truncated[-2]
        assert np.abs(encoder.encode(TEXTS[:1]) - encoded.vectors[:1]).max() < 5e-6  # float32, whatever stands beside it
    mean = load_encoder(str(folder), pooler="mean").encode(TEXTS)
    gaps = [np.abs(a - b).max() for a, b in ((vectors[10], vectors[16]), (vectors[16], mean))]
    assert min(gaps) > 1e-2


def test_the_shorter_limit_cuts(tmp_path):
    folder = tiny_models.build(tmp_path)
    encoder = load_encoder(str(folder), pooler="mean_padded:16", max_length=10)
    assert encoder.spec.max_length == 10
    cut = np.abs(encoder.encode(TEXTS) - load_encoder(str(folder), pooler="mean_padded:16").encode(TEXTS)).max(axis=1)
    assert cut[-1] > 1e-2 and cut[-2] < 1e-6


def test_exported_for_two_readers(tmp_path):
    folder = tiny_models.build(tmp_path / "model", "roberta")
    trained = Inference(AutoModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder), "mean_padded:16")
    export_model(trained, tmp_path / "out")
    vectors = expected(folder, 16)
    assert np.abs(load_encoder(str(tmp_path / "out")).encode(TEXTS) - vectors).max() < 1e-5
    library = SentenceTransformer(str(tmp_path / "out"), device="cpu", trust_remote_code=True)
    assert np.abs(library.encode(TEXTS) - vectors).max() < 1e-5
    library.save_pretrained(str(tmp_path / "again"))
    again = SentenceTransformer(str(tmp_path / "again"), device="cpu", trust_remote_code=True)
    assert np.abs(again.encode(TEXTS) - vectors).max() < 1e-5 and again.get_embedding_dimension() == 32
    library[0].processing_kwargs = {}
    with pytest.raises(EncoderError, match="has to pad texts to 16 tokens"):
        library.encode(["a cat"])  # in a batch whose longest text fills the positions nothing is amiss
    with pytest.raises(StsbenchError, match="take mean_padded:10"):
        export_model(trained, tmp_path / "other", max_length=10)
    assert json.loads((tmp_path / "out" / "stsbench.json").read_text())["format"] == 1


def test_the_name_holds_a_length_without_leading_zeros():
    assert [padded_length(name) for name in ("mean_padded:50", "mean_padded:050", "mean", None)] == [50, None, None, None]
    assert check_pooler("mean_padded:7", "x") == BackboneSettings(model="x", pooler="mean_padded:7").pooler
    with pytest.raises(ValueError, match="mean_padded:N"):
        BackboneSettings(model="x", pooler="mean_padded")
