"""Who a model behind a server is: the same although its last digits vary, and another one where it is another one. Prompts
and further fields of a request, by the role of the texts."""

import itertools
import json

import numpy as np
import pytest
from embedding_server import hashed, loaded, quick, server, serving, status, when  # noqa: F401 - fixtures

import stsbench
from stsbench.encoders.cache import encode
from stsbench.encoders.cache.cache import EmbeddingCache
from stsbench.encoders.cache.encode import cache_key, encode_cached
from stsbench.encoders.probe import has_identity
from stsbench.encoders.prompt.task_prompts import served_card
from stsbench.errors import EncoderError
from stsbench.extensions.server import identity
from stsbench.extensions.server.identity import BESIDE, CEILING, FLOOR, TEXTS, TIMES, TOO_NOISY, difference, sketched

pytest.importorskip("openai")
pytestmark = pytest.mark.filterwarnings("ignore::stsbench.errors.StsbenchWarning")  # of a changed checkout

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
    (0.0, dict(relative=0.0, fixed=3e-4)), (5e-3, dict(relative=5e-3, fixed=5e-2)), (1e-6, dict(relative=1e-3, fixed=2e-3))])
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


# The cache


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


NIM = {"input_type": {"query": "query", "document": "passage", "text": "query"}, "truncate": "END"}
QUERIES, CORPUS = ["who sings", "what sinks"], ["the kettle sings", "the ship sinks", "a cat sleeps"]


def sent(server):
    """What was asked for, without the probe: text -> the fields that went with it."""
    return {text: {name: value for name, value in body.items() if name not in ("model", "input", "encoding_format")}
            for body in server.asked for text in body["input"] if text not in {*TEXTS, *BESIDE}}


def retrieved(server, name="hash", **options):
    data = {"queries": dict(zip("ab", QUERIES, strict=True)), "corpus": CORPUS, "relevant_docs": {"a": {"0"}, "b": {"1"}}}
    made = stsbench.evaluate(f"openai:{name}", retrieval=data, base_url=server.url, resamples=0, **options)
    assert not made.failures
    return made.records[0]


# The names of models


@pytest.mark.parametrize(("query", "names"), [
    ("search_query: ", """
    nomic-embed-text:latest nomic-embed-text:137m-v1.5-fp16 text-embedding-nomic-embed-text-v1.5@q8_0
    hf.co/nomic-ai/nomic-embed-text-v1.5-GGUF:Q4_K_M /models/nomic-embed-text-v1.5.f16.gguf nomic-embed-text-v2-moe
    """), ("task: search result | query: ", """
    embeddinggemma embeddinggemma:300m-qat-q8_0 text-embedding-embeddinggemma-300m-qat mlx-community/embeddinggemma-300m-bf16
    """), ("Instruct: ", """
    qwen3-embedding:8b-q4_K_M Qwen3-Embedding-8B-FP8 Qwen_Qwen3-Embedding-4B-GGUF /models/Qwen3-Embedding-0.6B/
    C:\\models\\Qwen3-Embedding-4B Qwen/Qwen3-Embedding-0.6B@main mlx-community/Qwen3-Embedding-0.6B-4bit-DWQ
    /cache/hub/models--Qwen--Qwen3-Embedding-0.6B/snapshots/0123abc accounts/fireworks/models/qwen3-embedding-8b
    @cf/qwen/qwen3-embedding-0.6b text-embedding-intfloat-multilingual-e5-large-instruct
    """), ("query: ", """
    intfloat/e5-small jeffh/intfloat-e5-base-v2:f32 multilingual-e5-large snowflake-arctic-embed2:568m
    Snowflake/snowflake-arctic-embed-l-v2.0 ai/snowflake-arctic-embed-l-v2-vllm
    """), ("Represent this sentence for searching relevant passages: ", """
    bge-large qllama/bge-large-en-v1.5 bge-large:335m-en-v1.5-fp16 mxbai-embed-large:335m
    snowflake-arctic-embed:137m-m-long-fp16
    """), (None, """
    bge-m3 all-minilm:22m text-embedding-3-small text-embedding-ada-002 text-embedding-v4 granite-embedding:30m
    bge-large-zh hash my-e5-base-v2-tuned e5-large-instruct nomic-embed-vision-v1.5 qwen3-reranker:0.6b qwen3:0.6b
    bge-reranker-v2-m3 mxbai-embed-2d
    """)])
def test_a_card_is_known_by_any_name_of_its_model(query, names):
    for name in names.split():
        card = served_card(name)
        assert (card is None) == (query is None) and (card is None or card.by_name["query"].startswith(query)), name


def test_prompts_of_a_card_that_are_left_out_are_said(server):
    def said(name, **options):
        return any("puts prompts before texts; none is put here" in note for note in loaded(server, name, **options).notes)

    assert said("embeddinggemma:300m") and not said("bge-m3") and not said("e5-small", prompt="none")
    assert not said("e5-small", prompt="query: ") and not said("e5-small", query_prompt="query: ")
    with pytest.raises(EncoderError, match="--prompt card: no prompts of a card are known for bge-m3: give --prompt TEXT"):
        loaded(server, "bge-m3", prompt="card")
    server.always = lambda handler, body: handler.give({**handler.right(body), "model": "intfloat/e5-small"})
    assert said("default")
    assert loaded(server, "default", prompt="card").prompts == {"query": "query: ", "document": "passage: "}


# Prompts


def behind(query, document):
    return {*(query + text for text in QUERIES), *(document + text for text in CORPUS)}


def test_the_cards_prompts_go_by_role_and_task(server):
    encoder = loaded(server, "nomic-embed-text:v1.5", prompt="card")
    assert encoder.prompts.items() >= {"document": "search_document: ", "query": "search_query: "}.items()
    encoder = loaded(server, "qwen3-embedding:0.6b", prompt="card")
    np.testing.assert_array_equal(encoder.encode_query(["a"]), hashed([encoder.prompts["query"] + "a"]))
    np.testing.assert_array_equal(encoder.encode_document(["a"]), hashed(["a"]))
    np.testing.assert_array_equal(encoder.encode(["a"]), hashed(["a"]))
    np.testing.assert_array_equal(loaded(server, "e5-small", prompt="card").encode(["a"]), hashed(["query: a"]))


def test_prompts_by_role(server):
    record = retrieved(server, prompt="all: ", query_prompt="q: ")
    assert {*sent(server)} == behind("q: ", "all: ")
    assert record.provenance["prompts"] == {"document": "all: ", "query": "q: "}
    encoder = loaded(server, document_prompt="d: ")
    assert encoder.prompts == {"query": "", "document": "d: "}
    np.testing.assert_array_equal(encoder.encode(["a"]), hashed(["a"]))
    np.testing.assert_array_equal(encoder.with_prompt("x ").for_role("document").encode(["a"]), hashed(["x a"]))


# Fields


def test_fields_go_by_role(server):
    """To a server that answers no request without one, from the probe on."""
    server.always = when(lambda body: body.get("input_type") not in ("query", "passage"),
                         status(400, "'input_type' parameter is required for asymmetric models"))
    with pytest.raises(EncoderError, match="is required for asymmetric models; --extra-body puts further fields"):
        loaded(server)
    server.asked.clear()
    record = retrieved(server, extra_body=NIM)
    assert sent(server) == {text: {"input_type": kind, "truncate": "END"}
                            for texts, kind in ((QUERIES, "query"), (CORPUS, "passage")) for text in texts}
    assert record.encoder.spec["options"]["extra_body"] == NIM
    encoder = loaded(server, extra_body=json.dumps(NIM))
    assert "document {\"input_type\": \"passage\", \"truncate\": \"END\"}" in " ".join(encoder.notes)
    for reader, kind in ((encoder.encode, "query"), (encoder.encode_query, "query"), (encoder.encode_document, "passage")):
        server.asked.clear()
        reader(["a"])
        assert server.asked[-1]["input_type"] == kind and server.asked[-1]["truncate"] == "END"


def test_a_model_that_reads_roles_otherwise_is_checked_in_each(server):
    """The text of the probe that goes with documents is compared with what it was as a document."""
    salts = {"query": "q", "passage": "p"}
    server.always = lambda handler, body: handler.give(
        handler.right(body, hashed(body["input"], salts.get(body.get("input_type"), ""))))
    encoder = loaded(server, extra_body={"input_type": {"query": "query", "document": "passage", "text": None}})
    np.testing.assert_array_equal(encoder.encode_document(CORPUS), hashed(CORPUS, "p"))
    np.testing.assert_array_equal(encoder.encode_query(CORPUS), hashed(CORPUS, "q"))
    np.testing.assert_array_equal(encoder.encode(CORPUS), hashed(CORPUS))
    assert "input_type" not in server.asked[-1]
    document = encoder.for_role("document")
    salts["passage"] = "other"
    with pytest.raises(EncoderError, match="another vector for a text of the probe"):
        document.encode(CORPUS)


FIELDS = [None, {"a": 1}, {"a": 2}, {"b": 1}, {"a": {"query": 1, "document": 2, "text": 1}},
          {"a": {"query": 2, "document": 2, "text": 1}}, {"a": {"query": 2, "document": 2, "text": None}}]


def test_no_two_bodies_or_prompts_share_a_fingerprint_or_vectors(server):
    asked = [*({"extra_body": fields} for fields in FIELDS), {"query_prompt": "q"}, {"document_prompt": "q"},
             {"prompt": "q"}, {"prompt": "q", "document_prompt": ""}, {"normalize": True}, {"truncate_dim": 8},
             {"truncate_dim": 9}]
    encoders = [loaded(server, **options) for options in asked]
    known = [encoder.identity.fingerprint() for encoder in encoders]
    assert len({*known}) == len(known)
    assert known[4] == loaded(server, **asked[4]).identity.fingerprint()
    keys = {cache_key(encoder.for_role(role)) for encoder in encoders[:7] for role in (None, "query", "document")}
    assert len(keys) == 4  # without a field, a of 1 and of 2, b of 1
    plain = loaded(server, extra_body={}, requests=1, price=2.0, prompt="none")
    assert loaded(server).spec.fingerprint() == plain.spec.fingerprint()


def test_fields_are_those_of_a_file_values_may_be_objects_and_a_key_is_refused(server, tmp_path, monkeypatch):
    fields = {"filter": {"language": "de"}, "list": [1], "none": None}
    (tmp_path / "fields.json").write_text(json.dumps(fields), "utf-8")
    loaded(server, extra_body=str(tmp_path / "fields.json"))
    assert all(body.items() >= fields.items() for body in server.asked)
    server.asked.clear()
    monkeypatch.setenv("OPENAI_API_KEY", "sk-0123456789")
    with pytest.raises(EncoderError, match="--extra-body holds the key of OPENAI_API_KEY") as caught:
        loaded(server, extra_body={"token": "sk-0123456789"})
    assert "0123" not in str(caught.value) and not server.asked
