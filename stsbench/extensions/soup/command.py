"""`stsbench soup`: several models as the mean of their weights."""

from __future__ import annotations

from pathlib import Path

import click

from stsbench.cli.messages import log
from stsbench.cli.options import Command


@click.command("soup", cls=Command, short_help="Train | Average the weights of several trainings to one model.",
               common=("output", "greedy"))
@click.argument("models", nargs=-1, required=True)
@click.option("--output", required=True, type=click.Path(path_type=Path), help="A new folder for the model.")
@click.option("--greedy", metavar="stsb/dev|FILE", help=(
    "From the best on, keep each model that leaves the mean's Spearman no lower on these development pairs: of STS-B, or a "
    "file of scored pairs. Default: all are averaged."))
@click.option("--data-dir", type=click.Path(path_type=Path), help="Where the development pairs lie.")
@click.option("--offline", is_flag=True, help="Never touch the network.")
def soup(models: tuple[str, ...], output: Path, greedy: str | None, data_dir: Path | None, offline: bool) -> None:
    """Write the mean of the weights of MODELS, which differ in nothing else: folders, Hub ids, runs of `train`.

    A run of several seeds stands for all of them. The mean costs no more than one of them to use, and is often better than
    each (Wortsman et al. 2022).
    """
    from stsbench.extensions.soup.average import average_models

    rows = average_models(models, output, greedy=greedy, offline=offline, data_dir=data_dir, log=log)
    log(f"{output}: the mean of {sum(inside for *_, inside in rows)} of {len(rows)} models")
