"""`stsbench distil-static`: each number of the table by a loop over tokens, model2vec's own, and three readers of it."""

import json
from unittest.mock import Mock

import numpy as np
import pytest
import torch
import transformers as hf
from clirun import cli, place  # noqa: F401
from safetensors.numpy import load_file
from sklearn.decomposition import PCA
from tiny_models import build, sentences

import stsbench
from stsbench import load_encoder
from stsbench.encoders.transformer.exported import Exported, read_exported, write_exported

model2vec = pytest.importorskip("model2vec", reason="model2vec is not installed: pip install 'stsbench[static]'")
TEXTS = [*sentences(6, seed=3), "cat " * 700 + "guitar"]  # the last is longer than model2vec's own limit


def table(folder):
    return load_file(folder / "model.safetensors")["embeddings"]


def tokens(folder):
    """The tokens of a folder in the order of their rows."""
    vocabulary = json.loads((folder / "tokenizer.json").read_text("utf-8"))["model"]["vocab"]
    return sorted(vocabulary, key=vocabulary.get)


def by_hand(source, pooler, kept, dimensions, sif):
    """Each token between the special ones through the model alone, without padding."""
    model, tokenizer = hf.AutoModel.from_pretrained(source).eval(), hf.AutoTokenizer.from_pretrained(source)
    first, last = tokenizer("", truncation=False, padding=False)["input_ids"]
    rows = []
    for token in kept:
        with torch.no_grad():
            made = model(input_ids=torch.tensor([[first, tokenizer.convert_tokens_to_ids(token), last]]))
        states = made.last_hidden_state[0]
        rows.append({"last": states[-1], "cls+dense": made.get("pooler_output", states)[0]}[pooler].numpy())
    vectors = PCA(dimensions, svd_solver="full").fit_transform(np.array(rows, np.float64))
    p = 1 / np.arange(2, len(kept) + 2)
    return vectors * (sif / (sif + p / p.sum()))[:, None] if sif else vectors


def same_but_for_signs(values, expected):
    """The eigenvectors of a covariance in float32 beside a singular value decomposition in float64."""
    signs = np.sign((values * expected).sum(0))
    np.testing.assert_allclose(values * signs, expected, atol=2e-4 * abs(expected).max())


@pytest.mark.parametrize(("family", "pooler", "sif"), [("bert", "cls+dense", 0), ("roberta", "last", 1e-2)])
def test_each_number_is_that_of_a_loop_over_tokens(tmp_path, family, pooler, sif):
    source = build(tmp_path / "model", family)
    encoder = stsbench.distil_static(source, tmp_path / "static", dimensions=5, pooler=pooler, sif=sif, remove="##[x-z]")
    kept = tokens(tmp_path / "static")
    special = {"[CLS]", "[SEP]", "[MASK]", "<s>", "</s>", "<mask>"}
    assert not special & set(kept) and "##w" in kept and "##x" not in kept and encoder.dimension == 5
    same_but_for_signs(table(tmp_path / "static"), by_hand(source, pooler, kept, 5, sif))


def test_the_table_is_model2vec_s_own_and_three_readers_give_the_same_vectors(tmp_path):
    distill = pytest.importorskip("model2vec.distill").distill
    source, folder = build(tmp_path / "model"), tmp_path / "static"
    encoder = stsbench.distil_static(source, folder, dimensions=8, pooler="mean")
    made = distill(str(source), pca_dims=8, quantize_to="float32", device="cpu")
    np.testing.assert_array_equal(table(folder), made.embedding)  # the same code on the same weights
    vectors = encoder.encode(TEXTS)
    np.testing.assert_allclose(made.encode(TEXTS, max_length=None), vectors, atol=1e-6)
    np.testing.assert_allclose(model2vec.StaticModel.from_pretrained(folder).encode(TEXTS), vectors, atol=1e-6)
    library = pytest.importorskip("sentence_transformers").SentenceTransformer
    np.testing.assert_allclose(library(str(folder), device="cpu").encode(TEXTS), vectors, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    assert abs(vectors[-1] - encoder.encode("cat " * 700)).max() > 1e-4  # its end is read


def test_words_or_the_commonest_of_texts_are_added_as_model2vec_adds_them(tmp_path, place):
    """Counted as tokenlearn's code counts: runs of letters, digits and marks, or of other signs, in lower case."""
    texts = ["Bread, bread and red wine!", "A WINE bar: no cafe\u0301...", "bread... and cafe\u0301"]
    (place / "texts.txt").write_text("\n".join(texts), "utf-8")
    words = ["bread", "and", "wine", "cafe\u0301", "..."]  # 3, then 2 each in the order in which they come
    source = build(tmp_path / "model")
    stsbench.distil_static(source, "static", dimensions=8, pooler="mean", vocabulary="texts.txt", words=5)
    (place / "words.txt").write_text("\n\n".join(words), "utf-8")  # or one a line
    stsbench.distil_static(source, "listed", dimensions=8, pooler="mean", vocabulary="words.txt")
    distill = pytest.importorskip("model2vec.distill").distill_from_model
    tokenizer = hf.AutoTokenizer.from_pretrained(source)
    tokenizer.backend_tokenizer.no_padding()  # tokenizer.json's would be read with each word
    made = distill(hf.AutoModel.from_pretrained(source), tokenizer, vocabulary=words, pca_dims=8, quantize_to="float32",
                   device="cpu")
    for name in ("static", "listed"):
        np.testing.assert_array_equal(table(place / name), made.embedding)
    assert model2vec.StaticModel.from_pretrained("static").tokens == made.tokens
    facts = json.loads((place / "static/config.json").read_text())["distilled"]
    assert facts["words"] == 5 and facts["vocabulary"].startswith("texts.txt@")


def test_the_folder_says_what_it_was_made_of_and_is_measured(tmp_path, cli, place):
    code, out, err = cli("distil-static", "--model", build(tmp_path / "model"), "--pooler", "cls", "--dimensions", 6,
                         "--output", "static")
    assert (code, out) == (0, "") and err.endswith("76 tokens of " + str(tmp_path / "model") + ", 6 numbers each\n")
    assert json.loads((place / "static/config.json").read_text())["distilled"] == {
        "model": "model", "fingerprint": load_encoder(str(tmp_path / "model"), pooler="cls").spec.fingerprint(),
        "pooler": "cls", "dimensions": 6, "sif": 1e-4, "remove": r"\[unused\d+\]", "vocabulary": None, "words": None,
        "model2vec": model2vec.__version__}
    assert "# A static copy of model" in (place / "static/README.md").read_text()
    assert not [path for path in place.rglob("static/*") if str(tmp_path).encode() in path.read_bytes()]
    run = stsbench.evaluate("static", sample=True, tasks="STS-B", resamples=0, output="run")
    assert run.records[0].encoder.spec["kind"] == "sentence-transformers" and np.isfinite(run.rows[0].value)


def test_what_the_weights_were_trained_on_goes_with_them(tmp_path):
    source, overlap = build(tmp_path / "model"), {"text": "notes.txt", "shared": {}, "none": ["mr"]}
    write_exported(source, Exported("mean", 8, "simcse", "a", trained_on=("sts12",), training_overlap=(overlap,)))
    encoder = stsbench.distil_static(source, tmp_path / "static", dimensions=6)
    assert encoder.traits.trained_on == ("sts12",) and encoder.traits.training_overlap == (overlap,)
    assert read_exported(tmp_path / "static") is None and encoder.spec.kind == "sentence-transformers"


def test_an_interrupted_distillation_leaves_nothing(tmp_path, monkeypatch):
    build(tmp_path / "model")
    monkeypatch.setattr("model2vec.distill.distill_from_model", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        stsbench.distil_static(tmp_path / "model", tmp_path / "static", dimensions=6, pooler="mean")
    assert {path.name for path in tmp_path.iterdir()} == {"model", "work"}
