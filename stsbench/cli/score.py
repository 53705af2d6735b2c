"""`stsbench score`: every score of a run again, from its observations."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--json", "json_target", metavar="FILE|-", help="Write the rows as JSON; - makes stdout pure JSON.")
@click.option("--format", "form", type=click.Choice(["table", "latex", "markdown", "csv"]), default="table",
              show_default=True, help="How scores are printed.")
@click.option("--report", "report_target", metavar="FILE|-", help="Write paragraphs and tables for a paper: LaTeX to "
              "FILE.tex, else Markdown; - makes stdout the report alone.")
def score(run: Path, json_target: str | None, form: str, report_target: str | None) -> int:
    """Recompute every score of RUN, a folder written by `stsbench eval`, from its stored observations."""
    from stsbench.cli.output.report import print_omissions, print_result
    from stsbench.evaluation.rescore import score_again

    if json_target == report_target == "-":
        raise click.UsageError("--json - and --report - both write to stdout: name a file for one")
    if report_target == "-" and form != "table":
        raise click.UsageError(f"--report - writes the report alone: leave --format {form} out")
    result = score_again(run)
    print_result(result, form, json_target=json_target, report_target=report_target)
    print_omissions(result)
    return 3 if result.failures else 0
