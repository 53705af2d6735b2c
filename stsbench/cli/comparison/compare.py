"""`stsbench compare`: two encoders against each other, with intervals and tests of the differences."""

from __future__ import annotations

import sys

import click

from stsbench.cli.comparison.shared import nothing_in_common, runs_of, two_sides
from stsbench.cli.output.messages import echo


@click.command("compare")
@two_sides
@click.option("--margin", metavar="X", type=float, help="Say, too, whether A and B are practically equal within X points "
              "(TOST), or X in the unit of a --metric that is not x 100.")
@click.option("--json", "json_target", metavar="FILE|-", help="Write the tables as JSON; - makes stdout pure JSON.")
@click.option("--report", "report_target", metavar="FILE|-", help="Write paragraphs and tables for a paper: LaTeX to "
              "FILE.tex, else Markdown; - makes stdout the report alone.")
def compare_(
    a: str, b: str, protocol: str | None, metric: str | None, resamples: int, seed: int, by_seed: bool | None,
    margin: float | None, json_target: str | None, report_target: str | None,
) -> int:
    """Compare A with B, task by task and on average: run folders, or folders of several seeds' runs.

    A folder that contains runs stands for these: an entry of the leaderboard, or runs/x-42,runs/x-43 with commas. Only
    scores of the same data, measured in the same way, are compared; the others are listed with the reason. p is from a
    paired bootstrap over the items, and of several seeds also over these, corrected for the number of tasks (Holm).
    """
    from stsbench.cli.output.differences import print_table, print_who
    from stsbench.cli.output.grid import console_of, print_text
    from stsbench.cli.output.json_file import write_json
    from stsbench.cli.output.report import write_report
    from stsbench.comparison.compare import compare
    from stsbench.comparison.wording import limits
    from stsbench.errors import StsbenchError

    if json_target == report_target == "-":
        raise click.UsageError("--json - and --report - both write to stdout: name a file for one")
    runs, names = runs_of(a, b, protocol)
    comparison = compare(*runs, protocols=names, metric=metric, resamples=resamples, seed=seed, by_seed=by_seed,
                         margin=margin)
    for line in comparison.left_out_lines():
        echo(line, err=True)
    if not comparison.tables:
        raise StsbenchError(nothing_in_common(a, b, protocol))
    if json_target:
        write_json(comparison.as_json(), json_target)
    if report_target:
        write_report(comparison, report_target)
    if "-" not in (json_target, report_target):
        print_who(comparison, *runs, sys.stdout)
        for table in comparison.tables:
            print_table(table, sys.stdout)
        print_text(console_of(), limits(comparison.seeds))
    return 3 if comparison.failures else 0
