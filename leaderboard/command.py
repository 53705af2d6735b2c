"""The command group `stsbench leaderboard`, with its commands `init`, `build` and `index`."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from stsbench.cli.messages import echo
from stsbench.registry import names, resolve
from stsbench.wording import counted

from .entry_commands import BOARD, RECORDS, add, as_command

GROUP = "stsbench.board_commands"  # entry points of extensions' commands
FEW = 10  # a build lists the files of a folder by name up to this many, and gives the number of more


@click.group(short_help="Board and papers | Build the leaderboard, add records to it, serve it.")
def leaderboard() -> None:
    """Build the leaderboard from records and published rows, add records to it, look at it."""


for command in (add, *(resolve(GROUP, name) for name in names(GROUP))):
    leaderboard.add_command(command)


@leaderboard.command(short_help="Make a board of your own.")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--title", default="Leaderboard", show_default=True, help="The heading of its page.")
def init(folder: Path, title: str) -> None:
    """Make a board of your own in DIR, a new or empty folder: board.yaml, its settings, and measured/.

    It needs no git and no checkout. `stsbench leaderboard add RUN --board DIR` puts runs on it, `build --board DIR` writes
    DIR/site/index.html, which opens in any browser. A table for each of your files; the papers' rows are left out unless
    board.yaml asks for them.
    """
    from .api import init as make

    echo(str(make(folder, title=title)))
    board = shlex.quote(str(folder))
    echo(f"next: stsbench leaderboard add RUN --board {board} --entry NAME --method TEXT --backbone TEXT --setting "
         f"unsup|semi|sup, then stsbench leaderboard build --board {board}", err=True)


@leaderboard.command(short_help="Check every record, then write the page and the tables.")
@BOARD
@RECORDS
@click.option("--check", "only_check", is_flag=True,
              help="Write nothing; fail where the board is not valid, or the README's table is out of date.")
@click.option("--all", "every", is_flag=True, help="Score every run again, not only those that changed since a build.")
@click.option("--output", type=click.Path(path_type=Path), help="Write the page and the tables there; touch nothing else.")
def build(board: Path | None, records: str | None, only_check: bool, every: bool, output: Path | None) -> None:
    """Check every record against its observations, then write the page and the tables into the board's site/.

    What the README and docs/findings show of the board is written as well, and alone is kept in git. Needs no torch, no data
    and no network. The same records give the same bytes. A build that is interrupted leaves every file as it was or as it
    should be.
    """
    from .api import build as build_board

    with as_command():
        built = build_board(board, records=records, check=only_check, all=every, output=output)
    of_folder: dict[Path, list[str]] = {}
    for path in built.written:
        of_folder.setdefault(path.parent, []).append(str(path))
    for folder, paths in of_folder.items():
        for line in paths if len(paths) <= FEW else [f"{folder}: {counted(len(paths), 'file')}"]:
            echo(line)
    if not built.written:
        echo("up to date")
    for path in built.stale:
        echo(f"note: {path} is out of date; `stsbench leaderboard build` without --output writes it", err=True)


@leaderboard.command(short_help="List the runs that lie outside the board's folder.")
@BOARD
@click.option("--records", required=True, metavar="DIR|hf:OWNER/DATASET", help="A folder, or a data set of the Hugging Face "
              "Hub, that holds measured/ENTRY/RUN/run.parquet and observations/.")
def index(board: Path | None, records: str) -> None:
    """Write records.sha256 into the board: the digest of every run file in another place.

    Git then keeps which files count, and not the files. `build`, `placement` and `add` take the same --records; a file that
    differs from its digest is refused.
    """
    from stsbench.leaderboard.records.paths import INDEX, find_board

    from .api import index as write_index

    files = write_index(records, board=board).files
    echo(f"{find_board(board) / INDEX}: {counted(len(files), 'file')}")
