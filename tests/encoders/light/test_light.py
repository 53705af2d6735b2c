"""words:FILE against a loop and sentence-transformers' own tokenizer, and against broken files. lexical:token-set and
lexical:tfidf against naive loops and a published formula. vectors:FILE.npz: looking up, and what damage does; its
refusals are rows of tests/refusals/encoders.yaml. python:module:callable and CallableEncoder: what may be returned, and
when vectors may be cached."""

import gzip
import itertools
import math
import re
import sys
import unicodedata
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.sparse import issparse, lil_matrix
from sentence_transformers.sentence_transformer.modules.tokenizer import WhitespaceTokenizer
from sentence_transformers.sentence_transformer.modules.tokenizer.word import ENGLISH_STOP_WORDS

from stsbench import load_encoder
from stsbench.encoders.light.callable import CallableEncoder
from stsbench.encoders.light.lexical import TfIdf, TokenSet
from stsbench.encoders.light.words import WordAverage, stop_words
from stsbench.encoders.post import source
from stsbench.errors import EncoderError

TABLE = {
    "cat": [1.0, 2.0, 3.0], "dog": [-1.0, 0.5, 0.0], "The": [0.25, 0.25, 0.25], "the": [9.0, 9.0, 9.0],
    "mat.": [4.0, 4.0, 4.0], "mat": [5.0, 6.0, 7.0], ".": [0.5, -0.5, 0.5], "café": [2.0, 2.0, -2.0],
}
TEXTS = ["the cat", "The Cat, mat.", 'Dog! dog "dog"', "", "unknown words", "café\u00a0mat", "the The", "mat. mat . ."]


def lines(table=TABLE):
    return "".join(f"{word} {' '.join(map(str, vector))}\n" for word, vector in table.items())


@pytest.fixture
def glove(tmp_path):
    path = tmp_path / "glove?.txt"  # a question mark in a file's name begins no options
    path.write_text(lines(), encoding="utf-8")
    return path


def naive_senteval(text):
    actual = [TABLE[w] for w in (text.split() or ["."]) if w in TABLE]
    return np.mean(actual, axis=0) if actual else np.zeros(3)


def test_senteval_variant_equals_the_loop(glove):
    encoder = load_encoder(f"words:{glove}")
    vectors = encoder.encode(TEXTS)
    assert vectors.dtype == np.float32 and encoder.spec.options["variant"] == "senteval"
    np.testing.assert_allclose(vectors, [naive_senteval(t) for t in TEXTS], atol=1e-6)
    assert not vectors[TEXTS.index("unknown words")].any()


def test_sentence_transformers_variant_reads_the_tokens_that_the_library_finds(glove):
    assert stop_words("sentence-transformers") == set(ENGLISH_STOP_WORDS)
    table = list(TABLE.values())
    specs = [load_encoder(f"words:{glove}").spec]
    for name in ("sentence-transformers", "sklearn", "none"):
        query = "variant=sentence-transformers" + (f"&stop_words={name}" if name != "sentence-transformers" else "")
        encoder = load_encoder(f"words:{glove}?{query}")
        assert encoder.spec.options["stop_words"] == name
        rows = map(WhitespaceTokenizer(list(TABLE), stop_words=stop_words(name)).tokenize, TEXTS)
        expected = [np.mean([table[i] for i in row], axis=0) if row else np.zeros(3) for row in rows]
        np.testing.assert_allclose(encoder.encode(TEXTS), expected, atol=1e-6)
        specs.append(encoder.spec)
    assert len({spec.fingerprint() for spec in specs}) == 4 and len({spec.weights for spec in specs}) == 1


def test_gzip_header_spaces_in_words_and_blank_end(tmp_path, glove):
    path = tmp_path / "glove.txt.gz"
    text = f"{len(TABLE) + 3} 3\n{lines()}. . . 1 1 1\ncat dog 2 2 2\nodd\u2028word 1 1 1 \r\n\n"
    path.write_bytes(gzip.compress(text.encode()))
    np.testing.assert_array_equal(WordAverage(path).encode(TEXTS), WordAverage(glove).encode(TEXTS))
    for header in ("", "8 3\n"):  # a byte order mark is no part of the first word
        (tmp_path / "marked.txt").write_text(header + lines(), encoding="utf-8-sig")
        np.testing.assert_array_equal(WordAverage(tmp_path / "marked.txt").encode(TEXTS), WordAverage(glove).encode(TEXTS))


def test_a_repeated_word_takes_its_last_vector(tmp_path):
    path = tmp_path / "g.txt"
    path.write_text("a 1 2\nb 3 4\na 5 6\n")
    encoder = WordAverage(path)
    assert encoder.encode(["a"]).tolist() == [[5.0, 6.0]]
    assert encoder.notes[-1] == f"warning: {path} lists 'a' more than once, with different numbers; the last ones count"
    path.write_text("a 5 6\nb 3 4\na 5 6\n")
    encoder = WordAverage(path)
    assert encoder.encode(["a"]).tolist() == [[5.0, 6.0]] and len(encoder.notes) == 1


def test_it_says_how_many_tokens_were_found(glove):
    encoder = WordAverage(glove)
    encoder.prepare(["the cat", "the Cat sleeps"])
    assert encoder.notes == (f"{glove}: 3 of 5 tokens of the texts have a vector",)
    encoder.encode(["cat the"])  # nothing to look up: nothing new to say
    assert len(encoder.notes) == 1
    encoder = WordAverage(glove, "sentence-transformers")
    encoder.prepare(["the cat", "The Cat sleeps"])  # "the" is a stop word
    assert encoder.notes == (f"{glove}: 3 of 4 tokens of the texts have a vector",)


def test_a_file_that_has_changed_is_refused(glove):
    encoder = WordAverage(glove)
    glove.write_text(lines({"cat": [0.0, 0.0, 1.0]}), encoding="utf-8")
    with pytest.raises(EncoderError):
        encoder.encode(["cat"])


CATS = ["A cat sat, a CAT!", "the cat's mat", "Crème brûlée", "", "a cat sat on the mat", "the the THE", "北京 is big"]


def naive_tokens(text):
    """BERT's BasicTokenizer for the characters these tests use, written out."""
    plain = "".join(c for c in unicodedata.normalize("NFD", text.lower()) if unicodedata.category(c) != "Mn")
    return re.findall(r"[一-鿿]|[a-z0-9]+|[^\w\s]", plain)


def naive_cosine(left, right):
    a, b = set(naive_tokens(left)), set(naive_tokens(right))
    return len(a & b) / math.sqrt(len(a) * len(b)) if a and b else 0.0


def test_token_set_cosine_equals_a_naive_loop():
    vectors = TokenSet().encode(CATS).toarray()
    assert vectors.dtype == np.float32 and set(np.unique(vectors)) == {0.0, 1.0}
    for i, left in enumerate(CATS):
        for j, right in enumerate(CATS):
            norm = np.linalg.norm(vectors[i]) * np.linalg.norm(vectors[j])
            cosine = vectors[i] @ vectors[j] / norm if norm else 0.0
            assert cosine == pytest.approx(naive_cosine(left, right), abs=1e-6), (left, right)


def test_token_set_columns_stay_put_and_texts_may_repeat_or_be_none():
    encoder = TokenSet()
    first, second = encoder.encode(["red apple"]), encoder.encode(["green apple", "red"])
    assert first.shape == (1, 2) and second.shape == (2, 3)
    first.resize(1, 3)
    assert (first @ second.T).toarray().tolist() == [[1.0, 1.0]]
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


VECTORS_TEXTS = ["a", "b b", "ü"]
VECTORS = np.arange(6, dtype=np.float64).reshape(3, 2)


def test_rows_come_back_in_the_order_asked_for(tmp_path):
    np.savez(tmp_path / "v.npz", texts=np.array(VECTORS_TEXTS), vectors=VECTORS)
    encoder = load_encoder(f"vectors:{tmp_path}/v.npz")
    got = encoder.encode(["ü", "a", "ü"])
    assert got.dtype == np.float32 and got.tolist() == [[4, 5], [0, 1], [4, 5]]
    assert encoder.encode([]).shape == (0, 2) and not encoder.cacheable and len(encoder.spec.weights) == 64
    np.savez(tmp_path / "same.npz", texts=np.array(["a", "a"]), vectors=np.ones((2, 2)))
    assert load_encoder(f"vectors:{tmp_path}/same.npz").encode(["a"]).tolist() == [[1, 1]]


def test_a_compressed_file_damaged_anywhere_is_one_line(tmp_path):
    path = tmp_path / "v.npz"
    np.savez_compressed(path, texts=np.array(VECTORS_TEXTS * 50), vectors=np.tile(VECTORS, (50, 1)))
    whole = path.read_bytes()
    for at, size in itertools.product(range(0, len(whole), 13), (1, 40)):
        path.write_bytes(whole[:at] + bytes(255 - byte for byte in whole[at : at + size]) + whole[at + size :])
        try:
            load_encoder(f"vectors:{path}")  # a byte of a time or of an attribute changes nothing
        except EncoderError as error:
            assert str(path) in str(error) and len(str(error).splitlines()) == 1


def test_a_file_that_unpacks_to_many_times_its_size_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr("stsbench.encoders.light.vectors._MOST_BYTES", 10**6)
    np.savez_compressed(tmp_path / "x.npz", texts=np.array(["a"]), vectors=np.zeros((1, 10**6)))
    with pytest.raises(EncoderError, match=r"x\.npz unpacks to 8\.0 MB, over 50 times its size"):
        load_encoder(f"vectors:{tmp_path}/x.npz")


def test_a_folder_is_not_read_without_an_extension_that_knows_its_format(tmp_path, monkeypatch):
    """With one: tests/extensions/stores."""
    monkeypatch.setattr(source, "names", lambda group: [])
    with pytest.raises(EncoderError, match="is a folder, and no installed extension reads vectors from folders"):
        load_encoder(f"vectors:{tmp_path}")
    assert source.vector_format(tmp_path) is None


MODULE = """
import numpy as np
def lengths(texts):
    assert type(texts) is list
    return [[len(t), 1] for t in texts]
class Model:
    def encode(self, texts): return np.ones((len(texts), 3))
    def __call__(self, texts): return self.encode(texts)
model = Model()
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """The working folder holds a module of the user's own, as it would on the command line."""
    (tmp_path / "my_encoder_x.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    yield tmp_path / "my_encoder_x.py"
    sys.modules.pop("my_encoder_x", None)


def test_a_module_in_the_working_folder(module):
    encoder = load_encoder("python:my_encoder_x:lengths")
    vectors = encoder.encode(["ab", "c", "ab"])
    assert vectors.dtype == np.float32 and vectors.tolist() == [[2, 1], [1, 1], [2, 1]]
    assert encoder.spec.name == "python:my_encoder_x:lengths" and not encoder.cacheable
    assert load_encoder("python:my_encoder_x:model").encode(["a"]).shape == (1, 3)
    assert load_encoder("python:my_encoder_x:model.encode").encode(["a"]).shape == (1, 3)
    del sys.modules["my_encoder_x"]
    module.write_text(MODULE.replace("len(t), 1", "len(t), 2"))  # as it computes, so it is known
    for cached in module.parent.rglob("*.pyc"):
        cached.unlink()
    other = load_encoder("python:my_encoder_x:lengths")
    assert other.encode(["a"]).tolist() == [[1, 2]] and other.spec.fingerprint() != encoder.spec.fingerprint()


def test_sparse_integer_and_torch_results():
    sparse = CallableEncoder(lambda texts: lil_matrix(np.eye(2))).encode(["a", "b"])
    assert issparse(sparse) and sparse.format == "csr" and sparse.dtype == np.float32
    assert CallableEncoder(lambda texts: np.eye(2, dtype=np.int8)).encode(["a", "b"]).dtype == np.float32
    torch = pytest.importorskip("torch")
    for tensor in (torch.ones(2, 3, requires_grad=True), torch.ones(2, 3).bfloat16(), torch.ones(2, 3).long()):
        vectors = CallableEncoder(lambda texts, tensor=tensor: tensor).encode(["a", "b"])
        assert isinstance(vectors, np.ndarray) and vectors.dtype == np.float32 and vectors.shape == (2, 3)


class _Loaded(list):
    """A model as sentence-transformers' are: what it was loaded from stands in its first module."""

    _modules = ()

    def encode(self, texts):
        return np.eye(len(texts))


def test_two_models_of_one_class_have_two_names_without_a_path_of_this_machine():
    first = [SimpleNamespace(auto_model=SimpleNamespace(config=SimpleNamespace(_name_or_path=path)))
             for path in ("org/one", "/home/me/models/two", "./three", "")]
    names = [CallableEncoder.wrap(_Loaded([module]))._name for module in first]
    assert [name.rpartition(":")[2] for name in names] == [
        "_Loaded.encode of org/one", "_Loaded.encode of two", "_Loaded.encode of three", "_Loaded.encode"]
    assert CallableEncoder(len)._name == "python:builtins:len"
