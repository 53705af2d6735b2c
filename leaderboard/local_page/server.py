"""A web server for the built page (`leaderboard serve`), which only this machine can reach."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from threading import Thread
from typing import BinaryIO, Self, cast

from stsbench.errors import StsbenchError
from stsbench.leaderboard.board_files import SITE
from stsbench.leaderboard.records.paths import find_board

LOOPBACK = "127.0.0.1"


class _Handler(SimpleHTTPRequestHandler):
    """A request handler that refuses requests for other host names. Otherwise a page of an attacker's host, whose name
    resolves to this machine (DNS rebinding), could read a private board."""

    timeout = 30  # seconds that a connection may be silent

    def log_message(self, format: str, *args: object) -> None:
        pass

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-store")  # so that a reload shows a new build
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        super().end_headers()

    def send_head(self) -> BytesIO | BinaryIO | None:
        """Return the file that a GET or HEAD requests; None after an error was sent."""
        status = self._refusal()
        if status is None:
            return super().send_head()
        self.send_error(status)
        return None

    def _refusal(self) -> HTTPStatus | None:
        port = cast(ThreadingHTTPServer, self.server).server_port
        ends = (f":{port}", "") if port == 80 else (f":{port}",)
        names = {name + end for name in (LOOPBACK, "localhost", "[::1]") for end in ends}
        hosts, origins = (self.headers.get_all(name, []) for name in ("Host", "Origin"))
        if len(hosts) != 1 or hosts[0].strip().lower() not in names:
            return HTTPStatus.MISDIRECTED_REQUEST
        if any(origin.strip().lower().removeprefix("http://") not in names for origin in origins):
            return HTTPStatus.FORBIDDEN
        of_page = self.headers.get("Sec-Fetch-Site", "none") in ("cross-site", "same-site")
        if of_page and self.headers.get("Sec-Fetch-Mode") != "navigate":  # following a link to the page is allowed
            return HTTPStatus.FORBIDDEN
        try:
            path = Path(self.translate_path(self.path)).resolve()
            return None if path.is_relative_to(Path(self.directory).resolve()) else HTTPStatus.NOT_FOUND  # by a link
        except (OSError, RuntimeError, ValueError):  # a name too long, links in a circle, NUL
            return HTTPStatus.NOT_FOUND


class _Listener(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore errors: clients may disconnect in the middle of an answer."""


def built_page(folder: str | Path | None) -> Path:
    """Return the folder of a built page: `folder` itself, or site/ of the board `folder`. Raises StsbenchError where it is
    neither."""
    return Path(folder) if folder is not None and (Path(folder) / "index.html").is_file() else find_board(folder) / SITE


class Server:
    """A web server for the folder `site` on this machine. Port 0 takes any free port. Raises StsbenchError where nothing is
    built, and for a port in use."""

    def __init__(self, site: Path, port: int) -> None:
        if not (site / "index.html").is_file():
            raise StsbenchError(f"{site}/index.html is not there: run `stsbench leaderboard build` first")
        try:
            self._server = _Listener((LOOPBACK, port), partial(_Handler, directory=str(site)))
        except (OSError, OverflowError) as error:
            raise StsbenchError(f"cannot listen on port {port}: {error}; choose another with --port") from error
        self._thread = Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        """Return the page's address."""
        return f"http://{LOOPBACK}:{self._server.server_address[1]}/"

    def run(self) -> None:
        """Serve until interrupted."""
        with self._server, suppress(KeyboardInterrupt):
            self._server.serve_forever()

    def start(self) -> Self:
        """Serve in a background thread until `close`, and return the server."""
        self._thread.start()
        return self

    def close(self) -> None:
        """Stop the thread of `start`, and free the port."""
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


def serve(board: str | Path | None = None, *, port: int = 8000) -> Server:
    """Serve the built page at http://127.0.0.1:PORT/, for this machine only, until `close()` or the end of a `with` block.

    board: a board's folder, or one that `build` wrote to. port: 0 takes any free port. Returns the running server. Raises
    StsbenchError where nothing is built, and for a port in use.

    >>> from pathlib import Path
    >>> from stsbench import leaderboard
    >>> Path("board/measured").mkdir(parents=True)
    >>> leaderboard.serve("board")
    Traceback (most recent call last):
    stsbench.errors.StsbenchError: board/site/index.html is not there: run `stsbench leaderboard build` first
    """
    return Server(built_page(board), port).start()
