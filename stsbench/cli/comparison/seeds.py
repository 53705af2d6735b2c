"""`stsbench seeds`: how many more seeds would settle a comparison."""

from __future__ import annotations

import sys

import click

from stsbench.cli.output.messages import echo

RESAMPLES = 5000  # stsbench.comparison.shared's, which --help would have to import


@click.command("seeds")
@click.argument("a")
@click.argument("b")
@click.option("--protocol", metavar="P", help="sts, sts:wmean, transfer:exact, a paper's preset, ..., several with commas; "
              "default: each that both runs have, by its first aggregation and metric.")
@click.option("--metric", metavar="M", help="A metric other than each protocol's first, such as pearson or mse.")
@click.option("--power", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.8, show_default=True,
              help="How often a difference as large as the observed one is to be significant.")
@click.option("--resamples", metavar="N", type=click.IntRange(40, 1_000_000), default=RESAMPLES, show_default=True,
              help="Bootstrap samples of the items.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the bootstrap.")
@click.option("--by-seed/--no-by-seed", default=None, help="Compare A's run of a seed with B's run of it. Default: where "
              "their records prove that they share more than the number (weights, or backbone and data).")
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
    from stsbench.evaluation.run_file import run_folders

    names = [word.strip() for word in protocol.split(",") if word.strip()] if protocol is not None else None
    if names == []:
        raise click.UsageError("--protocol is empty")
    if not (a.strip() and b.strip()):
        raise click.UsageError("A and B are folders: one of them is empty")
    runs = run_folders(a), run_folders(b)
    made = seeds_needed(*runs, protocols=names, metric=metric, resamples=resamples, seed=seed, by_seed=by_seed, power=power)
    for line in made.left_out_lines():
        echo(line, err=True)
    if not made.rows:
        what = f" of protocol {protocol}" if protocol else ""
        raise StsbenchError(f"{a} and {b} have no measurement{what} in common: nothing to compare")
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
