"""Where the board's code, and the files shipped with it, are."""

from __future__ import annotations

from pathlib import Path

from stsbench.errors import StsbenchError, UsageError

_HERE = Path(__file__).resolve().parents[1]
PUBLISHED = _HERE / "published"
REPRODUCTIONS = _HERE / "reproductions"
SHIPPED = _HERE  # the board of the repository, or, installed, what of it the package has
BUNDLE = _HERE / "web" / "bundle"  # made by `make web`, committed
EXPECTED = _HERE / "expected.yaml"


def find_board(named: Path | None) -> Path:
    """The board's folder: `named`, else ./leaderboard. Raises StsbenchError where it holds no board."""
    folder = named or Path("leaderboard")
    if not (folder / "measured").is_dir() and not (folder / "published").is_dir():
        raise StsbenchError(
            f"{folder} is not a board: it has neither measured/ nor published/; run this in a checkout, or name it: --board"
        )
    return folder


def writable_board(named: Path | None) -> Path:
    """The folder to add to, which need not hold a board yet where it is named. Raises UsageError where none is here."""
    folder = named or Path("leaderboard")
    if named is None and not folder.is_dir():
        raise UsageError(f"there is no folder {folder}: run this in a checkout, or name a board with --board")
    return folder
