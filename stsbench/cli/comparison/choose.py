"""`stsbench choose`: score beside cost of several runs, and the cheapest of those that do not differ."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from stsbench.cli.comparison.shared import bootstrap
from stsbench.cli.output.messages import echo

COSTS = "sentences/s, tokens/s, latency, cpu, first, memory, cuda-memory, parameters or bytes"  # stsbench.comparison.costs'


@click.command("choose")
@click.argument("runs", nargs=-1, required=True, metavar="RUN RUN...")
@click.option("--protocol", metavar="P", help="sts, sts:wmean, transfer:exact, a paper's preset, ...; default: the first "
              "that all runs share.")
@click.option("--task", metavar="T", help="One task, or Avg; default: the protocol's average, or the only task.")
@click.option("--metric", metavar="M", help="A metric other than the protocol's first, such as pearson or mse.")
@click.option("--by", metavar="COST", help=f"{COSTS}. Default: sentences/s where all runs have it of one machine, else "
              "bytes.")
@bootstrap
@click.option("--plot", "picture", metavar="FILE", type=click.Path(path_type=Path),
              help="Draw score against cost: .png or .svg, or both without a suffix.")
@click.option("--json", "json_target", metavar="FILE|-", help="Write all as JSON; - makes stdout pure JSON.")
def choose_(
    runs: tuple[str, ...], protocol: str | None, task: str | None, metric: str | None, by: str | None, resamples: int,
    seed: int, picture: Path | None, json_target: str | None,
) -> int:
    """Choose among encoders: a run folder each, or a folder of several seeds' runs.

    A table with score, interval and costs; which no other beats in both; which scores do not differ significantly, by a
    joint test of all pairs; and the cheapest of the best. Costs are those that `stsbench eval --cost` recorded.
    """
    from stsbench.cli.output.grid import Column, console_of, print_columns, print_text
    from stsbench.cli.output.json_file import write_json
    from stsbench.comparison.choose import choose
    from stsbench.display.style import save, targets

    if len(runs) < 2:
        raise click.UsageError("choose needs two runs or more")
    if protocol is not None and not protocol.strip():
        raise click.UsageError("--protocol is empty")
    if picture is not None:
        targets(picture)  # a wrong suffix is found before anything is computed
    made = choose(runs, protocol=protocol, task=task, metric=metric, by=by, resamples=resamples, seed=seed)
    for line in made.left_out_lines():
        echo(line, err=True)
    if picture is not None:
        for path in save(made.plot(), picture):
            echo(f"picture: {path}", err=True)
    if json_target:
        write_json(made.as_json(), json_target)
    if json_target != "-":
        console = console_of(sys.stdout)
        header, *rows = made.lines()
        print_text(console, made.title)
        cells = zip(*rows, strict=True)
        print_columns(console, [Column(name, column, left=number in (0, 3)) for number, (name, column) in
                                enumerate(zip(header, cells, strict=True))])
        for line in made.sentences():
            print_text(console, line)
    return 3 if made.failures else 0
