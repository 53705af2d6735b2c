"""lexical:token-set and lexical:tfidf against naive loops and a published formula."""

import math
import re
import unicodedata

import numpy as np
import pytest

from stsbench.encoders.light.lexical import TfIdf, TokenSet

TEXTS = ["A cat sat, a CAT!", "the cat's mat", "Crème brûlée", "", "a cat sat on the mat", "the the THE", "北京 is big"]


def naive_tokens(text):
    """BERT's BasicTokenizer for the characters these tests use, written out."""
    plain = "".join(c for c in unicodedata.normalize("NFD", text.lower()) if unicodedata.category(c) != "Mn")
    return re.findall(r"[一-鿿]|[a-z0-9]+|[^\w\s]", plain)


def naive_cosine(left, right):
    a, b = set(naive_tokens(left)), set(naive_tokens(right))
    return len(a & b) / math.sqrt(len(a) * len(b)) if a and b else 0.0


def test_token_set_cosine_equals_a_naive_loop():
    vectors = TokenSet().encode(TEXTS).toarray()
    assert vectors.dtype == np.float32 and set(np.unique(vectors)) == {0.0, 1.0}
    for i, left in enumerate(TEXTS):
        for j, right in enumerate(TEXTS):
            norm = np.linalg.norm(vectors[i]) * np.linalg.norm(vectors[j])
            cosine = vectors[i] @ vectors[j] / norm if norm else 0.0
            assert cosine == pytest.approx(naive_cosine(left, right), abs=1e-6), (left, right)


def test_token_set_columns_stay_put_between_calls():
    encoder = TokenSet()
    first, second = encoder.encode(["red apple"]), encoder.encode(["green apple", "red"])
    assert first.shape == (1, 2) and second.shape == (2, 3)
    first.resize(1, 3)
    assert (first @ second.T).toarray().tolist() == [[1.0, 1.0]]


def test_token_set_repeated_and_no_texts():
    encoder = TokenSet()
    assert encoder.encode([]).shape == (0, 1)
    assert encoder.encode([""]).shape == (1, 1)
    assert encoder.encode(["x y", "z", "x y"]).toarray().tolist() == [[1, 1, 0], [0, 0, 1], [1, 1, 0]]
    assert not encoder.cacheable


def naive_tfidf(fitted, text):
    """scikit-learn's documented formula: tf * (ln((1 + n) / (1 + df)) + 1), l2-normalised."""
    words = [re.findall(r"\b\w\w+\b", t.lower()) for t in fitted]
    vocabulary = sorted({w for row in words for w in row})
    own = re.findall(r"\b\w\w+\b", text.lower())
    idf = [math.log((1 + len(fitted)) / (1 + sum(w in row for row in words))) + 1 for w in vocabulary]
    row = np.array([own.count(w) * weight for w, weight in zip(vocabulary, idf, strict=True)])
    return row / (np.linalg.norm(row) or 1.0)


def test_tfidf_equals_the_formula_and_names_its_source():
    fitted = ["the red apple", "the green green apple", "a pear"]
    encoder = TfIdf()
    ready = encoder.fit(fitted, "fruit@123")
    assert ready.spec.fitted_on == "fruit@123" and encoder.spec.fitted_on is None
    assert ready.spec.fingerprint() != encoder.spec.fingerprint()
    texts = ["green APPLE, green!", "unseen words", "", "the pear"]
    vectors = ready.encode(texts)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors.toarray(), [naive_tfidf(fitted, t) for t in texts], atol=1e-6)
    assert ready.encode([]).shape == (0, 5)
