"""A server on this machine with the interface of OpenAI's, whose answers a test spoils one by one."""

import base64
import hashlib
import json
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

import numpy as np
import pytest
from answers import listening

from stsbench import load_encoder
from stsbench.extensions.server import client

WIDTH = 24
CONTEXT = ssl.create_default_context()  # to read the certificates takes half of what loading an encoder does


def hashed(texts, salt="", width=WIDTH):
    """Vectors of length 1 from the texts' bytes alone."""
    rows = []
    for text in texts:
        seed = int.from_bytes(hashlib.sha256((salt + text).encode()).digest()[:8], "little")
        rows.append(np.random.default_rng(seed).standard_normal(width))
    vectors = np.array(rows)
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


Spoil = Callable[["Handler", dict[str, Any]], None]  # writes an answer in the place of the right one


@dataclass
class State:
    """model: texts -> vectors; spoils: for the next requests, None for a right answer; asked: the bodies, in their order;
    keys: their Authorization."""

    url: str = ""
    model: Callable[[list[str]], np.ndarray] = hashed
    spoils: list[Spoil | None] = field(default_factory=list)
    always: Spoil | None = None
    asked: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    usage: bool = True
    base64: bool = True
    seconds: float = 0.0  # that each answer takes
    active: int = 0
    most_active: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def texts(self):
        return [text for body in self.asked for text in body["input"]]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body are two writes: the second would wait 40 ms
    state: State

    def do_POST(self):
        state = self.state
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with state.lock:
            state.asked.append(body)
            state.keys.append(self.headers.get("Authorization"))
            state.active += 1
            state.most_active = max(state.most_active, state.active)
            spoil = state.spoils.pop(0) if state.spoils else state.always
        try:
            time.sleep(state.seconds)
            if spoil is None:
                self.give(self.right(body))
            else:
                spoil(self, body)
        finally:
            with state.lock:
                state.active -= 1

    def right(self, body, vectors=None):
        state, texts = self.state, body["input"]
        made = state.model(texts) if vectors is None else vectors
        plain = body.get("encoding_format") != "base64" or not state.base64
        data = [{
            "object": "embedding", "index": row,
            "embedding": [float(x) for x in vector] if plain else base64.b64encode(vector.astype("<f4").tobytes()).decode(),
        } for row, vector in enumerate(made)]
        answer = {"object": "list", "data": data, "model": body["model"]}
        if state.usage:
            count = sum(len(text.split()) for text in texts)
            answer["usage"] = {"prompt_tokens": count, "total_tokens": count}
        return answer

    def give(self, answer, status=200, headers=None, sent=None):
        """sent: so many bytes of it, the connection is closed then."""
        body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body[:sent])
        if sent is not None:
            self.close_connection = True


def status(code, reason="overloaded", **headers):
    """An error as OpenAI words it; headers by name, _ for -."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda handler, body: handler.give({"error": {"message": reason}}, code, named)


def closed(handler, body):
    handler.close_connection = True
    handler.connection.close()


def half(handler, body):
    answer = json.dumps(handler.right(body)).encode()
    handler.give(answer, sent=len(answer) // 2)


def when(chosen, spoil):
    """The right answer, but for requests whose body is chosen."""
    return lambda handler, body: spoil(handler, body) if chosen(body) else handler.give(handler.right(body))


def dripping(begin):
    """An answer that begins so and goes on byte by byte."""
    def spoil(handler, body):
        with suppress(OSError):
            handler.wfile.write(begin)
            for _ in range(20):
                handler.wfile.write(b"1")
                handler.wfile.flush()
                time.sleep(0.05)

    return spoil


def changed(change):
    """The right answer, changed before it is sent."""
    def spoil(handler, body):
        answer = handler.right({**body, "encoding_format": "float"})
        made = change(answer)
        handler.give(answer if made is None else made)

    return spoil


@contextmanager
def serving(**settings):
    """A server on 127.0.0.1 for as long as the block lasts; settings: of its State."""
    state = State(**settings)
    with listening(type("Serving", (Handler,), {"state": state})) as address:
        state.url = f"{address}/v1"
        yield state


@pytest.fixture(autouse=True)
def quick(monkeypatch, tmp_path):
    """No key, a cache of the test's own, no waiting between two tries, and certificates that are read once."""
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "home"))
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(client, "FIRST_WAIT", 0.0)
    monkeypatch.setattr(ssl, "create_default_context", lambda *arguments, **more: CONTEXT)


@pytest.fixture
def server():
    with serving() as state:
        yield state


def loaded(server, name="hash", **options):
    return load_encoder(f"openai:{name}", base_url=server.url, **options)
