"""The commands `stsbench leaderboard submit` and `placement`: where entries would rank, and how to publish them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from stsbench.cli.messages import echo
from stsbench.leaderboard.entry_commands import BOARD, RECORDS, as_command, entry_options


@click.command(short_help="Show what an entry would add, and how to publish it.")
@entry_options
@click.option("--open", "commit", is_flag=True,
              help="Commit the files on a new branch, entry-NAME; the working tree stays as it is.")
def submit(runs: tuple[Path, ...], board: Path | None, slug: str, commit: bool, **stated: Any) -> None:
    """Show what RUN folders would add to the board, where the entry would rank, and how to publish it.

    The options are those of `leaderboard add`, and so are the checks. Nothing is written without --open, and nothing is ever
    pushed: the commands for that are printed.
    """
    from stsbench.leaderboard.records.paths import find_board

    from .api import submit as submit_runs
    from .submission import as_arguments, next_steps

    with as_command():
        made = submit_runs(runs, slug, board=board, open=commit, **stated)
    for line in made.lines():
        echo(line)
    for line in made.warnings:
        echo(f"note: {line}", err=True)
    echo("next:")
    for step in next_steps(find_board(board), made, as_arguments(runs, board, slug, stated)):  # in the order of the words
        echo(f"  {step}")


@click.command(short_help="Say where new or changed entries would rank.")
@BOARD
@RECORDS
@click.option("--since", metavar="REVISION", required=True, help="A git revision, such as origin/main.")
def placement(board: Path | None, records: str | None, since: str) -> None:
    """Say, in Markdown, where entries would rank that are new or changed since a git revision, committed or not, how their
    descriptions differ, and which other files change."""
    from .api import placement as placement_of

    echo(str(placement_of(since, board=board, records=records)), nl=False)
