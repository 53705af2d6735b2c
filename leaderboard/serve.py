"""`leaderboard serve`: the built page on this machine's own address, for this machine only."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from stsbench.errors import StsbenchError

LOOPBACK = "127.0.0.1"


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-store")  # a new build shows on reload
        super().end_headers()


def serve(site: Path, port: int, log: Callable[[str], None]) -> None:
    """Serve the folder `site` until interrupted. Port 0 takes any free one. Raises StsbenchError where nothing is built."""
    if not (site / "index.html").is_file():
        raise StsbenchError(f"{site}/index.html is not there: run `stsbench leaderboard build` first")
    try:
        server = ThreadingHTTPServer((LOOPBACK, port), partial(_Quiet, directory=str(site)))
    except (OSError, OverflowError) as error:
        raise StsbenchError(f"cannot listen on port {port}: {error}; choose another with --port") from error
    with server:
        log(f"http://{LOOPBACK}:{server.server_address[1]}/  (ctrl-c ends it)")
        with suppress(KeyboardInterrupt):
            server.serve_forever()
