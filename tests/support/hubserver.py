"""A stand-in for the Hub on this machine that breaks things on purpose, and archives for it to serve."""

import gzip
import io
import json
import tarfile
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from answers import listening

from stsbench.data.fetch import download as download_module
from stsbench.data.sets import catalog as catalog_module
from stsbench.data.sets.catalog import Catalog, catalog
from stsbench.files import sha256_file

SAMPLE = Path(catalog_module.__file__).resolve().parents[1] / "sample"


@dataclass
class Server:
    """What the next requests get: `cuts` are byte counts after which a connection is closed, one a request."""

    url: str = ""
    body: bytes = b""
    etag: str = '"one"'
    ranges: bool = True
    cuts: list[int] = field(default_factory=list)
    status: list[int] = field(default_factory=list)  # answers before the first real one
    asked: list[tuple[str, str | None]] = field(default_factory=list)


def data_nowhere(monkeypatch, tmp_path):
    """An empty cache below `tmp_path`, a Hub at which nobody answers, and no waiting between tries."""
    for name in ("STSBENCH_DATA", "HF_HUB_OFFLINE", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(download_module.time, "sleep", lambda seconds: None)


@contextmanager
def serving(monkeypatch, tmp_path):
    """The same with a server on 127.0.0.1 as $HF_ENDPOINT."""
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            wanted = self.headers.get("Range")
            state.asked.append((self.path, wanted))
            if state.status:
                self.send_error(state.status.pop(0))
                return
            begin = 0
            if wanted and state.ranges and self.headers.get("If-Range") == state.etag:
                begin = int(wanted.removeprefix("bytes=").rstrip("-"))
            body = state.body[begin:]
            self.send_response(206 if begin else 200)
            if begin:
                self.send_header("Content-Range", f"bytes {begin}-{len(state.body) - 1}/{len(state.body)}")
            if state.etag:
                self.send_header("ETag", state.etag)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: state.cuts.pop(0)] if state.cuts else body)

    data_nowhere(monkeypatch, tmp_path)
    with listening(Handler) as state.url:
        monkeypatch.setenv("HF_ENDPOINT", state.url)
        yield state


@pytest.fixture
def server(monkeypatch, tmp_path):
    with serving(monkeypatch, tmp_path) as state:
        yield state


@pytest.fixture
def sample_catalog(monkeypatch):
    """A catalog that knows the sample's files, so that a whole archive can be tested without the licensed data."""
    real = catalog()
    actual = {}
    for key, item in real.entries.items():
        if item.text_version == "senteval":
            files = {name: sha256_file(SAMPLE / name) for name in item.files}
            item = catalog_module.Entry(**{**vars(item), "files": files})
        actual[key] = item
    changed = Catalog(real.archive, actual, {}, {})
    for module in ("fetch.install", "fetch.download", "sets.catalog"):  # imported before it is changed
        monkeypatch.setattr(f"stsbench.data.{module}.catalog", lambda: changed)
    return changed


def tar_of(files, extra=None):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name, body in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(body)
            tar.addfile(member, io.BytesIO(body))
        for member in extra or []:
            tar.addfile(member)
    return stream.getvalue()


def sample_files(prefix=""):
    return {prefix + str(path.relative_to(SAMPLE / "downstream")): path.read_bytes()
            for path in sorted((SAMPLE / "downstream").rglob("*")) if path.is_file()}


def raw(score):
    line = json.dumps({"sentence1": "A man's hat.", "sentence2": "B.", "score": score})
    return gzip.compress((line + "\n").encode() * 1379, mtime=0)
