"""The board's outputs: made from records and published rows alone, the same bytes each time, each file replaced whole."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from stsbench.errors import StsbenchError
from stsbench.files import atomic_write
from stsbench.leaderboard.page.picture import picture
from stsbench.leaderboard.page.sensitivity_page import sensitivity_page
from stsbench.leaderboard.page.site import site
from stsbench.leaderboard.page.tables import csv_table, latex_tables, markdown_tables, short_table
from stsbench.leaderboard.ranks.board import Board
from stsbench.leaderboard.ranks.gather import gather

SITE = "site"
SHARDS = ("tabs", "entries")  # the site's folders that hold a file for each tab and entry
BEGIN, END = "<!-- leaderboard: made by `stsbench leaderboard build` -->", "<!-- end of leaderboard -->"


def outputs(root: Path, output: Path | None = None) -> dict[Path, str]:
    """Path -> content of everything a board is shown as.

    Below `output` where it is given, else in the board's own site/ and tables/ and, for a board in a checkout whose
    README has a place for it, in docs/findings/ and the README as well.
    """
    board = gather(root)
    tables = {"leaderboard.md": markdown_tables(board), "leaderboard.csv": csv_table(board),
              "leaderboard.tex": latex_tables(board)}  # fmt: skip
    about = sensitivity_files(board)
    if output is not None:
        return {output / name: text for name, text in {**site(board), **tables, **about}.items()}
    made = {root / SITE / name: text for name, text in site(board).items()}
    made |= {root / "tables" / name: text for name, text in tables.items()}
    checkout = root.resolve().parent
    home = checkout.relative_to(Path.cwd()) if checkout.is_relative_to(Path.cwd()) else checkout
    readme = home / "README.md"
    # A second board in a checkout must not take the place of the first.
    inside = root.resolve().name == "leaderboard" and readme.is_file() and BEGIN in _text(readme)
    made |= {(home / "docs" / "findings" if inside else root / "tables") / name: text for name, text in about.items()}
    if inside:
        made[readme] = with_table(readme, short_table(board))
    return made


def sensitivity_files(board: Board) -> dict[str, str]:
    """The page on protocol sensitivity and its picture, for boards with something to compare."""
    if board.sensitivity is None:
        return {}
    return {"protocol-sensitivity.md": sensitivity_page(board),
            "protocol-sensitivity.svg": picture(board.sensitivity, standalone=True)}  # fmt: skip


def with_table(readme: Path, table: str) -> str:
    """The README's text with `table` between its two marks."""
    before, _, rest = _text(readme).partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise StsbenchError(f"{readme}: '{END}' is missing behind '{BEGIN}'")
    return f"{before}{BEGIN}\n\n{table.strip()}\n\n{END}{after}"


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise StsbenchError(f"{path} is not UTF-8: {error}") from error


def build(root: Path, output: Path | None = None) -> list[Path]:
    """Write all outputs, each whole or not at all; delete shards of tabs and entries that are gone. Returns what changed."""
    made = outputs(root, output)
    changed = [path for path, text in made.items() if not _same(path, text)]
    for path in changed:
        with atomic_write(path) as stream:
            stream.write(made[path])
    left = _left_over(made, root) if output is None else []
    for path in left:
        path.unlink()
    return [*changed, *left]


def check(root: Path, output: Path | None = None) -> None:
    """Raises StsbenchError naming the files that are not what the records and published rows give."""
    made = outputs(root, output)
    stale = [str(path) for path, text in made.items() if not _same(path, text)]
    stale += map(str, _left_over(made, root) if output is None else [])
    if stale:
        raise StsbenchError(f"out of date: {', '.join(stale)}; run `stsbench leaderboard build` and commit what it wrote")


def _left_over(made: Collection[Path], root: Path) -> list[Path]:
    """Shards in the board's own site/ that it no longer has."""
    shards = [path for name in SHARDS for path in sorted((root / SITE / name).glob("*.js*"))]
    return [path for path in shards if path not in made and path.suffix in (".js", ".json")]


def _same(path: Path, text: str) -> bool:
    return path.is_file() and path.read_bytes() == text.encode()
