"""`stsbench plot`: pictures of runs, drawn from their stored observations or their training logs."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import click

_PICTURES = {
    "similarity": "stsbench.plots.similarity", "geometry": "stsbench.plots.plane", "spectrum": "stsbench.plots.spectrum",
    "training": "stsbench.plots.training",
}  # fmt: skip


@click.command()
@click.argument("picture", type=click.Choice(list(_PICTURES)))
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--output", metavar="FILE.png|.svg", type=click.Path(path_type=Path),
              help="Where to write; without suffix both .png and .svg. Default: the picture's name, here.")  # fmt: skip
def plot(picture: str, runs: tuple[Path, ...], output: Path | None) -> int:
    """Draw a picture of one RUN folder or several, without model and data.

    similarity: densities of STS-B's cosines by human rating. geometry: uniformity and alignment of several runs.
    spectrum: singular values of the sentence matrix. These need a run of `--protocol geometry`; similarity also takes sts.

    training: loss, dev score, learning rate and gradient norm of runs of `stsbench train`, finished or not; a folder with
    seeds is drawn as their mean with a band of one standard deviation.
    """
    from stsbench.plots.style import save, style, targets

    output = output or Path(picture)
    targets(output)  # a wrong suffix is said before anything is drawn
    with style():
        for path in save(import_module(_PICTURES[picture]).figure(runs), output):
            click.echo(str(path))
    return 0
