"""The files of a board's page and tables: made from records and published rows alone, with the same bytes each time."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from stsbench.errors import StsbenchError
from stsbench.files import atomic_write
from stsbench.leaderboard.page.site import check as check_board
from stsbench.leaderboard.page.site import site
from stsbench.leaderboard.page.tables import csv_table, latex_tables, markdown_tables, short_table
from stsbench.leaderboard.ranks.board import Board
from stsbench.leaderboard.ranks.gather import gather
from stsbench.leaderboard.ranks.plan import sections
from stsbench.wording import counted

SITE = "site"  # below the board's folder, ignored by git
SHARDS = ("tabs", "entries", "pairs")  # the site's folders that hold files for each table and entry
BEGIN, END = "<!-- leaderboard: made by `stsbench leaderboard build` -->", "<!-- end of leaderboard -->"
Content = str | bytes


@dataclass(frozen=True, repr=False)
class Built:
    """The result of a build. written: files changed or deleted; stale: files kept in git that it left out of date."""

    written: tuple[Path, ...]
    stale: tuple[Path, ...]

    def __repr__(self) -> str:
        return f"<Built: {counted(len(self.written), 'file')} written, {len(self.stale)} left out of date>"


def outputs(board: Board) -> dict[str, Content]:
    """Return path below the site's folder -> content, for every file of the page and the tables."""
    return {
        **site(board), "leaderboard.md": markdown_tables(board), "leaderboard.csv": csv_table(board),
        "leaderboard.tex": latex_tables(board),
    }


def tracked_files(root: Path, board: Board) -> dict[Path, Content]:
    """Return path -> content of the files that are made from the board but kept in git, because pages of the repository show
    them: the README with its table, and the files that extensions write below docs/.

    The mapping is empty unless the board lies in a checkout whose README has the table's marks, and is named leaderboard: a
    second board must not replace the first.
    """
    checkout = root.resolve().parent
    home = checkout.relative_to(Path.cwd()) if checkout.is_relative_to(Path.cwd()) else checkout
    readme = home / "README.md"
    if root.resolve().name != "leaderboard" or not readme.is_file() or BEGIN not in _text(readme):
        return {}
    about: dict[Path, Content] = {}
    for name, section in sections().items():
        about |= section.findings(board.sections.get(name), board, home / "docs")
    return {**about, readme: with_table(readme, short_table(board))}


def with_table(page: Path, table: str) -> str:
    """Return the text of a page with `table` between its two marks. Raises StsbenchError where a mark is missing."""
    before, _, rest = _text(page).partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise StsbenchError(f"{page}: '{BEGIN}' or '{END}' behind it is missing")
    return f"{before}{BEGIN}\n\n{table.strip()}\n\n{END}{after}"


def build(root: Path, output: Path | None = None, records: str | Path | None = None) -> Built:
    """Write the site below `output`, each file whole or not at all. Without `output`, write it below the board's site/,
    delete files there of tables and entries that no longer exist, and write the files that are kept in git, too.

    records: the folder of the board's runs, as in `records_folder`. Raises StsbenchError, before anything is written, where
    the board is not valid.
    """
    board = gather(root, records)
    folder = root / SITE if output is None else output
    made = below(folder, outputs(board))
    in_git = tracked_files(root, board)
    if output is None:
        made |= in_git
    written = write(made)
    left = _left_over(made, folder) if output is None else ()
    for path in left:
        path.unlink()
    return Built((*written, *left), () if output is None else _changed(in_git))


def below(folder: Path, files: Mapping[str, Content]) -> dict[Path, Content]:
    """Return `files` by their paths below `folder`."""
    return {folder / name: content for name, content in files.items()}


def write(contents: Mapping[Path, Content]) -> tuple[Path, ...]:
    """Write the files whose content changed, each whole or not at all, and return their paths."""
    written = _changed(contents)
    for path in written:
        with atomic_write(path, "wb") as stream:
            stream.write(_encoded(contents[path]))
    return written


def check(root: Path, records: str | Path | None = None) -> None:
    """Raise StsbenchError where the board is not valid, or a file kept in git differs from what a build would write."""
    board = gather(root, records)
    check_board(board)  # a board that the page cannot show is not valid, either
    if stale := _changed(tracked_files(root, board)):
        listed = ", ".join(map(str, stale))
        raise StsbenchError(f"out of date: {listed}; run `stsbench leaderboard build` and commit what it wrote")


def _left_over(files: Collection[Path], folder: Path) -> tuple[Path, ...]:
    """Return the files of tables and entries in the site's folder that the board no longer has."""
    names = (*SHARDS, *(name for section in sections().values() for name in section.folders))
    shards = [path for name in names for path in sorted((folder / name).glob("*.js*"))]
    return tuple(path for path in shards if path not in files and path.suffix in (".js", ".json"))


def _changed(contents: Mapping[Path, Content]) -> tuple[Path, ...]:
    return tuple(path for path, content in contents.items()
                 if not (path.is_file() and path.read_bytes() == _encoded(content)))


def _encoded(content: Content) -> bytes:
    return content if isinstance(content, bytes) else content.encode()


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise StsbenchError(f"{path} is not UTF-8: {error}") from error
