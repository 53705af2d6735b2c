"""`stsbench plot`: a picture of runs, as PNG or SVG."""

from __future__ import annotations

from pathlib import Path

import click

from stsbench.cli.messages import echo
from stsbench.extensions.plots.draw import PICTURES, draw_figure


@click.command(short_help="Compare and decide | Draw similarity, geometry, spectrum or training of runs, as PNG or SVG.")
@click.argument("picture", metavar="PICTURE", type=click.Choice(PICTURES))
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--output", metavar="FILE.png|.svg", type=click.Path(path_type=Path),
              help="Where to write; without a suffix, both .png and .svg. Default: the picture's name.")
@click.option("--text", "texts", multiple=True, metavar="TEXT",
              help="For token-loss: a text to draw; repeat for several, such as the two of a pair.")
@click.option("--method", metavar="FILE.py:CLASS", help="For token-loss of a run of such a method: its file is run.")
def plot(picture: str, runs: tuple[Path, ...], output: Path | None, texts: tuple[str, ...], method: str | None) -> int:
    """Draw a picture of one RUN folder or several.

    similarity: densities of STS-B's cosines by human rating. geometry: uniformity and alignment of several runs.
    spectrum: singular values of the sentence matrix. These need a run of `--protocol geometry`; similarity also takes sts.

    training: loss, dev score, learning rate and gradient norm of runs of `stsbench train`, finished or not; a folder with
    seeds is drawn as their mean with a band of one standard deviation.

    divergence: what DiffAug's authors choose the length of their first stage by: the distance between the two views,
    compared with that between dropout's views, the size of the prefix relative to the text, and the dev score. For runs
    of diffaug; seeds as a band.

    token-loss: the loss of each token of a --text under the method trained by one run of `stsbench train` (sarcse:
    reconstruction), and that loss times the token's weight. The other pictures need neither model nor data.
    """
    from stsbench.display.style import save, style

    output = output or Path(picture)
    with style():
        for path in save(draw_figure(picture, runs, texts, method, output), output):
            echo(str(path))
    return 0
