"""Reading a store: vectors:DIR, neighbours and fitting give what the same vectors in memory give."""

import numpy as np
import pytest
from toy_encoder import SPEC, Toy, vector_of

from stsbench.data.own.texts import Texts
from stsbench.encoders.base import Encoder, EncoderSpec
from stsbench.encoders.cache.embed import Embed
from stsbench.encoders.load import load_encoder
from stsbench.encoders.post.chain import Chain
from stsbench.encoders.post.encoder import PostProcessed, fitted_on_data
from stsbench.errors import EncoderError
from stsbench.extensions.stores.build import build_store
from stsbench.extensions.stores.search import check_same_encoder, neighbours_in
from stsbench.extensions.stores.shard import is_store
from stsbench.extensions.stores.vectors import VectorStore

RNG = np.random.default_rng(3)
LINES = [" ".join(RNG.choice(["cat", "dog", "sun", "moon", "tree"], n)) for n in RNG.integers(1, 6, 60)]
LINES[7] = ""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("read")
    (folder / "in.txt").write_text("".join(f"{line}\n" for line in LINES))
    build_store(Toy(), Texts(str(folder / "in.txt")), folder / "store", shard_rows=16, log=lambda line: None)
    return folder


@pytest.fixture
def store(place):
    return VectorStore(place / "store")


def test_rows_are_looked_up_by_text(store):
    distinct = list(dict.fromkeys(LINES))
    wanted = [*distinct, "not there"]
    assert store.find(wanted).tolist() == [LINES.index(text) for text in distinct] + [-1]
    first, copies = store.copies(wanted)
    assert first.tolist() == store.find(wanted).tolist() and copies.tolist() == [LINES.count(text) for text in wanted]
    assert store.find([]).tolist() == []


def test_vectors_of_a_folder(place, store):
    encoder = load_encoder(f"vectors:{place / 'store'}")
    asked = [LINES[40], f" {LINES[3]} ", "", LINES[40]]
    assert encoder.encode(asked).tolist() == [vector_of(text.strip()) for text in asked]
    assert encoder.dimension == 3 and not encoder.cacheable and encoder.spec.weights == store.digest
    assert Embed(encoder).truncated([LINES[0]]).tolist() == [len(LINES[0]) > 5] and "toy" in encoder.notes[0]
    with pytest.raises(EncoderError, match="no vector for 2 of 3 texts, the first: 'nowhere'"):
        encoder.encode(["nowhere", LINES[0], "neither"])
    assert is_store(place / "store") and not is_store(place) and not is_store(place / "in.txt")
    with pytest.raises(EncoderError, match="--pooler does not apply"):
        load_encoder(f"vectors:{place / 'store'}", pooler="cls")


@pytest.mark.parametrize("top", [4, 1000])
def test_neighbours_are_those_of_all_pairs(store, top):
    queries = np.array([vector_of("cat tree"), vector_of("sun")], np.float32)
    lists = neighbours_in(store, queries, top)
    distinct = [text for text in dict.fromkeys(LINES) if text]
    vectors = np.array([vector_of(text) for text in distinct])
    cosines = queries @ vectors.T / np.linalg.norm(queries, axis=1)[:, None] / np.linalg.norm(vectors, axis=1)
    for mine, expected in zip(lists, cosines, strict=True):
        assert len(mine) == min(top, len(distinct))
        assert [each.cosine for each in mine] == pytest.approx(sorted(expected, reverse=True)[:top], abs=1e-6)
        for each in mine:
            assert each.cosine == pytest.approx(expected[distinct.index(each.text)], abs=1e-6)
            assert each.row == LINES.index(each.text) and each.copies == LINES.count(each.text)


def test_queries_come_from_the_encoder_of_the_store(store):
    check_same_encoder(store, Toy(EncoderSpec(**{**vars(SPEC), "name": "another name", "prefix": "query: "})))
    with pytest.raises(EncoderError, match=r"made by another encoder \(toy; other weights\) than toy"):
        check_same_encoder(store, Toy(EncoderSpec(**{**vars(SPEC), "weights": "1" * 64})))


class Counting(Toy):
    def run(self, texts, progress=None):
        raise AssertionError("the vectors are in the store")


@pytest.mark.parametrize("post", ["whitening:dimensions=2", "all-but-the-top:components=1"])
def test_a_map_fitted_on_a_store_is_the_one_fitted_on_its_texts(place, post):
    for name in ("file.txt", "full.txt"):
        (place / name).write_text("".join(f"{line}\n" for line in LINES if line))
    build_store(Toy(), Texts(str(place / "full.txt")), place / "full", shard_rows=16, log=lambda line: None)
    lines = []
    stored, count = fitted_on_data(PostProcessed(Counting(), Chain.parse(post)), place / "full", lines.append)
    fitted, _ = fitted_on_data(PostProcessed(Toy(), Chain.parse(post)), place / "file.txt", lines.append)
    probe = np.array([vector_of(text) for text in LINES[:9]], np.float32)
    assert stored.chain.transform(probe) == pytest.approx(fitted.chain.transform(probe), abs=1e-9)
    assert stored.spec.fitted_on == f"full@{VectorStore(place / 'full').digest}" and count == 59
    assert "59 texts, whose vectors are read" in lines[0]


def test_shuffled_vectors_are_each_row_once(place):
    from stsbench.extensions.stores.vectors import StoredVectorSource

    source = StoredVectorSource(VectorStore(place / "store"), Toy())
    batches = list(source.shuffled(16, np.random.default_rng(0)))
    assert [batch.shape for batch in batches] == [(16, 1, 3)] * 3 + [(12, 1, 3)] and len(source) == 60
    rows = np.concatenate(batches)[:, 0]
    assert sorted(rows.tolist()) == sorted(vector_of(text) for text in LINES) and rows[0].tolist() != vector_of(LINES[0])
    with pytest.raises(EncoderError, match="no dropout"):
        source.with_dropout(0)


def test_what_cannot_be_fitted_on(place):
    wrapped = PostProcessed(Toy(), Chain.parse("standardise"))
    build_store(Toy(), Texts(str(place / "in.txt")), place / "bits", dtype="binary", log=lambda line: None)
    with pytest.raises(EncoderError, match="holds signs alone"):
        fitted_on_data(wrapped, place / "bits", lambda line: None)
    other: Encoder = Toy(EncoderSpec(**{**vars(SPEC), "pooler": "cls"}))
    with pytest.raises(EncoderError, match=r"made by another encoder \(toy\) than toy"):
        fitted_on_data(PostProcessed(other, Chain.parse("standardise")), place / "store", lambda line: None)
