"""The command `stsbench leaderboard serve`, which shows the built page."""

from __future__ import annotations

from pathlib import Path

import click

from stsbench.cli.messages import echo
from stsbench.leaderboard.entry_commands import BOARD


@click.command(short_help="Show the built page to this machine.")
@click.argument("folder", required=False, metavar="[DIR]", type=click.Path(path_type=Path))
@BOARD
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0: any free one.")
def serve(folder: Path | None, board: Path | None, port: int) -> None:
    """Show the built page at http://127.0.0.1:PORT/, to this machine only.

    DIR: a board, or a folder that `build --output` wrote.
    """
    from .server import Server, built_page

    server = Server(built_page(folder or board), port)
    echo(f"{server.url}  (ctrl-c ends it)", err=True)
    server.run()
