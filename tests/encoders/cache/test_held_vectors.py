"""Vectors that a run holds: in memory, or beyond a size on disk; the same numbers either way, never all at once."""

import tracemalloc

import numpy as np
import pytest
from scipy.sparse import csr_matrix, random_array, vstack

from stsbench.encoders.base import Encoded, Encoder, EncoderSpec
from stsbench.encoders.cache import embed as embed_module
from stsbench.encoders.cache.embed import Embed, HeldVectors
from stsbench.errors import EncoderError
from stsbench.metrics.similarity import SIMILARITIES, paired_similarity

WIDTH = 64


class Hashed(Encoder):
    """A random vector a text; notes how many it was asked for at a time."""

    spec = EncoderSpec(name="hashed", kind="callable", weights="0" * 64)

    def __init__(self):
        self.calls = []

    def run(self, texts, progress=None):
        self.calls.append(len(texts))
        vectors = [np.random.default_rng(list(text.encode())).standard_normal(WIDTH, dtype=np.float32) for text in texts]
        return Encoded(np.array(vectors), np.zeros(len(texts), dtype=bool))


class WithinTheCall(Hashed):
    """What mteb's compression does: each call's vectors by their own mean."""

    def of_call(self, vectors):
        return vectors - vectors.mean(axis=0)


@pytest.fixture
def on_disk(monkeypatch, tmp_path):
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(embed_module, "IN_MEMORY", 1000)
    monkeypatch.setattr(embed_module, "_BLOCK", 256)
    return tmp_path / "cache"


def held_of(blocks):
    vectors = HeldVectors()
    for block in blocks:
        vectors.append(block)
    return vectors


@pytest.mark.parametrize("limit", [1, 4 * 5 * 40, 1 << 28])  # from the first block, from a later one, never
def test_rows_are_the_same_in_memory_and_on_disk(monkeypatch, on_disk, limit):
    monkeypatch.setattr(embed_module, "IN_MEMORY", limit)
    rng = np.random.default_rng(0)
    blocks = [rng.standard_normal((rows, 5), dtype=np.float32) for rows in (30, 1, 70)]
    whole, vectors, asked = np.concatenate(blocks), HeldVectors(), rng.integers(0, 30, 200)
    for block in blocks:  # read between the blocks, too
        vectors.append(np.asfortranarray(block))  # written by rows all the same
        assert np.array_equal(vectors[asked], whole[asked])
    assert vectors.shape == (101, 5)
    assert np.array_equal(vectors[np.arange(101)[::-1]], whole[::-1])
    assert not on_disk.exists() or not list(on_disk.iterdir())  # a file without a name


def test_sparse_rows_grow_in_width():
    blocks = [csr_matrix(random_array((4, width), density=0.5, rng=width)) for width in (3, 5, 5)]
    wide = vstack([csr_matrix((b.data, b.indices, b.indptr), shape=(4, 5)) for b in blocks]).toarray()
    vectors = held_of(blocks)
    assert vectors.shape == (12, 5) and np.array_equal(vectors[np.array([11, 0])].toarray(), wide[[11, 0]])


def test_another_width_and_no_room_are_one_line(on_disk):
    vectors = held_of([np.zeros((2, 3), dtype=np.float32)])
    with pytest.raises(EncoderError, match="vectors of 4 numbers, and of 3 before"):
        vectors.append(np.zeros((2, 4), dtype=np.float32))
    on_disk.parent.mkdir(exist_ok=True)
    on_disk.write_text("a file where the folder should be")
    with pytest.raises(EncoderError) as error:
        vectors.append(np.zeros((500, 3), dtype=np.float32))
    assert "vectors of 502 texts" in str(error.value) and "STSBENCH_CACHE" in str(error.value)
    assert "\n" not in str(error.value)


def test_half_a_block_on_a_full_disk_moves_no_vector(on_disk, monkeypatch):
    """What was written of it would stand before the next block: no vector is given any more, nor is one taken."""
    class Full:
        def write(self, data):
            raise OSError(28, "No space left on device")

    vectors = held_of([np.ones((500, 3), dtype=np.float32)])
    with monkeypatch.context() as patch:
        patch.setattr(vectors, "_file", Full())
        with pytest.raises(EncoderError, match="1,000 texts on disk"):
            vectors.append(np.zeros((500, 3), dtype=np.float32))
    for again in (lambda: vectors.append(np.zeros((2, 3), dtype=np.float32)), lambda: vectors[np.array([0])]):
        with pytest.raises(EncoderError, match="1,000 texts on disk"):
            again()


def test_pairs_are_compared_as_if_all_vectors_were_there(on_disk):
    first, second = ([f"{side} {i % 700}" for i in range(900)] for side in "ab")
    reference, encoder = Hashed(), Hashed()
    vectors, embedder = [reference.run(texts).vectors for texts in (first, second)], Embed(encoder)
    for name in SIMILARITIES:
        assert np.array_equal(embedder.similarity(first, second, name), paired_similarity(*vectors, name)), name
    assert encoder.calls == [256] * 5 + [120]  # 1,400 distinct texts
    assert Embed(Hashed()).similarity([], []).shape == (0,)


def test_what_depends_on_the_texts_of_a_call_is_called_with_all_of_them(on_disk):
    first, second = ([f"{side} {i}" for i in range(600)] for side in "ab")
    whole = Embed(WithinTheCall())
    expected = paired_similarity(whole(first), whole(second))
    assert np.array_equal(Embed(WithinTheCall()).similarity(first, second), expected)


def test_memory_does_not_grow_with_the_vectors(on_disk):
    first, second = ([f"{side} {i}" for i in range(2000)] for side in "ab")
    vectors = 4 * WIDTH * 4000
    encoder = Hashed()
    tracemalloc.start()
    try:
        embed = Embed(encoder)
        embed.add([*first, *second])
        held_by_texts = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        embed.similarity(first, second)
        assert embed.unusable(first) is None and not embed.zero(first).any()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert held_by_texts < vectors  # texts' rows, no vectors
    assert peak - held_by_texts < vectors / 2
