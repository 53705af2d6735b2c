"""`stsbench leaderboard add`, `submit`, `placement`: how something gets on the board, and where it would stand."""

from __future__ import annotations

import shlex
from collections import Counter
from pathlib import Path
from typing import Any

import click

from stsbench.cli.output.messages import echo
from stsbench.wording import counted

from .options import BOARD, RECORDS, as_command, entry_options


@click.command(short_help="Add checked records to an entry.")
@entry_options
@click.option("--records", metavar="DIR", type=click.Path(path_type=Path, file_okay=False),
              help="Write the runs there, and their digests into the board's records.sha256.")
def add(runs: tuple[Path, ...], board: Path | None, slug: str, records: Path | None, **stated: Any) -> None:
    """Add RUN folders to an entry, once the scores, data and provenance of all their records have been checked.

    A new entry needs --method, --backbone and --setting. Runs of several seeds of one method go into one entry. A record
    that was edited, or measured by code with uncommitted changes, is refused. Nothing is ever overwritten.
    """
    from stsbench.leaderboard.records.board_settings import SETTINGS

    from .api import add as add_runs

    with as_command():
        added = add_runs(runs, slug, board=board, records=records, **stated)
    for run, count in Counter(path.parent for path in added.written).items():
        echo(f"{run}: {counted(count, 'record')}")
    if added.present:
        echo(f"already there: {counted(len(added.present), 'record')}", err=True)
    for line in added.warnings:
        echo(f"note: {line}", err=True)
    private = board is not None and (board / SETTINGS).is_file()
    of_board = f" --board {shlex.quote(str(board))}" if board is not None else ""
    echo(f"{'' if private else 'commit them; '}`stsbench leaderboard build{of_board}` makes the page with them", err=True)


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
