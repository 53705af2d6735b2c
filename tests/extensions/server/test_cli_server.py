"""`stsbench eval --model openai:NAME`: scores, what it took, where requests go, by way of which proxy, and a key that stands
nowhere."""

import base64
import itertools
import json
import logging
import sys
import traceback
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest
from clirun import cli, contents, evaluate, fails, place, record  # noqa: F401
from embedding_server import changed, hashed, quick, server, serving, status  # noqa: F401 - fixtures

import stsbench
from stsbench import load_encoder
from stsbench.errors import EncoderError
from stsbench.extensions.server.address import Address, choose_proxy, without_secrets
from stsbench.registry import names

pytest.importorskip("openai")

SECRET = "sk-Zeb7ra-0123456789abcdefXYZ"
SIGNS = "sk-Zeb7ra-0123456789+bcd/fXYZ"
VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch):
    for name in (*VARIABLES, *map(str.upper, VARIABLES), "REQUEST_METHOD"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def own_handlers():
    """--debug adds a handler to the logger: without it afterwards."""
    logger = logging.getLogger("stsbench")
    handlers, level = list(logger.handlers), logger.level
    logger.handlers.clear()
    yield
    logger.handlers[:], logger.level = handlers, level


def test_scores_are_those_of_the_same_vectors(server, evaluate, monkeypatch):
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
        monkeypatch.setenv("OPENAI_BASE_URL", other.url + "/")  # the address's default
        code, _, err = evaluate("openai:hash", "--output", "again")
        assert code == 0 and len(other.asked) == 6 and len(server.asked) == before
    assert "0 tokens, those of 6 answers not counted by the server;" in err
    assert record("again")["encoder"] == made["encoder"] and record("again")["provenance"]["server"]["requests"] == 6
    code, _, err = evaluate("openai:hash", "--base-url", server.url, "--processes", "2", "--output", "third")
    assert code == 1 and "leave --processes and --devices out" in err


# The key


def without_secret(folder, *texts):
    wrong = [path for path, content in contents(folder).items() if SECRET.encode() in content]
    return not wrong and not any(SECRET in text or SECRET[3:] in text or SECRET[:8] in text for text in texts)


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
    assert code == 0 and {*server.keys} == {f"Bearer {SECRET}"} and len(contents(tmp_path)) > 4
    assert without_secret(tmp_path, out, err)


@pytest.mark.parametrize("spoil", [echoing(401), changed(lambda answer: {"error": SECRET * 20})], ids=range(2))
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


def test_a_key_in_the_address_of_the_environment_is_refused_unrepeated(secret, evaluate, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://host/{SECRET}/v1")
    assert without_secret(tmp_path, fails(evaluate("openai:hash"), "OPENAI_BASE_URL"))


def test_a_key_that_no_header_holds_is_not_repeated(monkeypatch):
    for key in (SECRET + "\n", "sk é " + SECRET, SECRET + " x"):
        monkeypatch.setenv("OPENAI_API_KEY", key)
        with pytest.raises(EncoderError, match="OPENAI_API_KEY") as caught:
            load_encoder("openai:hash", base_url="http://127.0.0.1:1/v1")
        assert SECRET[:8] not in str(caught.value)


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
    monkeypatch.setitem(sys.modules, "openai", None)
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


# Where requests go.


def address(host):
    return Address(f"http://{host}/v1", host.strip("[]"), False)


def test_this_machine_by_any_name():
    for host in ("127.0.0.1", "127.8.9.1", "127.1", "localhost", "LOCALHOST.", "0.0.0.0", "a.localhost", "[::1]",
                 "[::ffff:127.0.0.1]"):
        assert address(host).local, host
    for host in ("128.0.0.1", "10.0.0.1", "localhost.example", "[fe80::1]", "127.0.0.1.example"):
        assert not address(host).local, host


@pytest.mark.parametrize("variable", ["http_proxy", "ALL_PROXY"])
def test_a_proxy_is_used_and_named(server, monkeypatch, variable):
    """`server` is the proxy: what is asked of it is for api.example."""
    place = server.url.removeprefix("http://").removesuffix("/v1")
    monkeypatch.setenv(variable, f"http://somebody:pass%2Fword-of-his@{place}")
    encoder = load_encoder("openai:hash", base_url="http://api.example/v1")
    np.testing.assert_array_equal(encoder.encode(["a"]), hashed(["a"]))
    [note] = [note for note in encoder.notes if "proxy" in note]
    assert note == f"openai:hash: requests go by the proxy http://{place} of {variable}"
    server.always = status(400, "who is pass/word-of-his or pass%2Fword-of-his, somebody?")
    line = rf"by the proxy http://{place} of {variable} answered 400: who is \*\*\* or \*\*\*,"
    with pytest.raises(EncoderError, match=line):
        encoder.encode(["a"])
    server.always = status(407, "who?")
    with pytest.raises(EncoderError, match=r"answered 407: who\?; NO_PROXY=api.example goes without it"):
        encoder.encode(["a"])


def test_no_proxy_where_the_environment_says_none(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")

    def spared(host, hosts):
        monkeypatch.setenv("NO_PROXY", hosts)
        return choose_proxy(address(host)) is None

    for hosts in ("api.example", ".example", "example", "*", "a,*", "*.example"):
        assert spared("api.example", hosts), hosts
    for hosts in ("*.other.example", "api.example:80", "other.example", "pi.example", ""):
        assert not spared("api.example", hosts), hosts
    networks = "10.0.0.0/8, fd00::/8,x"
    assert spared("10.1.2.3", networks) and spared("[fd00::7]", networks) and not spared("11.1.2.3", networks)
    assert choose_proxy(address("11.1.2.3")).shown == "http://127.0.0.1:9"
    assert choose_proxy(address("127.0.0.1")) is choose_proxy(address("localhost")) is None  # whatever the environment says


@pytest.mark.parametrize(("proxy", "line"), [
    (f"socks5://me:{SECRET}@127.0.0.1:9", r"the proxy socks5://127.0.0.1:9 of HTTP_PROXY needs the package socksio: "),
    (f"socks://{SECRET}@127.0.0.1:9", "the proxy of HTTP_PROXY is no address of one: write http://HOST:PORT"),
    (f"http://me:{SECRET}@127.0.0.1:{SECRET}", "the proxy of HTTP_PROXY is no address of one"),
    (f"http://{SECRET} x", "the proxy of HTTP_PROXY is no address of one"),
    (f"me:{SECRET}@127.0.0.1:9", "the proxy http://127.0.0.1:9 of HTTP_PROXY cannot be reached .*: does the proxy run")])
def test_a_proxy_that_cannot_be_used_is_one_line(monkeypatch, proxy, line):
    monkeypatch.setitem(sys.modules, "socksio", None)
    monkeypatch.setenv("HTTP_PROXY", proxy)
    with pytest.raises(EncoderError, match=line) as caught:
        load_encoder("openai:hash", base_url="http://api.example/v1")
    text = str(caught.value)
    assert SECRET[:8] not in text and "NO_PROXY=api.example" in text and text.isprintable()


def spellings():
    raw = SIGNS.encode()
    yield SIGNS
    yield " ".join(SIGNS)
    yield SIGNS[:10] + "\n\t" + SIGNS[10:]
    yield "\u200b".join(SIGNS)
    yield SIGNS[:20]  # cut
    yield SIGNS[9:]
    yield quote(SIGNS, safe="")
    yield "".join(f"%{byte:02X}" for byte in raw)
    yield "".join(f"\\u{byte:04x}" for byte in raw)
    yield raw.hex()
    for before in ("", "u", "us", "Bearer ", "user:"):
        yield base64.b64encode(before.encode() + raw).decode()
        yield base64.urlsafe_b64encode(before.encode() + raw + b"more").decode()


def test_a_secret_is_hidden_however_it_is_written():
    for spelling in spellings():
        hidden = without_secrets(f"your key ({spelling}) is wrong", SIGNS)
        assert "***" in hidden and hidden.startswith("your key (") and hidden.endswith(") is wrong")
        left = hidden.removeprefix("your key (").removesuffix(") is wrong").replace("***", "")
        assert len("".join(left.split())) < 20, left  # what stands around it in base64
    assert without_secrets("nothing of it", SIGNS) == "nothing of it"
    assert without_secrets("a model of ollama's: olla", "ollama") == "a model of ***'s: olla"  # as a whole
    assert without_secrets("abc", "abc") == without_secrets("abc", "") == "abc"


@pytest.mark.parametrize("blanks", [290, 8170])
def test_a_key_at_the_end_of_what_is_read_is_hidden(server, monkeypatch, blanks):
    monkeypatch.setenv("OPENAI_API_KEY", SIGNS)
    said = " " * blanks + f"key {SIGNS}" + " x" * 9000
    for form, code in itertools.product((said, json.dumps(said), json.dumps({"error": said})), (400, 200)):
        server.always = lambda handler, asked, form=form, code=code: handler.give(form.encode(), code)
        with pytest.raises(EncoderError) as caught:
            load_encoder("openai:hash", base_url=server.url)
        assert SIGNS[:6] not in str(caught.value) and len(str(caught.value)) < 600
