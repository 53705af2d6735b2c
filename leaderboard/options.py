"""Options that several of the board's commands share."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import click

from stsbench.errors import StsbenchWarning

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
    click.option("--setting", type=click.Choice(["unsup", "semi", "sup"]), help="Which labels it was trained with."),
    click.option("--flag", multiple=True, type=click.Choice(["nli", "sts", "transductive", "dev-selected"]),
                 help="nli, sts: trained on such labels; transductive: on test texts; dev-selected: on STS-B dev."),
    click.option("--best-of", type=click.IntRange(2), help="It is the best of so many seeds: shown as such, never ranked."),
    click.option("--recipe", default="", help="The recipe it was trained by."),
    click.option("--paper", help="The paper's address."),
    click.option("--card", default="", help="The address of the method's card."),
    click.option("--note", default="", help="What else a reader should know."),
)


def entry_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """RUN..., --board and what describes an entry."""
    for option in reversed(ENTRY):
        command = option(command)
    return command


def as_command() -> AbstractContextManager[object]:
    """Return the context in which a command calls a function of the board: it prints itself what the function warns of."""
    return warnings.catch_warnings(action="ignore", category=StsbenchWarning)
