"""A server on this machine that answers as the Hub or GitHub does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "c" * 40  # of whatever is served


@contextmanager
def answering(answer: Callable[[str], bytes | tuple[int, dict[str, str], bytes] | None]) -> Iterator[str]:
    """The address of a server, which is gone after the block. answer(path): the body, None where there is nothing, or the
    status, the headers and the body."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            given = answer(self.path)
            if given is None:
                given = 404, {"X-Error-Code": "RepoNotFound"}, b""
            elif isinstance(given, bytes):
                given = 200, {"X-Repo-Commit": COMMIT, "ETag": f'"{sha256(given).hexdigest()}"'}, given
            status, about, body = given
            self.send_response(status)
            for key, value in {**about, "Content-Length": str(len(body))}.items():
                self.send_header(key, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET  # noqa: N815  BaseHTTPRequestHandler's name

        def log_message(self, *_: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield f"http://127.0.0.1:{http.server_address[1]}"
    http.shutdown()
    http.server_close()
