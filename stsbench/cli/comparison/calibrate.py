"""`stsbench calibrate`: which similarity means a match."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from stsbench.cli.output.messages import echo


@click.command("calibrate")
@click.argument("run", metavar="RUN")
@click.option("--task", metavar="T", help="The file's name, where the run has several.")
@click.option("--method", type=click.Choice(["isotonic", "logistic"]), default="isotonic", show_default=True,
              help="How the probability of a match follows from the similarity.")
@click.option("--precision", metavar="P", type=click.FloatRange(0, 1, min_open=True), multiple=True,
              default=(0.9, 0.95, 0.99), show_default=True, help="Wanted of the pairs above a threshold; repeatable.")
@click.option("--folds", type=click.IntRange(2, 100), default=5, show_default=True, help="Of the held-out probabilities.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the folds.")
@click.option("--output", metavar="FILE.json", type=click.Path(path_type=Path),
              help="Write curve and thresholds as JSON, for another program.")
@click.option("--plot", "picture", metavar="FILE", type=click.Path(path_type=Path),
              help="Draw reliability and the similarities of both kinds: .png or .svg, or both without a suffix.")
def calibrate(
    run: str, task: str | None, method: str, precision: tuple[float, ...], folds: int, seed: int,
    output: Path | None, picture: Path | None,
) -> None:
    """The probability that two texts match, by their similarity, and the threshold for a wanted precision.

    RUN is a run of `stsbench eval --protocol pairs:FILE`. The probability is fitted on its pairs, and its quality
    measured on pairs that were held out.
    """
    from stsbench.cli.output.grid import console_of, print_text
    from stsbench.comparison.calibrate import calibrate as fit
    from stsbench.display.style import save, targets
    from stsbench.metrics.thresholds.calibration import METHODS

    if picture is not None:
        targets(picture)  # a wrong suffix is an error before anything is computed
    chosen = next(name for name in METHODS if name == method)
    made = fit(run, task=task, method=chosen, precision=precision, folds=folds, seed=seed)
    console = console_of(sys.stdout)
    for line in made.lines():
        print_text(console, line)
    if output is not None:
        echo(str(made.save(output)), err=True)
    if picture is not None:
        for path in save(made.plot(), picture):
            echo(f"picture: {path}", err=True)
