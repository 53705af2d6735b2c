"""The command `stsbench leaderboard add`, which adds runs to an entry.

The module also holds the options that several of the board's commands share.
"""

from __future__ import annotations

import shlex
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import click

from stsbench.cli.messages import echo
from stsbench.errors import StsbenchWarning
from stsbench.wording import counted

BOARD = click.option("--board", type=click.Path(path_type=Path), help="The board's folder (default: ./leaderboard).")
RECORDS = click.option("--records", metavar="DIR|hf:OWNER/DATASET", help="Where the board's runs lie, if not in it: the "
                       "files that its records.sha256 lists (`stsbench leaderboard index`).")
ENTRY = (
    click.argument("runs", nargs=-1, required=True, metavar="RUN...",
                   type=click.Path(path_type=Path, exists=True)),
    BOARD,
    click.option("--entry", "slug", required=True, metavar="NAME",
                 help="Which entry they belong to: small letters and dashes."),
    click.option("--prompt-of", metavar="ENTRY", help="They are of that entry's encoder, behind prompts: its row shows "
                 "them. Takes the folder of a study of prompts."),
    click.option("--method", help="What the row is called."),
    click.option("--backbone", help="The network underneath, such as BERT-base."),
    click.option("--setting", type=click.Choice(["unsup", "semi", "sup", "unknown"]), help="Which labels trained it."),
    click.option("--flag", multiple=True, type=click.Choice(["nli", "sts", "transductive", "dev-selected"]),
                 help="nli, sts: trained on such labels; transductive: on test texts; dev-selected: on STS-B dev."),
    click.option("--best-of", type=click.IntRange(2), help="It is the best of so many seeds: shown as such, never ranked."),
    click.option("--recipe", default="", help="The recipe it was trained by."),
    click.option("--paper", help="The paper's address."),
    click.option("--card", default="", help="The address of the method's card."),
    click.option("--note", default="", help="What else a reader should know."),
)


def entry_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return the command with RUN..., --board and the options that describe an entry."""
    for option in reversed(ENTRY):
        command = option(command)
    return command


def as_command() -> AbstractContextManager[object]:
    """Return a context in which StsbenchWarning is silent: a command prints the warnings of a result itself."""
    return warnings.catch_warnings(action="ignore", category=StsbenchWarning)


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
    from stsbench.leaderboard.records.entries import DESCRIPTION, read_entry

    from .api import add as add_runs

    with as_command():
        added = add_runs(runs, slug, board=board, records=records, **stated)
    for run, count in Counter(path.parent for path in added.written).items():
        echo(f"{run}: {counted(count, 'record')}")
    if added.present:
        echo(f"already there: {counted(len(added.present), 'record')}", err=True)
    for line in added.warnings:
        echo(f"note: {line}", err=True)
    about = (board or Path("leaderboard")) / "measured" / slug / DESCRIPTION
    entry, named = read_entry(about), {*stated, "flags"}
    if more := [field.alias or name for name, field in type(entry).model_fields.items()
                if name not in named | entry.model_fields_set]:
        echo(f"{about} may say what no option does: {', '.join(more)} (docs/how-to/leaderboard.md)", err=True)
    private = board is not None and (board / SETTINGS).is_file()
    of_board = f" --board {shlex.quote(str(board))}" if board is not None else ""
    echo(f"{'' if private else 'commit them; '}`stsbench leaderboard build{of_board}` makes the page with them", err=True)
