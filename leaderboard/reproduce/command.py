"""The command `stsbench reproduce`, which prints a paper's table, the measurements here, and each row's command."""

from __future__ import annotations

from pathlib import Path

import click

from stsbench.cli.messages import print_result
from stsbench.registry import names, resolve

STUDIES = "stsbench.reproduce_studies"  # entry points: functions that take the path of the authors' result files, or None


@click.command(
    "reproduce", short_help="Board and papers | "
    "Print a paper's table, what was measured of it here, and each row's command.",
)
@click.argument("table", required=False, metavar="[PAPER[:TABLE[:ROW]]]")
@click.option("--runs", type=click.Path(path_type=Path, exists=True, file_okay=False), help="Where runs of `stsbench train` "
              "and `stsbench eval` are looked for, in all folders below (default: ./runs, where there is one).")
@click.option("--board", type=click.Path(path_type=Path), help="The board whose measured entries count (default: "
              "./leaderboard, where there is one).")
@click.option("--data-dir", type=click.Path(path_type=Path), help="Data in SentEval's layout; the commands name it, too.")
@click.option("--results", type=click.Path(path_type=Path, exists=True), help="For a study "
              f"({', '.join(names(STUDIES)) or 'none is installed'}): its result files, a clone of its authors' repository.")
@click.option("--format", "form", type=click.Choice(["table", "latex", "markdown", "csv"]), default="table",
              show_default=True, help="latex, markdown: tables to paste; csv: a line each figure.")
@click.option("--json", "json_target", metavar="FILE|-", help="Write the rows as JSON; - makes stdout pure JSON.")
def reproduce(
    table: str | None, runs: Path | None, board: Path | None, data_dir: Path | None, results: Path | None, form: str,
    json_target: str | None,
) -> None:
    """Print what a paper's table holds, what was measured of it here, and how each row is run.

    PAPER:TABLE is a table, as simcse:5; PAPER lists a paper's tables; without it the papers are listed. A row counts as
    reproduced only by its very recipe or command, under the table's protocol and metric, on the catalog's data.

    A study by its name, with --results, has its figures and claims recomputed from its authors' result files. No model is
    run.
    """
    from .api import papers
    from .api import reproduce as reproduce_table

    if table in names(STUDIES):
        made = resolve(STUDIES, table)(results)
        print_result(made, form, json_target=json_target)
        return
    if results is not None:
        raise click.UsageError(f"--results goes with {' or '.join(names(STUDIES)) or 'a study, and none is installed'}")
    if table is None or ":" not in table:
        if json_target or form != "table":
            raise click.UsageError("--json and --format go with a table, PAPER:TABLE")
        print_result(papers(table))
        return
    print_result(reproduce_table(table, runs=runs, board=board, data_dir=data_dir), form, json_target=json_target)
