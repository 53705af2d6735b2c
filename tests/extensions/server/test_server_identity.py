"""Who a model behind a server is: the same although its last digits vary, and another one where it is another one."""

import itertools

import numpy as np
import pytest
from embedding_server import hashed, loaded, quick, server, serving  # noqa: F401 - fixtures

from stsbench.encoders.cache import encode
from stsbench.encoders.cache.cache import EmbeddingCache
from stsbench.encoders.cache.encode import cache_key, encode_cached
from stsbench.encoders.probe import has_identity
from stsbench.errors import EncoderError
from stsbench.extensions.server import identity
from stsbench.extensions.server.identity import BESIDE, CEILING, FLOOR, TEXTS, TIMES, TOO_NOISY, difference, sketched

pytest.importorskip("openai")

WORDS = [f"number {i}" for i in range(150)]


def noisy(relative, salt="", fixed=0.0, seed=0):
    """A model whose vectors move by `relative` of their length at each request; fixed: by so much, always the same way."""
    draw, drawn = np.random.default_rng(seed), itertools.count(1)

    def model(texts):
        next(drawn)
        vectors = hashed(texts, salt)
        for size, moved in ((relative, draw.standard_normal(vectors.shape)), (fixed, hashed(texts, "fixed"))):
            vectors = vectors + size * moved / np.linalg.norm(moved, axis=1, keepdims=True)
        return vectors.astype(np.float32)

    return model


def fingerprint(server, **options):
    return loaded(server, **options).spec.fingerprint()


def test_difference_is_relative_to_the_length():
    reference = np.array([[3.0, 4.0], [0.0, 10.0]], np.float32)
    assert difference(reference, reference) == 0
    assert difference(np.array([[3.0, 4.5], [0.0, 10.5]], np.float32), reference) == pytest.approx(0.1)
    assert difference(reference[:, :1], reference) == difference(reference * np.float32("nan"), reference) == float("inf")


@pytest.mark.parametrize("relative", [1e-7, 5e-3])
def test_a_model_is_known_again_at_any_address(server, relative):
    server.model = noisy(relative)
    first = loaded(server)
    assert first.spec.options["identity"] == "server probe 1" and first.cacheable
    assert has_identity({"options": first.spec.options})
    with serving(model=noisy(relative, seed=1)) as other:
        assert {fingerprint(other) for _ in range(3)} == {first.spec.fingerprint()}
    probe = first.spent["probe"]
    assert probe["tolerance"] == min(max(FLOOR, TIMES * probe["noise"]), CEILING)
    assert relative / 2 <= probe["noise"] <= 2.5 * relative
    said = "warning: openai:hash: its vectors vary by "  # and what is so near counts as this one
    assert any(note.startswith(said) for note in first.notes) == (relative > FLOOR)


# the third: in float16 a model may move by as much as it differs from itself in float32
@pytest.mark.parametrize(("noise", "other"), [
    (0.0, dict(relative=0.0, fixed=3e-4)), (5e-3, dict(relative=5e-3, fixed=5e-2)), (1e-6, dict(relative=1e-3, fixed=2e-3)),
    (1e-6, dict(relative=1e-6, salt="other")),
])
def test_another_model_is_another_one(server, noise, other):
    server.model = noisy(noise)
    first = fingerprint(server)
    server.model = noisy(**other)
    second = fingerprint(server)
    assert second != first
    for model, known in ((noisy(noise, seed=5), first), (noisy(**other, seed=7), second)):
        server.model = model
        assert fingerprint(server) == known


def test_a_model_that_drifts_is_compared_with_the_first_of_its_probes(server):
    known = []
    for step in range(4):
        server.model = noisy(0.0, fixed=step * 0.4 * FLOOR)
        known.append(fingerprint(server))
    assert len({*known[:3]}) == 1 and known[3] != known[0]


def test_on_another_machine_the_digest_of_float32_is_nearly_always_the_same():
    draw, texts = np.random.default_rng(0), hashed(TEXTS, width=384)
    digests = [sketched((texts + 2e-8 * draw.standard_normal(texts.shape)).astype(np.float32)) for _ in range(200)]
    assert digests.count(sketched(texts)) >= 190
    assert len({sketched(texts), sketched(2 * texts), sketched(texts[:, ::-1]), sketched(texts[:, :-1])}) == 4


def test_a_damaged_probe_is_none(server, tmp_path, monkeypatch):
    first = fingerprint(server)
    [kept] = (tmp_path / "home" / "servers").rglob("*.npz")
    kept.write_bytes(kept.read_bytes()[:100])
    assert fingerprint(server) != "" and loaded(server).dimension == 24 and first
    kept.unlink()
    assert fingerprint(server) == first
    monkeypatch.setattr(identity, "sketched", lambda vectors: "0" * 64)  # two models of one digest are two
    server.model = noisy(0.0, salt="third")
    third = fingerprint(server)
    server.model = noisy(0.0, salt="other")
    assert third != fingerprint(server) == fingerprint(server)


def test_a_model_without_any_constancy_has_no_identity(server):
    server.model = noisy(3 * TOO_NOISY)
    one, two = loaded(server), loaded(server)
    assert one.spec.fingerprint() != two.spec.fingerprint() and not one.cacheable
    assert not has_identity({"options": one.spec.options}) and "has no identity" in one.notes[-1]
    assert one.encode(WORDS).shape == (150, 24)


def test_what_decides_a_vector_is_in_the_fingerprint_and_nothing_else(server):
    server.model = lambda texts: 3 * hashed(texts)
    plain = fingerprint(server)
    assert plain == fingerprint(server, requests=1, price=2.0, prompt="none")
    asked = [{"normalize": True}, {"truncate_dim": 8}, {"truncate_dim": 9}, {"prompt": "query: "}]
    assert len({plain, *(fingerprint(server, **options) for options in asked)}) == 5


def test_cut_and_length_are_made_here_and_dimensions_there(server):
    server.model = lambda texts: 3 * hashed(texts)
    cut = loaded(server, truncate_dim=8, normalize=True)
    expected = hashed(WORDS)[:, :8]
    np.testing.assert_allclose(cut.encode(WORDS), expected / np.linalg.norm(expected, axis=1, keepdims=True), atol=1e-6)
    assert cut.dimension == 8 and "dimensions" not in server.asked[0]
    with pytest.raises(EncoderError, match="dimensions 8: openai:hash gives vectors of 24 numbers; --truncate-dim cuts"):
        loaded(server, extra_body={"dimensions": 8})
    server.model = lambda texts: hashed(texts, width=8)
    wide = loaded(server, extra_body={"dimensions": 8})
    assert wide.spec.options["dimensions"] == 8 and server.asked[-1]["dimensions"] == 8
    with pytest.raises(EncoderError, match="--truncate-dim 8 cuts nothing"):
        loaded(server, truncate_dim=8)


def test_a_prompt_stands_before_each_text(server):
    encoder = loaded(server, prompt="query: ")
    np.testing.assert_array_equal(encoder.encode(WORDS), hashed([f"query: {word}" for word in WORDS]))
    np.testing.assert_array_equal(encoder.encode(WORDS, prompt="passage: "), hashed([f"passage: {word}" for word in WORDS]))
    np.testing.assert_array_equal(encoder.encode(WORDS, prompt=""), hashed(WORDS))
    assert encoder.for_role("query") is encoder and encoder.for_role(None, "").spec.prefix is None


# The cache


def test_what_is_cached_is_not_asked_for_again(server, tmp_path):
    cache = EmbeddingCache(tmp_path / "cache")
    first = encode_cached(loaded(server), WORDS, cache)
    before = len(server.asked)
    second = encode_cached(loaded(server), WORDS, cache)
    np.testing.assert_array_equal(first.vectors, second.vectors)
    assert len(server.asked) - before == 6 and {*server.texts[-47:]} == {*TEXTS, *BESIDE}


def test_another_model_half_way_is_an_error_and_not_cached(server, tmp_path, monkeypatch):
    monkeypatch.setattr(encode, "CHUNK", 50)
    cache, encoder = EmbeddingCache(tmp_path / "cache"), loaded(server, requests=2)
    turn = itertools.count()
    server.model = lambda texts: hashed(texts, "" if next(turn) < 3 else "other")  # within the second part of 50
    with pytest.raises(EncoderError, match=r"gives another vector for a text of the probe .*: it is not the model that it "):
        encode_cached(encoder, WORDS, cache)
    hits = cache.get(cache_key(encoder), WORDS)
    assert hits.mask.sum() == 50 and (hits.vectors[hits.mask] == hashed(WORDS)[hits.mask]).all()
    other = loaded(server)  # the model that answers now has a fingerprint, and a cache, of its own
    np.testing.assert_array_equal(encode_cached(other, WORDS, cache).vectors, hashed(WORDS, "other"))
    server.model = hashed
    before = len(server.texts)
    np.testing.assert_array_equal(encode_cached(loaded(server), WORDS, cache).vectors, hashed(WORDS))
    assert len({*server.texts[before:]} - {*TEXTS, *BESIDE}) == 100  # the run goes on from what was kept


def test_an_interrupted_run_goes_on(server, tmp_path, monkeypatch):
    monkeypatch.setattr(encode, "CHUNK", 50)
    cache, done = EmbeddingCache(tmp_path / "cache"), itertools.accumulate(itertools.repeat(1))

    def stop(count):
        if next(done) > 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        encode_cached(loaded(server, requests=1), WORDS, cache, stop)
    kept = int(cache.get(cache_key(loaded(server)), WORDS).mask.sum())
    before, encoder = len(server.asked), loaded(server, price=20.0)
    assert kept in (50, 100)
    np.testing.assert_array_equal(encode_cached(encoder, WORDS, cache).vectors, hashed(WORDS))
    asked = server.asked[before:]
    assert sum(len(body["input"]) - 1 for body in asked[6:]) == 150 - kept and len(asked) == encoder.spent["requests"]
    words = sum(len(text.split()) for body in asked for text in body["input"])
    assert encoder.spent["tokens"] == words and encoder.spent["cost"] == pytest.approx(words * 20 / 1e6)
