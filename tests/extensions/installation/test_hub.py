"""One request to the Hub, for which a server on this machine stands in: it answers, refuses, or says nothing."""

import socket
import time

import pytest
from hubserver import serving

from stsbench.data.fetch.download import hub_url
from stsbench.data.sets.catalog import catalog
from stsbench.extensions.installation.checks import ask_hub


def test_it_asks_for_what_data_fetch_downloads(monkeypatch, tmp_path):
    with serving(monkeypatch, tmp_path) as server:
        server.body = b"x" * 100
        hub = ask_hub()
        assert (hub.endpoint, hub.state) == (server.url, "reached") and hub.detail.startswith("answered in ")
        assert server.asked == [(hub_url(catalog().archive).removeprefix(server.url), "bytes=0-0")]


def test_a_refusal_names_its_code(monkeypatch, tmp_path):
    with serving(monkeypatch, tmp_path) as server:
        server.status = [503]
        hub = ask_hub()
        assert (hub.state, hub.detail[:19]) == ("unreachable", "it answers HTTP 503")


def test_nobody_listens(monkeypatch, tmp_path):
    with serving(monkeypatch, tmp_path), socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{taken.getsockname()[1]}")
        hub = ask_hub()
        assert hub.state == "unreachable" and "refused" in hub.detail


def test_a_server_that_says_nothing_is_waited_for_briefly(monkeypatch, tmp_path):
    with serving(monkeypatch, tmp_path), socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        began = time.monotonic()
        hub = ask_hub(timeout=0.1)
        assert (hub.state, hub.detail) == ("unreachable", "no answer within 0.1 s")
        assert time.monotonic() - began < 5


@pytest.mark.parametrize("endpoint", ["ftp://127.0.0.1", "huggingface.co"])
def test_another_scheme_is_not_tried(monkeypatch, endpoint):
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    assert ask_hub().detail == "HF_ENDPOINT must start with http:// or https://"


def test_offline_asks_nothing(monkeypatch, tmp_path):
    with serving(monkeypatch, tmp_path) as server:
        assert ask_hub(offline=True).detail == "--offline"
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        assert (ask_hub().state, ask_hub().detail) == ("not asked", "$HF_HUB_OFFLINE is set")
        assert server.asked == []
