"""`leaderboard serve`: the built page on this machine's own address, for this machine only."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Self

from stsbench.errors import StsbenchError

LOOPBACK = "127.0.0.1"


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-store")  # a new build shows on reload
        super().end_headers()


class Server:
    """The folder `site` at an address of this machine. Port 0 takes any free one. Raises StsbenchError where nothing is
    built, and for a port that is taken."""

    def __init__(self, site: Path, port: int) -> None:
        if not (site / "index.html").is_file():
            raise StsbenchError(f"{site}/index.html is not there: run `stsbench leaderboard build` first")
        try:
            self._server = ThreadingHTTPServer((LOOPBACK, port), partial(_Quiet, directory=str(site)))
        except (OSError, OverflowError) as error:
            raise StsbenchError(f"cannot listen on port {port}: {error}; choose another with --port") from error
        self._thread = Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        """The page's address."""
        return f"http://{LOOPBACK}:{self._server.server_address[1]}/"

    def run(self) -> None:
        """Serve until interrupted."""
        with self._server, suppress(KeyboardInterrupt):
            self._server.serve_forever()

    def start(self) -> Self:
        """Serve beside what else this process does, until `close`."""
        self._thread.start()
        return self

    def close(self) -> None:
        """End what `start` began, and free the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Server at {self.url}>"

    def _repr_html_(self) -> str:
        return f'<a href="{self.url}">{self.url}</a>'
