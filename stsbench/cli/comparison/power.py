"""`stsbench power`: how large a difference so many pairs can show, and how many pairs a difference needs."""

from __future__ import annotations

import sys

import click

from stsbench.cli.comparison.shared import RESAMPLES, bootstrap


@click.command("power")
@click.option("--pairs", metavar="N", type=click.IntRange(min=10), help="How large a difference can N pairs show?")
@click.option("--difference", metavar="D", type=click.FloatRange(0, 200, min_open=True),
              help="How many pairs does a difference of D points need?")
@click.option("--run", "runs", metavar="RUN", multiple=True, help="Take the noise of this run; twice: that of the "
              "difference of two runs. Default: that of the leaderboard's rows.")
@click.option("--protocol", metavar="P", help="Of the runs: sts, pairs, a paper's preset, ...; default: all.")
@click.option("--metric", type=click.Choice(["spearman", "pearson"]), default="spearman", show_default=True)
@bootstrap
@click.option("--json", "json_target", metavar="FILE|-", help="Write all as JSON; - makes stdout pure JSON.")
def power_(
    pairs: int | None, difference: float | None, runs: tuple[str, ...], protocol: str | None, metric: str, resamples: int,
    seed: int, json_target: str | None,
) -> None:
    """How many pairs must be labelled: before one labels.

    The difference between two encoders that N pairs detect in 80 % of experiments (5 % level), or the pairs that a
    difference of D points needs. It depends on how close the two encoders are.
    """
    from stsbench.cli.output.grid import Column, console_of, print_columns, print_text
    from stsbench.cli.output.json_file import write_json
    from stsbench.comparison.power import power

    if (pairs is None) == (difference is None):
        raise click.UsageError("name either --pairs N or --difference D")
    if len(runs) > 2:
        raise click.UsageError("--run: name one run, or two")
    if (protocol is not None or resamples != RESAMPLES or seed) and not runs:
        raise click.UsageError("--protocol, --resamples and --seed have no effect without --run")
    made = power(pairs, difference, runs=runs, protocol=protocol, metric=metric, resamples=resamples, seed=seed)
    if json_target:
        write_json(made.as_json(), json_target)
    if json_target != "-":
        console = console_of(sys.stdout)
        print_text(console, made.title)
        header, *rows = made.lines()
        print_columns(console, [Column(name, cells, left=number == 0) for number, (name, cells) in
                                enumerate(zip(header, zip(*rows, strict=True), strict=True))])
        for line in made.sentences():
            print_text(console, line)
