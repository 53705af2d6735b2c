"""The command `stsbench leaderboard import`, which puts other tools' results on a board."""

from __future__ import annotations

from typing import Any

import click

from stsbench.cli.messages import echo
from stsbench.cli.options import add_options
from stsbench.leaderboard.entry_commands import BOARD, as_command

from .api import ImportOptions


@click.group("import")
def import_() -> None:
    """Put other tools' results beside the published rows. They are not checked, and never ranked."""


@import_.command("mteb")
@click.argument("source", metavar="MODEL|FILE")
@BOARD
@add_options(ImportOptions)
def import_mteb(source: str, **stated: Any) -> None:
    """Import mteb's results of the STS tasks.

    FILE is a result file or a folder of them, as mteb's cache lays them out. A MODEL such as
    sentence-transformers/all-MiniLM-L6-v2 is looked up in mteb's public results repository.
    """
    from .api import import_mteb as import_results

    with as_command():
        imported = import_results(source, **stated)
    for path in imported.written:
        echo(str(path))
    for path in imported.present:
        echo(f"already there: {path}", err=True)
    for line in imported.notes:
        echo(f"note: {line}", err=True)
