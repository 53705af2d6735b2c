"""`stsbench import`: write other tools' results as runs."""

from __future__ import annotations

from pathlib import Path

import click

from stsbench.cli.messages import echo
from stsbench.cli.options import Command


@click.command("import", cls=Command, short_help="Compare and decide | Read another tool's scores of single items as runs.")
@click.argument("results", metavar="FILE|FOLDER")
@click.option("--output", required=True, type=click.Path(path_type=Path), help="Run folder, of several models of one each.")
@click.option("--columns", default="", metavar="id=NAME,...", help="Of a table: id, score (the higher the "
              "better), gold (what the score predicts), cluster (items that belong together), task, model.")
@click.option("--gold", type=click.Path(path_type=Path), help="Relevance judgements of a ranking, or a table with the "
              "column score for predictions.")
def import_(results: str, output: Path, columns: str, gold: Path | None) -> None:
    """Write runs of another tool's results, which `compare`, `choose` and `power` take as they take others.

    A table with a row an item (CSV, TSV, JSON lines, Parquet), samples of lm-evaluation-harness, logs of inspect_ai, results
    and predictions of mteb, runs of TREC and ranx. Where nothing has to be said of a file, `stsbench compare FILE FILE` does
    without this.
    """
    from stsbench.extensions.results.api import import_results

    for run in import_results(results, output, columns=columns, gold=gold):
        echo(f"run: {run}")
