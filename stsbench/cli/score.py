"""`stsbench score`: every score of a run again, from its observations."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--json", "json_target", metavar="FILE|-", help="Write the rows as JSON; - makes stdout pure JSON.")
@click.option("--format", "form", type=click.Choice(["table", "latex", "markdown", "csv"]), default="table",
              show_default=True, help="How scores are printed.")
def score(run: Path, json_target: str | None, form: str) -> int:
    """Recompute every score of RUN, a folder written by `stsbench eval`, from its stored observations."""
    from stsbench.cli.output.json_file import write_json
    from stsbench.cli.output.report import print_failures, print_report
    from stsbench.evaluation.rescore import score_again

    result = score_again(run)
    if json_target:
        write_json([row.model_dump() for row in result.rows], json_target)
    if json_target != "-":
        print_report(result, form)
    print_failures(result)
    return 3 if result.failures else 0
