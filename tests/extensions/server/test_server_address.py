"""Where requests go, by way of which proxy, and that no message repeats a key."""

import base64
import itertools
import json
import sys
from urllib.parse import quote

import numpy as np
import pytest
from embedding_server import hashed, quick, server, status  # noqa: F401 - fixtures

from stsbench import load_encoder
from stsbench.errors import EncoderError
from stsbench.extensions.server.address import Address, choose_proxy, without_secrets

pytest.importorskip("openai")

SECRET = "sk-Zeb7ra-0123456789+bcd/fXYZ"
WORD = "sk-Zeb7ra-0123456789"  # may stand in an address
VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch):
    for name in (*VARIABLES, *map(str.upper, VARIABLES), "REQUEST_METHOD"):
        monkeypatch.delenv(name, raising=False)


def address(host):
    return Address(f"http://{host}/v1", host.strip("[]"), False)


def test_this_machine_by_any_name():
    for host in ("127.0.0.1", "127.8.9.1", "127.1", "localhost", "LOCALHOST.", "0.0.0.0", "a.localhost", "[::1]",
                 "[::ffff:127.0.0.1]"):
        assert address(host).local, host
    for host in ("128.0.0.1", "10.0.0.1", "localhost.example", "[fe80::1]", "127.0.0.1.example"):
        assert not address(host).local, host


def test_no_proxy_for_this_machine(server, monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "socks5://127.0.0.1:9")
    np.testing.assert_array_equal(load_encoder("openai:hash", base_url=server.url).encode(["a"]), hashed(["a"]))
    monkeypatch.setenv("HTTP_PROXY", "no proxy at all://")
    assert load_encoder("openai:hash", base_url=server.url.replace("127.0.0.1", "localhost")).dimension == 24


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
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


@pytest.mark.parametrize(("proxy", "line"), [
    (f"socks5://me:{WORD}@127.0.0.1:9", r"the proxy socks5://127.0.0.1:9 of HTTP_PROXY needs the package socksio: "),
    (f"socks://{WORD}@127.0.0.1:9", "the proxy of HTTP_PROXY is no address of one: write http://HOST:PORT"),
    (f"http://me:{WORD}@127.0.0.1:{WORD}", "the proxy of HTTP_PROXY is no address of one"),
    (f"http://{WORD} x", "the proxy of HTTP_PROXY is no address of one"),
    (f"me:{WORD}@127.0.0.1:9", "the proxy http://127.0.0.1:9 of HTTP_PROXY cannot be reached .*: does the proxy run"),
])
def test_a_proxy_that_cannot_be_used_is_one_line(monkeypatch, proxy, line):
    monkeypatch.setitem(sys.modules, "socksio", None)
    monkeypatch.setenv("HTTP_PROXY", proxy)
    with pytest.raises(EncoderError, match=line) as caught:
        load_encoder("openai:hash", base_url="http://api.example/v1")
    text = str(caught.value)
    assert WORD[:8] not in text and "NO_PROXY=api.example" in text and text.isprintable()


def spellings():
    raw = SECRET.encode()
    yield SECRET
    yield " ".join(SECRET)
    yield SECRET[:10] + "\n\t" + SECRET[10:]
    yield "\u200b".join(SECRET)
    yield SECRET[:20]  # cut
    yield SECRET[9:]
    yield quote(SECRET, safe="")
    yield "".join(f"%{byte:02X}" for byte in raw)
    yield "".join(f"\\u{byte:04x}" for byte in raw)
    yield raw.hex()
    for before in ("", "u", "us", "Bearer ", "user:"):
        yield base64.b64encode(before.encode() + raw).decode()
        yield base64.urlsafe_b64encode(before.encode() + raw + b"more").decode()


def test_a_secret_is_hidden_however_it_is_written():
    for spelling in spellings():
        hidden = without_secrets(f"your key ({spelling}) is wrong", SECRET)
        assert "***" in hidden and hidden.startswith("your key (") and hidden.endswith(") is wrong")
        left = hidden.removeprefix("your key (").removesuffix(") is wrong").replace("***", "")
        assert len("".join(left.split())) < 20, left  # what stands around it in base64
    assert without_secrets("nothing of it", SECRET) == "nothing of it"


def test_short_words_are_keys_as_a_whole():
    assert without_secrets("a model of ollama's: olla", "ollama") == "a model of ***'s: olla"
    assert without_secrets("abc", "abc") == without_secrets("abc", "") == "abc"


@pytest.mark.parametrize("blanks", [0, 290, 8170, 8180])
def test_a_key_at_the_end_of_what_is_read_is_hidden(server, monkeypatch, blanks):
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    said = " " * blanks + f"key {SECRET}" + " x" * 9000
    for form, code in itertools.product((said, json.dumps(said), json.dumps({"error": said})), (400, 500, 200)):
        server.always = lambda handler, asked, form=form, code=code: handler.give(form.encode(), code)
        with pytest.raises(EncoderError) as caught:
            load_encoder("openai:hash", base_url=server.url)
        assert SECRET[:6] not in str(caught.value) and len(str(caught.value)) < 600


def test_a_key_that_is_quoted_in_the_address_is_not_repeated(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    with pytest.raises(EncoderError, match="--base-url holds a user name, a password, a query or a key") as caught:
        load_encoder("openai:hash", base_url=f"http://host/{quote(SECRET, safe='')}/v1")
    assert WORD[:8] not in str(caught.value)
