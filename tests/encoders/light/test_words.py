"""words:FILE against a loop and sentence-transformers' own tokenizer, and against broken files."""

import gzip

import numpy as np
import pytest
from sentence_transformers.sentence_transformer.modules.tokenizer import WhitespaceTokenizer
from sentence_transformers.sentence_transformer.modules.tokenizer.word import ENGLISH_STOP_WORDS

from stsbench.encoders.light.words import WordAverage, stop_words
from stsbench.encoders.load import load_encoder
from stsbench.errors import EncoderError

TABLE = {
    "cat": [1.0, 2.0, 3.0],
    "dog": [-1.0, 0.5, 0.0],
    "The": [0.25, 0.25, 0.25],
    "the": [9.0, 9.0, 9.0],
    "mat.": [4.0, 4.0, 4.0],
    "mat": [5.0, 6.0, 7.0],
    ".": [0.5, -0.5, 0.5],
    "café": [2.0, 2.0, -2.0],
}
TEXTS = ["the cat", "The Cat, mat.", 'Dog! dog "dog"', "", "unknown words", "café\u00a0mat", "the The", "mat. mat . ."]


def lines(table=TABLE):
    return "".join(f"{word} {' '.join(map(str, vector))}\n" for word, vector in table.items())


@pytest.fixture
def glove(tmp_path):
    path = tmp_path / "glove.txt"
    path.write_text(lines(), encoding="utf-8")
    return path


def naive_senteval(text):
    found = [TABLE[w] for w in (text.split() or ["."]) if w in TABLE]
    return np.mean(found, axis=0) if found else np.zeros(3)


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


def test_a_compressed_file_that_is_cut_off_is_refused(tmp_path):
    (tmp_path / "cut.gz").write_bytes(gzip.compress(lines().encode())[:-9])
    with pytest.raises(EncoderError):
        WordAverage(tmp_path / "cut.gz").encode(["cat"])


def test_a_file_changed_under_the_encoder_is_noticed(glove):
    encoder = WordAverage(glove)
    glove.write_text(lines({"cat": [0.0, 0.0, 1.0]}), encoding="utf-8")
    with pytest.raises(EncoderError):
        encoder.encode(["cat"])


def test_a_question_mark_in_a_file_name_begins_no_options(tmp_path):
    (tmp_path / "what?.txt").write_text(lines(), encoding="utf-8")
    assert load_encoder(f"words:{tmp_path / 'what?.txt'}").encode(["cat"]).tolist() == [[1.0, 2.0, 3.0]]
