"""`stsbench eval --model openai:NAME`: scores, what it took, and a key that stands nowhere."""

import json
import logging
import traceback
from pathlib import Path

import numpy as np
import pytest
from clirun import cli, evaluate, fails, place, record  # noqa: F401
from embedding_server import changed, closed, hashed, quick, server, serving, status, when  # noqa: F401 - fixtures

import stsbench
from stsbench import load_encoder
from stsbench.errors import EncoderError, StsbenchWarning
from stsbench.registry import names

pytest.importorskip("openai")

SECRET = "sk-Zeb7ra-0123456789abcdefXYZ"


@pytest.fixture
def own_handlers():
    """--debug adds a handler to the logger: without it afterwards."""
    logger = logging.getLogger("stsbench")
    handlers, level = list(logger.handlers), logger.level
    logger.handlers.clear()
    yield
    logger.handlers[:], logger.level = handlers, level


def test_scores_are_those_of_the_same_vectors(server, evaluate):
    code, _, err = evaluate("openai:hash", "--base-url", server.url, "--price", "20", "--requests", "2", "--offline")
    assert code == 0 and f"run by the server at {server.url}" in err and "as long as they come" in err
    direct = stsbench.evaluate(lambda texts: hashed(texts), tasks="STS-B", sample=True, resamples=0)
    made = record()
    assert [row["value"] for row in made["scores"]] == [row.value for row in direct.rows]
    spent = made["provenance"]["server"]
    assert spent["requests"] == len(server.asked) and spent["retries"] == 0 and spent["base_url"] == server.url
    words = sum(len(text.split()) for text in server.texts)
    assert spent["tokens"] == words and spent["cost"] == pytest.approx(words * 2e-5) and spent["price"] == 20
    assert f"openai:hash: {spent['requests']} requests, {words:,} tokens, cost {spent['cost']:.6g} at 20 a million" in err
    assert made["encoder"]["spec"]["name"] == "openai:hash" and server.url not in json.dumps(made["encoder"])

    before = len(server.asked)  # with everything in the cache the probe alone is asked for
    with serving(usage=False) as other:
        code, _, err = evaluate("openai:hash", "--base-url", other.url, "--output", "again")
        assert code == 0 and len(other.asked) == 6 and len(server.asked) == before
    assert "0 tokens, those of 6 answers not counted by the server;" in err
    assert record("again")["encoder"] == made["encoder"] and record("again")["provenance"]["server"]["requests"] == 6
    code, _, err = evaluate("openai:hash", "--base-url", server.url, "--processes", "2", "--output", "third")
    assert code == 1 and "leave --processes and --devices out" in err


def test_a_change_half_way_is_one_line_and_no_record(server, evaluate):
    server.model = lambda texts: hashed(texts, "" if len(server.asked) < 8 else "other")
    outcome = evaluate("openai:hash", "--base-url", server.url, "--requests", "1")
    fails(outcome, "gives another vector for a text of the probe")
    assert f"openai:hash: {len(server.asked)} requests" in outcome[2]  # paid for all the same


def test_fields_and_prompts_are_in_the_record_and_said(server, evaluate, monkeypatch):
    roles = {"query": "retrieval.query", "document": "retrieval.passage", "text": "text-matching"}
    fields = {"task": roles, "truncate": True}
    server.always = changed(lambda answer: answer.update(model="another:22m"))
    monkeypatch.setenv("OPENAI_BASE_URL", server.url + "/")  # the address's default
    code, out, err = evaluate("openai:nomic-embed-text:v1.5", "--prompt", "card", "--json", "-",
                              "--extra-body", json.dumps(fields))
    assert code == 0 and json.loads(out) and all(body["task"] == "text-matching" for body in server.asked)
    assert 'prompts: sts "classification: "' in err and 'document {"task": "retrieval.passage", "truncate": true}' in err
    assert "warning: openai:nomic-embed-text:v1.5: its answers come from a model that 127.0.0.1 calls another:22m" in err
    made = record()
    assert made["encoder"]["spec"]["options"]["extra_body"] == fields
    assert made["provenance"]["server"]["model"] == "another:22m" and made["provenance"]["server"]["base_url"] == server.url
    assert made["provenance"]["prompts"] == {"text": "classification: "}


def test_a_text_that_a_server_fails_at_costs_its_task_alone(server, tmp_path):
    for name, word in (("good", "kettle"), ("bad", "bridge")):
        rows = "".join(f"a {word} {i},the {word} {i * i},{i}\n" for i in range(9))
        (tmp_path / f"{name}.csv").write_text(f"sentence1,sentence2,score\n{rows}", "utf-8")
    server.always = when(lambda body: "the bridge 49" in body["input"], status(500, "cannot encode NaN"))
    with pytest.warns(StsbenchWarning):
        made = stsbench.evaluate("openai:hash", base_url=server.url, resamples=0, no_cache=True,
                                 protocols=[f"sts:{tmp_path / 'good.csv'}", f"sts:{tmp_path / 'bad.csv'}"])
    [why] = made.failures.values()
    assert "500: cannot encode NaN" in why and why.endswith("the text, of 13 characters: 'the bridge 49'") and made.rows


# The key


def everything(folder):
    return {path: path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


def without_secret(folder, *texts):
    wrong = [str(path) for path, content in everything(folder).items() if SECRET.encode() in content]
    return not wrong and not any(SECRET in text or SECRET[3:] in text for text in texts)


@pytest.fixture
def secret(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)


def echoing(code):
    def spoil(handler, body):
        key = handler.headers["Authorization"]
        status(code, f"bad key {key}: {body['input'][:1]}", location=f"http://elsewhere/{key.split()[-1]}")(handler, body)

    return spoil


def test_the_key_is_sent_and_written_nowhere(server, secret, evaluate, tmp_path, own_handlers, monkeypatch):
    monkeypatch.setenv("OPENAI_LOG", "debug")
    code, out, err = evaluate("openai:hash", "--base-url", server.url, "--debug")
    assert code == 0 and {*server.keys} == {f"Bearer {SECRET}"} and len(everything(tmp_path)) > 4
    assert without_secret(tmp_path, out, err)


@pytest.mark.parametrize("spoil", [
    echoing(401), echoing(500), echoing(302), closed, changed(lambda answer: {"error": SECRET * 20}),
    changed(lambda answer: answer.update(data=[{"index": SECRET}])),
], ids=range(6))
def test_the_key_is_in_no_message_and_no_traceback(server, secret, evaluate, tmp_path, own_handlers, spoil, capsys):
    server.always = spoil
    line = fails(evaluate("openai:hash", "--base-url", server.url), server.url)
    with pytest.raises(EncoderError) as caught:
        evaluate("openai:hash", "--base-url", server.url, "--debug")
    captured = capsys.readouterr()
    shown = "".join(traceback.format_exception(caught.value))
    assert without_secret(tmp_path, line, captured.out, captured.err, shown)


def test_a_task_that_fails_later_keeps_it_too(server, secret, evaluate, tmp_path, own_handlers, capsys):
    server.spoils, server.always = [None] * 6, echoing(500)
    with pytest.raises(EncoderError) as caught:
        evaluate("openai:hash", "--base-url", server.url, "--debug", tasks=("--tasks", "STS-B,STS12"))
    _, err = capsys.readouterr()
    shown = "".join(traceback.format_exception(caught.value))
    assert "bad key Bearer ***" in err and err.count("Traceback") == 2 and without_secret(tmp_path, err, shown)


def test_a_key_in_the_address_is_refused_unrepeated(secret, evaluate, tmp_path, monkeypatch):
    for url in (
        f"http://{SECRET}@127.0.0.1:1/v1", f"http://user:{SECRET}@127.0.0.1:1/v1", f"http://127.0.0.1:1/v1?key={SECRET}",
        f"http://127.0.0.1:1/v1#{SECRET}", f"http://127.0.0.1:1/{SECRET}/v1", f"http://127.0.0.1:{SECRET}/v1",
        f"user:{SECRET}@127.0.0.1:80/v1", f"//me:{SECRET}@host/v1", f"ftp://me:{SECRET}@host",
    ):
        assert without_secret(tmp_path, fails(evaluate("openai:hash", "--base-url", url), "--base-url"))
    monkeypatch.setenv("OPENAI_BASE_URL", url)
    assert without_secret(tmp_path, fails(evaluate("openai:hash"), "OPENAI_BASE_URL"))


def test_a_key_that_no_header_holds_is_not_repeated(server, evaluate, tmp_path, monkeypatch):
    for key in (SECRET + "\n", "sk é " + SECRET, SECRET + " x"):
        monkeypatch.setenv("OPENAI_API_KEY", key)
        assert without_secret(tmp_path, fails(evaluate("openai:hash", "--base-url", server.url), "OPENAI_API_KEY"))
    assert not server.asked


def test_a_redirect_is_not_followed(server, secret):
    with serving() as other:
        server.always = status(307, location=f"{other.url}/embeddings")
        with pytest.raises(EncoderError, match="requests on to"):
            load_encoder("openai:hash", base_url=server.url)
        assert len(server.asked) == 1 and not other.asked


def test_a_key_goes_unencrypted_to_this_machine_alone(server, secret, monkeypatch):
    assert not any("unencrypted" in note for note in load_encoder("openai:hash", base_url=server.url).notes)
    monkeypatch.setattr("stsbench.extensions.server.address.Address.local", False)
    assert any("unencrypted" in note for note in load_encoder("openai:hash", base_url=server.url).notes)


# Beside the command


def test_without_the_client_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "openai", None)
    with pytest.raises(EncoderError, match=r"openai:x needs the package openai: pip install 'stsbench\[server\]'"):
        load_encoder("openai:x")


@pytest.mark.skipif("encode" not in names("stsbench.commands"), reason="stores of vectors are another extension")
def test_a_store_says_what_it_took(server, cli, place):
    Path("texts.txt").write_text("\n".join(f"line {i}" for i in range(70)), "utf-8")
    words = ("encode", "--model", "openai:hash", "--base-url", server.url, "--input", "texts.txt", "--output", "store")
    code, _, err = cli(*words)
    assert code == 0 and f"openai:hash: {len(server.asked)} requests" in err
    code, _, err = cli(*words)
    assert code == 0 and "openai:hash: 6 requests" in err
    np.testing.assert_array_equal(load_encoder("vectors:store").encode(["line 7"]), hashed(["line 7"]))
