"""`stsbench plot`: pictures of runs, drawn from their stored observations, their training logs or what they trained."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import click

from stsbench.cli.output.messages import echo

_PICTURES = {
    "similarity": "stsbench.plots.similarity", "geometry": "stsbench.plots.plane", "spectrum": "stsbench.plots.spectrum",
    "training": "stsbench.plots.training", "divergence": "stsbench.plots.divergence",
    "sweep": "stsbench.plots.sweep",
}


_TOKENS = "token-loss"  # of a trained method: the only one that loads a model


@click.command()
@click.argument("picture", metavar="PICTURE", type=click.Choice([*_PICTURES, _TOKENS]))
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

    sweep: development scores of the trials of one `stsbench sweep` over the values that were searched; a grid of two keys
    as a map.

    token-loss: the loss of each token of a --text under the method trained by one run of `stsbench train` (sarcse:
    reconstruction), and that loss times the token's weight. The other pictures need neither model nor data.
    """
    from stsbench.plots.style import save, style, targets

    _check(picture, runs, texts, method)
    output = output or Path(picture)
    targets(output)  # a wrong suffix is an error before anything is drawn
    with style():
        for path in save(_figure(picture, runs, texts, method), output):
            echo(str(path))
    return 0


def _check(picture: str, runs: tuple[Path, ...], texts: tuple[str, ...], method: str | None) -> None:
    """Raises a UsageError where runs and texts are not what the picture is of."""
    if picture != _TOKENS:
        for option, value in (("--text", texts), ("--method", method)):
            if value:
                raise click.UsageError(f"{option} has no effect on {picture}: it is for {_TOKENS}")
        return
    if len(runs) > 1:
        raise click.UsageError(f"{_TOKENS} draws one run, not {len(runs)}")
    if not texts or not all(text.strip() for text in texts):
        raise click.UsageError(f"{_TOKENS} needs one text or several: --text 'Nine swans swim.' --text 'Swans swim.'")


def _figure(picture: str, runs: tuple[Path, ...], texts: tuple[str, ...], method: str | None) -> Any:
    if picture == _TOKENS:
        from stsbench.plots.token_loss import figure

        return figure(runs[0], texts, method)
    return import_module(_PICTURES[picture]).figure(runs)
