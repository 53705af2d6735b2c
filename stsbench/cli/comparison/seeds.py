"""`stsbench seeds`: how many more seeds would settle a comparison."""

from __future__ import annotations

import sys

import click

from stsbench.cli.comparison.shared import nothing_in_common, runs_of, two_sides
from stsbench.cli.output.messages import echo


@click.command("seeds")
@two_sides
@click.option("--power", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.8, show_default=True,
              help="How often a difference as large as the observed one is to be significant.")
@click.option("--json", "json_target", metavar="FILE|-", help="Write the table as JSON; - makes stdout pure JSON.")
def seeds_(
    a: str, b: str, protocol: str | None, metric: str | None, power: float, resamples: int, seed: int, by_seed: bool | None,
    json_target: str | None,
) -> int:
    """Say how many more seeds of A and of B would settle their comparison, task by task and on average.

    A and B are given as to `compare`; one of them has several runs. The noise of the items stays, however many seeds there
    are: where no number of seeds suffices, it says how many items would.
    """
    from stsbench.cli.output.differences import print_who
    from stsbench.cli.output.grid import Column, console_of, print_columns, print_text
    from stsbench.cli.output.json_file import write_json
    from stsbench.comparison.seeds_needed import seeds_needed
    from stsbench.errors import StsbenchError

    runs, names = runs_of(a, b, protocol)
    made = seeds_needed(*runs, protocols=names, metric=metric, resamples=resamples, seed=seed, by_seed=by_seed, power=power)
    for line in made.left_out_lines():
        echo(line, err=True)
    if not made.rows:
        raise StsbenchError(nothing_in_common(a, b, protocol))
    if json_target:
        write_json(made.as_json(), json_target)
    if json_target != "-":
        console = console_of(sys.stdout)
        print_who(made.comparison, *runs, sys.stdout)
        header, *rows = made.lines()
        cells = zip(*rows, strict=True)
        print_columns(console, [Column(name, column, left=number < 2) for number, (name, column) in
                                enumerate(zip(header, cells, strict=True))])
        for line in made.sentences():
            print_text(console, line)
    return 3 if made.comparison.failures else 0
