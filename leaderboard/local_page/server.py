"""`leaderboard serve`: the built page on this machine's own address, for this machine only."""

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
    """Answers what was asked of this address by its own name: a page of another host, whose name an attacker lets resolve to
    this machine, would read a private board otherwise."""

    timeout = 30  # seconds that a connection may be silent

    def log_message(self, format: str, *args: object) -> None:
        pass

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-store")  # a new build shows on reload
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        super().end_headers()

    def send_head(self) -> BytesIO | BinaryIO | None:
        """Return the file that GET and HEAD ask for, or None after an error was sent."""
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
        if of_page and self.headers.get("Sec-Fetch-Mode") != "navigate":  # a link to the page may be followed
            return HTTPStatus.FORBIDDEN
        try:
            path = Path(self.translate_path(self.path)).resolve()
            return None if path.is_relative_to(Path(self.directory).resolve()) else HTTPStatus.NOT_FOUND  # by a link
        except (OSError, RuntimeError, ValueError):  # a name too long, links in a circle, NUL
            return HTTPStatus.NOT_FOUND


class _Listener(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Nothing: whoever asks may go away in the middle of an answer."""


def built_page(folder: str | Path | None) -> Path:
    """Return the folder of a built page: `folder` itself, or that of the board which it is. Raises StsbenchError where it
    is neither."""
    return Path(folder) if folder is not None and (Path(folder) / "index.html").is_file() else find_board(folder) / SITE


class Server:
    """The folder `site` at an address of this machine. Port 0 takes any free one. Raises StsbenchError where nothing is
    built, and for a port that is taken."""

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


def serve(board: str | Path | None = None, *, port: int = 8000) -> Server:
    """Show the built page at http://127.0.0.1:PORT/, to this machine only, until `close()` or the end of a `with` block.

    board: a folder that `build` wrote into will do. port: 0 takes any free one. Raises StsbenchError where nothing is
    built, and for a port that is taken.

    >>> from pathlib import Path
    >>> from stsbench import leaderboard
    >>> Path("board/measured").mkdir(parents=True)
    >>> leaderboard.serve("board")
    Traceback (most recent call last):
    stsbench.errors.StsbenchError: board/site/index.html is not there: run `stsbench leaderboard build` first
    """
    return Server(built_page(board), port).start()
