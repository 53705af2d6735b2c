"""A stand-in for the Hub on this machine that has repositories of datasets, as folders of files."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest

COMMIT = hashlib.sha1(b"commit").hexdigest()


class Hub:
    """repositories: OWNER/NAME -> path -> content; gated: those that answer 403; asked: every request."""

    def __init__(self) -> None:
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.gated: set[str] = set()
        self.asked: list[str] = []
        self.url = ""

    def answer(self, path: str) -> tuple[int, dict[str, str], bytes]:
        self.asked.append(path)
        parts = urlsplit(path).path.strip("/").split("/")
        api = parts[0] == "api"
        name = "/".join(parts[2:4] if api else parts[1:3])
        rest = parts[4:] if api else parts[3:]
        if name not in self.repositories:
            return 401, {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"}, b""
        if name in self.gated:
            return 403, {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access is restricted"}, b""
        files = self.repositories[name]
        if rest[:1] == ["revision"] or not rest:
            if rest and rest[1] not in ("main", COMMIT):
                return 404, {"X-Error-Code": "RevisionNotFound"}, b""
            return 200, {}, json.dumps({"id": name, "sha": COMMIT, "siblings": [{"rfilename": at} for at in files]}).encode()
        if rest[0] == "tree":
            return 200, {}, json.dumps([
                {"type": "file", "path": at, "size": len(body), "oid": hashlib.sha1(body).hexdigest()}
                for at, body in files.items()
            ]).encode()
        at = "/".join(rest[2:])
        if at not in files:
            return 404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT}, b""
        body = files[at]
        return 200, {"X-Repo-Commit": COMMIT, "ETag": f'"{hashlib.sha1(body).hexdigest()}"'}, body


@contextmanager
def dataset_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    """A Hub on 127.0.0.1 that the client asks instead of the real one, and an empty cache of its files."""
    from huggingface_hub import constants

    state = Hub()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self, body: bool = True) -> None:
            status, headers, content = state.answer(self.path)
            self.send_response(status)
            for key, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(key, value)
            self.end_headers()
            if body:
                self.wfile.write(content)

        def do_HEAD(self) -> None:
            self.do_GET(body=False)

        def log_message(self, *_: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    state.url = f"http://127.0.0.1:{http.server_address[1]}"
    for name in ("HF_HUB_OFFLINE", "HF_TOKEN", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(constants, "ENDPOINT", state.url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", state.url + "/{repo_id}/resolve/{revision}/{filename}")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    yield state
    http.shutdown()
    http.server_close()
