"""`stsbench.plot`: draw a plot of runs by its name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stsbench.errors import StsbenchError, UsageError
from stsbench.files import as_path
from stsbench.registry import did_you_mean, names, resolve

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from stsbench.display.tabular import InFolder

_GROUP = "stsbench.pictures"  # entry points: functions from the folders of runs to a figure
_TOKENS = "token-loss"  # draws one run, with texts and a method
PICTURES = tuple(names(_GROUP))


def plot(
    picture: str, runs: str | Path | InFolder | Sequence[str | Path | InFolder], *, output: str | Path | None = None,
    texts: str | Sequence[str] = (), method: str | None = None,
) -> Figure:
    """Draw a picture of one run or several, as `stsbench plot` does.

    picture: "similarity", "geometry" or "spectrum", of runs of `evaluate` under the protocol geometry (similarity also sts);
    "training" or "divergence", of runs of `train`; "token-loss", of one run of `train` on `texts`; one of an extension.
    runs: a folder, what `evaluate` returned, or a list of such. output: a file, .png or .svg, or both without a suffix.
    method: FILE.py:CLASS, for token-loss of a run of such a method.

    Returns a matplotlib Figure, which a notebook shows; a file is written only where `output` says so. Raises StsbenchError,
    one line: no such picture, or a run that has nothing to draw.

    >>> import stsbench
    >>> run = stsbench.evaluate("lexical:token-set", sample=True, tasks="STS-B", resamples=0)
    >>> stsbench.plot("similarity", run, output="similarity.png")
    <Figure size 330x250 with 1 Axes>
    """
    from stsbench.data.own.texts import checked_texts
    from stsbench.display.style import save, style
    from stsbench.evaluation.run_file import run_folder

    listed = [runs] if isinstance(runs, str) or not isinstance(runs, Sequence) else runs
    folders = [run_folder(run) for run in listed]
    target = None if output is None else as_path(output, "output")
    words = [texts] if isinstance(texts, str) else list(checked_texts(texts, "text"))
    with style():
        figure = draw_figure(picture, folders, words, method, target)
        if target is not None:
            save(figure, target)
    return figure


def draw_figure(picture: str, runs: Sequence[Path], texts: Sequence[str], method: str | None, output: Path | None) -> Figure:
    """Return the figure, in the current style. Raises UsageError for runs or texts that the picture cannot show, and
    StsbenchError for a wrong suffix of `output`, before anything is drawn, and as the picture's `figure` does."""
    from stsbench.display.style import targets

    _check(picture, runs, texts, method)
    if output is not None:
        targets(output)
    figure = resolve(_GROUP, picture)
    drawing: Figure = figure(runs[0], texts, method) if picture == _TOKENS else figure(runs)
    return drawing


def _check(picture: str, runs: Sequence[Path], texts: Sequence[str], method: str | None) -> None:
    if picture not in PICTURES:
        raise StsbenchError(f"plot: no picture '{picture}'{did_you_mean(str(picture), PICTURES)}")
    if not runs:
        raise UsageError(f"{picture} needs a run")
    if picture != _TOKENS:
        for option, value in (("--text", texts), ("--method", method)):
            if value:
                raise UsageError(f"{option} has no effect on {picture}: it is for {_TOKENS}")
        return
    if len(runs) > 1:
        raise UsageError(f"{_TOKENS} draws one run, not {len(runs)}")
    if not texts or not all(text.strip() for text in texts):
        raise UsageError(f"{_TOKENS} needs one text or several: --text 'Nine swans swim.' --text 'Swans swim.'")
