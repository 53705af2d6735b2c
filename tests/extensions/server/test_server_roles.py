"""Prompts and further fields of a request, by the role of the texts."""

import json

import numpy as np
import pytest
from embedding_server import hashed, loaded, quick, server, status, when  # noqa: F401 - fixtures

import stsbench
from stsbench.encoders.cache.cache import EmbeddingCache
from stsbench.encoders.cache.encode import cache_key, encode_cached
from stsbench.encoders.prompt.task_prompts import served_card
from stsbench.errors import EncoderError
from stsbench.extensions.server.identity import BESIDE, TEXTS

pytest.importorskip("openai")
pytestmark = pytest.mark.filterwarnings("ignore::stsbench.errors.StsbenchWarning")  # of a changed checkout

NIM = {"input_type": {"query": "query", "document": "passage", "text": "query"}, "truncate": "END"}
QUERIES, CORPUS = ["who sings", "what sinks"], ["the kettle sings", "the ship sinks", "a cat sleeps"]


def sent(server):
    """What was asked for, without the probe: text -> the fields that went with it."""
    return {text: {name: value for name, value in body.items() if name not in ("model", "input", "encoding_format")}
            for body in server.asked for text in body["input"] if text not in {*TEXTS, *BESIDE}}


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data"
    (folder / "qrels").mkdir(parents=True)
    rows = [json.dumps({"_id": f"q{i}", "text": text}) for i, text in enumerate(QUERIES)]
    (folder / "queries.jsonl").write_text("\n".join(rows) + "\n", "utf-8")
    rows = [json.dumps({"_id": f"d{i}", "title": "", "text": text}) for i, text in enumerate(CORPUS)]
    (folder / "corpus.jsonl").write_text("\n".join(rows) + "\n", "utf-8")
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq0\td0\t1\nq1\td1\t1\n", "utf-8")
    return folder


def retrieved(server, data, name="hash", **options):
    made = stsbench.evaluate(f"openai:{name}", protocol=f"retrieval:{data}", base_url=server.url, resamples=0, **options)
    assert not made.failures
    return made.records[0]


# The names of models


@pytest.mark.parametrize(("query", "names"), [
    ("search_query: ", """
    nomic-embed-text nomic-embed-text:v1.5 nomic-embed-text:latest nomic-embed-text:137m-v1.5-fp16
    nomic-ai/nomic-embed-text-v1.5 text-embedding-nomic-embed-text-v1.5 text-embedding-nomic-embed-text-v1.5@q8_0
    nomic-embed-text-v1.5.Q8_0.gguf hf.co/nomic-ai/nomic-embed-text-v1.5-GGUF:Q4_K_M
    /models/nomic-embed-text-v1.5.f16.gguf nomic-embed-text-v2-moe ai/nomic-embed-text-v1.5
    """), ("task: search result | query: ", """
    embeddinggemma embeddinggemma:300m embeddinggemma:300m-qat-q8_0 text-embedding-embeddinggemma-300m-qat
    ggml-org/embeddinggemma-300M-GGUF mlx-community/embeddinggemma-300m-bf16 google/embeddinggemma-300m
    ai/embeddinggemma:300M-Q8_0
    """), ("Instruct: ", """
    qwen3-embedding qwen3-embedding:0.6b qwen3-embedding:8b-q4_K_M
    text-embedding-qwen3-embedding-0.6b Qwen3-Embedding-8B-FP8 hf.co/Qwen/Qwen3-Embedding-0.6B-GGUF:Q8_0
    lmstudio-community/Qwen3-Embedding-0.6B-GGUF Qwen_Qwen3-Embedding-4B-GGUF /models/Qwen3-Embedding-0.6B
    /models/Qwen3-Embedding-0.6B/ C:\\models\\Qwen3-Embedding-4B Qwen/Qwen3-Embedding-0.6B@main
    /cache/hub/models--Qwen--Qwen3-Embedding-0.6B/snapshots/0123abc mlx-community/Qwen3-Embedding-0.6B-4bit-DWQ
    @cf/qwen/qwen3-embedding-0.6b accounts/fireworks/models/qwen3-embedding-8b
    e5-mistral-7b-instruct:latest text-embedding-intfloat-multilingual-e5-large-instruct
    """), ("query: ", """
    intfloat/e5-small jeffh/intfloat-e5-base-v2:f32 multilingual-e5-large snowflake-arctic-embed2:568m
    Snowflake/snowflake-arctic-embed-l-v2.0 ai/snowflake-arctic-embed-l-v2-vllm
    """), ("Represent this sentence for searching relevant passages: ", """
    bge-large qllama/bge-large-en-v1.5 bge-large:335m-en-v1.5-fp16 @cf/baai/bge-small-en-v1.5 mxbai-embed-large
    mxbai-embed-large:335m mixedbread-ai/mxbai-embed-large-v1 text-embedding-mxbai-embed-large-v1
    snowflake-arctic-embed snowflake-arctic-embed:137m-m-long-fp16
    """), (None, """
    bge-m3 all-minilm:22m text-embedding-3-small text-embedding-ada-002 text-embedding-v4 granite-embedding:30m
    bge-large-zh hash my-e5-base-v2-tuned e5-large-instruct nomic-embed-vision-v1.5 qwen3-reranker:0.6b qwen3:0.6b
    bge-reranker-v2-m3 mxbai-embed-2d
    """),
])
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


def test_the_cards_prompts_go_by_role_and_task(server, data):
    record = retrieved(server, data, "nomic-embed-text:v1.5", prompt="card")
    assert {*sent(server)} == behind("search_query: ", "search_document: ")
    assert record.provenance["prompts"] == {"document": "search_document: ", "query": "search_query: "}
    encoder = loaded(server, "qwen3-embedding:0.6b", prompt="card")
    np.testing.assert_array_equal(encoder.encode_query(["a"]), hashed([encoder.prompts["query"] + "a"]))
    np.testing.assert_array_equal(encoder.encode_document(["a"]), hashed(["a"]))
    np.testing.assert_array_equal(encoder.encode(["a"]), hashed(["a"]))
    np.testing.assert_array_equal(loaded(server, "e5-small", prompt="card").encode(["a"]), hashed(["query: a"]))


def test_prompts_by_role(server, data):
    record = retrieved(server, data, prompt="all: ", query_prompt="q: ")
    assert {*sent(server)} == behind("q: ", "all: ")
    assert record.provenance["prompts"] == {"document": "all: ", "query": "q: "}
    encoder = loaded(server, document_prompt="d: ")
    assert encoder.prompts == {"query": "", "document": "d: "}
    np.testing.assert_array_equal(encoder.encode(["a"]), hashed(["a"]))
    np.testing.assert_array_equal(encoder.with_prompt("x ").for_role("document").encode(["a"]), hashed(["x a"]))


# Fields


def test_fields_go_by_role(server, data):
    """To a server that answers no request without one, from the probe on."""
    server.always = when(lambda body: body.get("input_type") not in ("query", "passage"),
                         status(400, "'input_type' parameter is required for asymmetric models"))
    with pytest.raises(EncoderError, match="is required for asymmetric models; --extra-body puts further fields"):
        loaded(server)
    server.asked.clear()
    record = retrieved(server, data, extra_body=NIM)
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


def test_no_two_bodies_or_prompts_share_a_fingerprint_or_vectors(server, tmp_path):
    asked = [*({"extra_body": fields} for fields in FIELDS), {"query_prompt": "q"}, {"document_prompt": "q"},
             {"prompt": "q"}, {"prompt": "q", "document_prompt": ""}]
    encoders = [loaded(server, **options) for options in asked]
    known = [encoder.identity.fingerprint() for encoder in encoders]
    assert len({*known}) == len(known)
    assert known[4::3] == [loaded(server, **options).identity.fingerprint() for options in asked[4::3]]
    cache = EmbeddingCache(tmp_path / "cache")
    for encoder in encoders:
        for role in (None, "query", "document"):
            reader = encoder.for_role(role)
            before = len(server.asked)
            encode_cached(reader, ["a"], cache)
            body = server.asked[-1] if len(server.asked) > before else None
            cached = cache.get(cache_key(reader), ["a"]).mask.all()
            assert cached and (body is None or body["input"][0] == (reader.spec.prefix or "") + "a")
    keys = {cache_key(encoder.for_role(role)) for encoder in encoders[:7] for role in (None, "query", "document")}
    assert len(keys) == 4  # without a field, a of 1 and of 2, b of 1
    assert loaded(server).spec.fingerprint() == loaded(server, extra_body={}).spec.fingerprint()


def test_fields_of_a_file_and_values_that_are_objects(server, tmp_path):
    fields = {"filter": {"language": "de"}, "list": [1], "none": None}
    (tmp_path / "fields.json").write_text(json.dumps(fields), "utf-8")
    loaded(server, extra_body=str(tmp_path / "fields.json"))
    assert all(body.items() >= fields.items() for body in server.asked)


def test_a_key_among_the_fields_is_refused(server, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-0123456789")
    with pytest.raises(EncoderError, match="--extra-body holds the key of OPENAI_API_KEY") as caught:
        loaded(server, extra_body={"token": "sk-0123456789"})
    assert "0123" not in str(caught.value) and not server.asked
