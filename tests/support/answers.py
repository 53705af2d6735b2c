"""A server on this machine that answers as the Hub or GitHub does."""

import threading
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "c" * 40  # of whatever is served


@contextmanager
def listening(handler):
    """The address of a server that logs nothing, and is gone after the block."""
    http = ThreadingHTTPServer(("127.0.0.1", 0), type("Quiet", (handler,), {"log_message": lambda *_: None}))
    http.handle_error = lambda *request: None  # of a client that was killed
    threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield f"http://127.0.0.1:{http.server_address[1]}"
    http.shutdown()
    http.server_close()


@contextmanager
def answering(answer):
    """The address of a server. answer(path): the body, None where nothing is, or the status, the headers and the body."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
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

    with listening(Handler) as address:
        yield address
