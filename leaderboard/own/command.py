"""The command `stsbench board`: which of several models is best on a user's own data."""

from __future__ import annotations

from pathlib import Path

import click

from stsbench.cli.messages import echo, log
from stsbench.cli.options import Command, Option


@click.command(
    "board", cls=Command, also=("rank", "arena"),
    short_help="Measure | Measure several models on data of your own: the best, what is as good, and a page.",
)
@click.argument("models", metavar="MODEL...", nargs=-1, required=True)
@click.option("--data", required=True, cls=Option, metavar="FILE|FOLDER|KIND:FILE", renamed={"--protocol": "--data"},
              help="Your own data; KIND is sts, pairs, triplets, transfer or retrieval, by the columns where it is clear.")
@click.option("--output", type=click.Path(path_type=Path), default=Path("board"), show_default=True,
              help="The board's folder. Models that it holds are not measured again.")
@click.option("--title", help="Heading of the page; default: the data's name.")
@click.option("--columns", metavar="NAME=COLUMN,...", help="The columns of the file, as for `stsbench eval`.")
@click.option("--cost/--no-cost", default=True, show_default=True, help="Measure speed and memory, too.")
@click.option("--offline", is_flag=True, help="Download nothing.")
def board(
    models: tuple[str, ...], data: str, output: Path, title: str | None, columns: str | None, cost: bool, offline: bool,
) -> None:
    """Measure each MODEL on your own data: a table with the best one, those that cannot be told from it and the cheapest of
    them, and a page that opens from the folder.

    \b
    stsbench board minilm lexical:tfidf --data pairs.csv
    """
    from stsbench.cli.messages import print_document

    from .models import measure_models

    made = measure_models(models, data, output=output, title=title, columns=columns, cost=cost, offline=offline, log=log)
    print_document(made.document())
    echo(f"page: {made.page}")
