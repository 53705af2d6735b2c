"""The embedding cache: right keys, several processes, damage, limits, a full disk. Encoding through it: what runs, in which
order, what is refused, what an interruption leaves. Vectors that a run holds: in memory, or beyond a size on disk; the same
numbers either way, never all at once."""

import dataclasses
import errno
import logging
import multiprocessing
import os
import tracemalloc
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from scipy.sparse import csr_matrix, random_array, vstack
from toy_encoder import SPEC, Toy, embed

from stsbench.encoders.base import EncoderSpec
from stsbench.encoders.cache import cache as cache_module
from stsbench.encoders.cache import embed as embed_module
from stsbench.encoders.cache import encode
from stsbench.encoders.cache.cache import CacheNote, EmbeddingCache, shard_bytes
from stsbench.encoders.cache.embed import Embed, HeldVectors
from stsbench.encoders.cache.encode import cache_key, encode_cached
from stsbench.encoders.light.lexical import TfIdf
from stsbench.errors import EncoderError
from stsbench.metrics.similarity import SIMILARITIES, paired_similarity

KEY = SPEC.fingerprint()


def shards(store):
    return sorted(store.folder.glob("*/*.shard"))


@pytest.fixture
def store(tmp_path):
    return EmbeddingCache(tmp_path / "cache")


def test_what_was_put_is_got(store):
    assert store.get(KEY, ["a"]).vectors is None and store.size() == 0 and store.clear() == 0
    with pytest.raises(ValueError, match="not the key of an encoder"):
        store.get("../elsewhere", ["a"])
    texts = ["a", "longer text", "ü", "\ud800 lone surrogate", ""]
    store.put(KEY, texts, embed(texts))
    hits = store.get(KEY, ["new", *reversed(texts)])
    assert hits.mask.tolist() == [False, True, True, True, True, True]
    np.testing.assert_array_equal(hits.vectors[1:], embed(texts).vectors[::-1])
    np.testing.assert_array_equal(hits.truncated[1:], embed(texts).truncated[::-1])
    assert hits.vectors.dtype == np.float32 and not store.warnings
    for start in range(0, 300, 7):
        store.put(KEY, many := [str(i) for i in range(start, start + 7)], embed(many))
    asked = [str(i) for i in range(300)][::-1]
    np.testing.assert_array_equal(store.get(KEY, asked).vectors, embed(asked).vectors)


def test_every_field_of_the_spec_is_part_of_the_key(store):
    store.put(KEY, ["a"], embed(["a"]))
    for field in {f.name for f in dataclasses.fields(EncoderSpec)} - {"name"}:
        changed = dataclasses.replace(SPEC, **{field: {"variant": "x"} if field == "options" else "other"})
        assert not store.get(changed.fingerprint(), ["a"]).mask.any(), field
    assert store.get(dataclasses.replace(SPEC, name="renamed").fingerprint(), ["a"]).mask.all()


@pytest.mark.parametrize("where", ["magic", "size", "index", "vectors", "cut", "longer", "empty"])
def test_damage_is_noticed_reported_and_survived(store, where, monkeypatch):
    good, bad = ["good"], ["bad", "worse"]
    store.put(KEY, good, embed(good))
    store.put(KEY, bad, embed(bad))
    path = shards(store)[-1]
    data = bytearray(path.read_bytes())
    offset = {"magic": 0, "size": 9, "index": 70, "vectors": len(data) - 2}.get(where)
    if offset is not None:
        data[offset] ^= 1
    elif where == "longer":
        data += b"\0"
    else:
        data = data[: 0 if where == "empty" else -5]
    path.write_bytes(data)
    logged = []
    monkeypatch.setattr(logging.Logger, "warning", lambda logger, line, *values: logged.append(line % values))
    assert store.get(KEY, good + bad).mask.tolist() == [True, False, False]
    assert len(store.warnings) == 1 and str(path) in store.warnings[0] and "damaged" in logged[0]
    assert not path.exists()
    store.put(KEY, bad, embed(bad))
    assert store.get(KEY, good + bad).mask.all() and len(store.warnings) == 1


def test_least_recently_used_goes_first(tmp_path):
    one = shard_bytes(1, 3)
    store = EmbeddingCache(tmp_path, max_bytes=3 * one)
    other = dataclasses.replace(SPEC, pooler="cls").fingerprint()
    for i, (key, text) in enumerate([(KEY, "a"), (other, "b"), (KEY, "c")]):
        store.put(key, [text], embed([text]))
        os.utime(max(shards(store), key=lambda p: p.name), (1000 + i, 1000 + i))
    assert store.get(KEY, ["a"]).mask.all()  # used: now "b" is the oldest
    store.put(KEY, ["d"], embed(["d"]))
    assert store.size() == 3 * one and not store.get(other, ["b"]).mask.any()
    assert store.get(KEY, ["a", "c", "d"]).mask.all() and not store.warnings
    store.put(KEY, many := [str(i) for i in range(20)], embed(many))  # more than the limit alone: evicts nothing
    assert store.get(KEY, ["a", "c", "d", "1"]).mask.tolist() == [True] * 3 + [False] and "limit" in store.warnings[0]


def test_leftovers_of_killed_processes_go(tmp_path):
    store = EmbeddingCache(tmp_path, max_bytes=10**6)
    store.put(KEY, ["a"], embed(["a"]))
    old, young = (tmp_path / KEY / f".{name}.shard.x.tmp" for name in ("old", "young"))
    for path in (old, young):
        path.write_bytes(b"x")
    os.utime(old, (0, 0))
    EmbeddingCache(tmp_path, max_bytes=10**6).put(KEY, ["b"], embed(["b"]))
    assert not old.exists() and young.exists()


def test_clear_leaves_other_files_alone(store):
    store.put(KEY, ["a"], embed(["a"]))
    store.note(KEY, CacheNote({"name": "it"}, {"torch": "1.0"}))
    assert store.encoders()[0].about.spec["name"] == "it" and store.about(KEY).libraries == {"torch": "1.0"}
    mine = [store.folder / "notes.txt", store.folder / "sub" / "x.shard", store.folder / KEY / "mine.txt"]
    for path in mine:
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
    assert store.clear() > shard_bytes(1, 3) and store.size() == 0
    assert all(path.exists() for path in mine) and not store.get(KEY, ["a"]).mask.any()


@pytest.mark.parametrize("call", ["os.fsync", "tempfile.mkstemp", "pathlib.Path.replace"])
def test_a_full_disk_costs_a_warning_and_no_result(store, monkeypatch, call):
    monkeypatch.setattr(call, Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
    monkeypatch.setattr(encode, "CHUNK", 2)
    encoded = encode_cached(Toy(), ["a", "bb", "ccc", "dddd"], store)
    np.testing.assert_array_equal(encoded.vectors, embed(["a", "bb", "ccc", "dddd"]).vectors)
    assert len(store.warnings) == 1 and "No space left" in store.warnings[0]
    monkeypatch.undo()
    assert store.size() == 0 and not list(store.folder.glob("**/*.tmp"))


def test_the_limit_holds_beside_other_processes_but_for_what_they_have_just_written(tmp_path):
    limit = 60 * shard_bytes(1, 3)
    stores = [EmbeddingCache(tmp_path, limit) for _ in range(3)]  # three processes have three of these
    for i in range(90):
        stores[i % 3].put(KEY, [str(i)], embed([str(i)]))
        assert stores[0].size() <= limit * (1 + 2 * 0.05)
    assert stores[0].size() >= 0.9 * limit


def test_without_file_descriptors_the_cache_warns_and_the_run_goes_on(store):
    resource = pytest.importorskip("resource")
    store.max_bytes = 10**6
    texts = ["a", "bb", "ccc"]
    encode_cached(Toy(), texts, store)
    fewer, (soft, hard) = EmbeddingCache(store.folder, 10**6), resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        encoded = encode_cached(Toy(), texts, fewer)
        store._unscanned = 10**6  # the next one scans
        store._keep_within(10**6, 1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    np.testing.assert_array_equal(encoded.vectors, embed(texts).vectors)
    assert len(fewer.warnings) == 2 and all("Too many open files" in line for line in fewer.warnings)
    assert store.warnings == [f"cannot look through the cache {store.folder}: Too many open files; nothing is evicted"]
    assert EmbeddingCache(store.folder).get(cache_key(Toy()), texts).mask.all()


def test_many_files_that_cannot_be_read_are_one_warning(store, monkeypatch):
    for text in "abc":
        store.put(KEY, [text], embed([text]))
    monkeypatch.setattr(cache_module, "read_rows", Mock(side_effect=PermissionError(errno.EACCES, "Permission denied")))
    assert not store.get(KEY, list("abc")).mask.any()
    [line] = store.warnings
    assert line.startswith("cannot read 3 cache files, the first ") and "Permission denied" in line


def written_and_read(folder, own, limit):
    """What each of two processes does: puts its own texts and shared ones, and reads those of both."""
    store = EmbeddingCache(folder, limit)
    for i in range(12):
        texts = [f"{own}{i}-{k}" for k in range(20)] + [f"shared{i}"]
        store.put(KEY, texts, embed(texts))
        asked = [f"{name}{j}-{k}" for name in "ab" for j in range(i + 1) for k in (0, 19)] + [f"shared{i}"]
        actual = store.get(KEY, asked)
        if actual.mask.any() or not limit:  # with a limit the other one may have put more than it allows in between
            assert np.array_equal(actual.vectors[actual.mask], embed(asked).vectors[actual.mask])
    assert not store.warnings, store.warnings


def test_two_processes_share_a_folder(tmp_path):
    for limit in (None, 8 * shard_bytes(21, 3)):
        folder = tmp_path / str(limit)
        both = [multiprocessing.get_context("fork").Process(target=written_and_read, args=(folder, own, limit))
                for own in "ab"]
        for process in both:
            process.start()
        for process in both:
            process.join(60)
            assert process.exitcode == 0
        store = EmbeddingCache(folder)
        assert not list(folder.glob("**/*.tmp"))
        if limit:
            assert store.size() <= limit + shard_bytes(21, 3)
        else:
            assert store.get(KEY, [f"{own}{i}-{k}" for own in "ab" for i in range(12) for k in range(20)]).mask.all()


def test_vectors_of_another_way_to_encode_are_not_read(tmp_path, monkeypatch):
    store = EmbeddingCache(tmp_path)
    encode_cached(Toy(), ["a", "b"], store)
    monkeypatch.setattr("stsbench.encoders.cache.encode.ENCODING", "6")
    encoder = Toy()
    monkeypatch.setattr(encoder, "run", lambda texts, *rest: embed(["c"] * len(texts)))
    assert (encode_cached(encoder, ["a", "b"], store).vectors == embed(["c", "c"]).vectors).all()
    assert [encode.changed(one.about.libraries) for one in store.encoders()].count(["stsbench's encoding 5 -> 6"]) == 1


class WithinTheCall(Toy):
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


def test_half_a_block_on_a_full_disk_moves_no_vector(on_disk, monkeypatch):
    """What was written of it would stand before the next block: no vector is given any more, nor is one taken."""
    full = Mock(write=Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
    vectors = held_of([np.ones((500, 3), dtype=np.float32)])
    with pytest.raises(EncoderError, match="vectors of 4 numbers, and of 3 before"):
        vectors.append(np.zeros((2, 4), dtype=np.float32))
    with monkeypatch.context() as patch:
        patch.setattr(vectors, "_file", full)
        with pytest.raises(EncoderError, match="1,000 texts on disk"):
            vectors.append(np.zeros((500, 3), dtype=np.float32))
    for again in (lambda: vectors.append(np.zeros((2, 3), dtype=np.float32)), lambda: vectors[np.array([0])]):
        with pytest.raises(EncoderError, match="1,000 texts on disk"):
            again()


@pytest.mark.parametrize("kind", [Toy, WithinTheCall])
def test_pairs_are_compared_as_if_all_vectors_were_there(on_disk, kind):
    first, second = ([f"{side} {i * step % 700}" for i in range(900)] for side, step in (("a", 1), ("b", 3)))
    embedder, whole = Embed(kind()), Embed(kind())
    for name in SIMILARITIES:
        expected = paired_similarity(whole(first), whole(second), name)
        assert np.array_equal(embedder.similarity(first, second, name), expected), name
    assert [*map(len, embedder.encoder.calls)] == [256] * 5 + [120]  # 1,400 distinct texts
    assert Embed(kind()).similarity([], []).shape == (0,)


def test_memory_does_not_grow_with_the_vectors(on_disk):
    first, second = ([f"{side} {i}" for i in range(2000)] for side in "ab")
    vectors, wide = 4 * 66 * 4000, Toy(change=lambda vectors: np.tile(vectors, 22))
    tracemalloc.start()
    try:
        embedder = Embed(wide)
        embedder.add([*first, *second])
        held_by_texts = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        embedder.similarity(first, second)
        assert embedder.unusable(first) is None and not embedder.zero(first).any()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert held_by_texts < vectors  # texts' rows, no vectors
    assert peak - held_by_texts < vectors / 2


def test_encoding_runs_only_what_is_missing_longest_first(store, monkeypatch):
    monkeypatch.setattr(encode, "CHUNK", 2)
    encoder = Toy()
    encode_cached(encoder, ["bb", "a"], store)
    encoder.calls.clear()
    texts = ["a", "dddd", "bb", "ccc", "a", "eeeeeeee"]
    counts = []
    encoded = encode_cached(encoder, texts, store, counts.append)
    assert encoder.calls == [["eeeeeeee", "dddd"], ["ccc"]] and sum(counts) == len(texts)
    np.testing.assert_array_equal(encoded.vectors, embed(texts).vectors)
    np.testing.assert_array_equal(encoded.truncated, embed(texts).truncated)
    encoder.calls.clear()
    again = encode_cached(encoder, texts, store)
    assert not encoder.calls
    np.testing.assert_array_equal(again.vectors, encoded.vectors)
    np.testing.assert_array_equal(again.truncated, encoded.truncated)


def test_an_interrupted_run_goes_on_from_the_finished_chunks(store, monkeypatch):
    monkeypatch.setattr(encode, "CHUNK", 2)
    texts, interrupted, encoder = ["a", "bb", "ccc", "dddd"], Toy(), Toy()
    monkeypatch.setattr(interrupted, "run", Mock(side_effect=[embed(["dddd", "ccc"]), KeyboardInterrupt]))
    with pytest.raises(KeyboardInterrupt):
        encode_cached(interrupted, texts, store)
    encode_cached(encoder, texts, store)
    assert encoder.calls == [["bb", "a"]]


def poisoned(vectors):
    vectors = vectors.copy()
    vectors[vectors[:, 0] == 3] = np.nan
    return vectors


def test_vectors_of_another_width_are_refused(store):
    encode_cached(Toy(), ["a"], store)
    with pytest.raises(EncoderError, match="vectors of 2 numbers, and of 3 before"):
        encode_cached(Toy(change=lambda v: v[:, :2]), ["a", "b"], store)


def test_without_a_cache_and_for_sparse_vectors():
    encoder = Toy(change=csr_matrix)
    encoder.cacheable = False
    texts = ["a", "bb", "a"]
    for store in (None, EmbeddingCache(Path("/nonexistent"))):
        np.testing.assert_array_equal(encode_cached(encoder, texts, store).vectors.toarray(), embed(texts).vectors)
    assert encoder.calls == [["a", "bb"]] * 2
    assert encode_cached(Toy(change=lambda v: np.zeros((0, 3), np.float32)), [], None).vectors.shape == (0, 3)


# ---- Embed: every text is encoded once, whoever asks for it, and keeps its vector


def test_each_text_once():
    encoder = Toy()
    embedder, asked = Embed(encoder), ["three", "one", "eleven letters", "three"]
    embedder.add(["one", "three", "one"])
    assert np.array_equal(embedder(asked), embed(asked).vectors)
    assert encoder.calls == [["one", "three"], ["eleven letters"]] and embedder.text_count == embedder.dimension == 3
    assert embedder.truncated(["one", "eleven letters"]).tolist() == [False, True]
    assert embedder([]).shape == (0, 3) and Embed(encoder)([]).shape == (0, 0)


def test_a_vector_that_is_none_spoils_only_its_own_text(store):
    embedder, again = (Embed(Toy(change=poisoned), store) for _ in range(2))
    assert embedder.unusable(["fine", "also fine"]) is None
    assert "NaN or infinity for 1 of 2 texts, the first: 'bad'" in embedder.unusable(["fine", "bad"])
    assert np.isnan(embedder(["bad"])).all() and np.array_equal(embedder(["fine"]), embed(["fine"]).vectors)
    again.add(["fine", "also fine", "bad"])
    assert again.encoder.calls == [["bad"]]  # never stored


def test_an_encoder_that_was_fitted_before_stays_as_it_is():
    """Fitted again on each set, it would be another encoder than the one that was handed over."""
    embed = Embed(TfIdf().fit(["red apples", "green pears"], "fruit@1"))
    assert embed.for_set(["blue skies"], "weather@2") is embed and embed(["blue skies", "apples"]).nnz == 1
    fresh = Embed(TfIdf()).for_set(["blue skies"], "weather@2")
    assert fresh.spec.fitted_on == "weather@2" and fresh(["blue skies", "apples"]).nnz == 2
