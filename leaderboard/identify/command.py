"""`stsbench identify`: which protocol reproduces a paper's numbers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stsbench.cli.options import options_of
from stsbench.cli.output.json_file import write_json
from stsbench.cli.output.messages import echo, log
from stsbench.errors import StsbenchError
from stsbench.options import SetOptions

_WIDE = 120  # columns of a terminal that has room for a setting in words and its figures

if TYPE_CHECKING:
    from .outcome import Identification


@click.command(short_help="Find the protocol that reproduces published numbers.")
@click.argument("numbers", nargs=-1, required=True)
@click.option("--model", "models", required=True, multiple=True, help="A run folder, a folder of run folders, or anything "
              "that `stsbench eval --model` takes, which is measured first; repeatable.")
@click.option("--pooler", "poolers", multiple=True, help="For models that are measured first, as in `stsbench eval`; "
              "repeatable: each is a setting of its own.")
@options_of(SetOptions)
@click.option("--top", type=click.IntRange(min=1), default=10, show_default=True, help="Rows of the table.")
@click.option("--json", "json_target", metavar="FILE|-", help="Write every setting as JSON; - makes stdout pure JSON.")
def identify(
    numbers: tuple[str, ...], models: tuple[str, ...], poolers: tuple[str, ...], top: int, json_target: str | None,
    **where: Any,
) -> int:
    """Find the setting that reproduces published NUMBERS with a model's observations.

    NUMBERS: seven scores in the order STS12 STS13 STS14 STS15 STS16 STS-B SICK-R (or the first five), with commas, spaces,
    tabs, & or | between them and - for one that is not printed; or STS12=72.37,STS-B=82.03; or the id of a published row,
    such as simcse:B.2:2; or a .json, .csv or .yaml file. What holds & or | needs quotes; NUMBERS that begin with - stand
    last, after --.
    """
    from .api import identified
    from .report import NOTHING, first, unchecked

    outcome = identified(" ".join(numbers), models, poolers, SetOptions(**where), Path("runs"), log=log,
                         command=["stsbench", *sys.argv[1:]])
    if not outcome.candidates:
        for line in first(unchecked(outcome.result, outcome.several), top):
            echo(line, err=True)
        raise StsbenchError(NOTHING)
    if json_target:
        write_json(outcome.as_json(), json_target)
    if json_target != "-":
        _print(outcome, top)
    return 0


def _print(outcome: Identification, top: int) -> None:
    from stsbench.cli.output.grid import Column, console_of, print_columns, print_text

    from .report import UNIT, first, further, header, heading, lines, unchecked

    console = console_of(markup=False)
    result, about = outcome.result, outcome.several
    for text in heading(result, outcome.observations):
        print_text(console, text)
    print_text(console, UNIT)
    words = ("setting", "papers' presets")
    cells = zip(header(result), zip(*lines(result, about, top), strict=True), strict=True)
    columns = [Column(name, column, name in words, 50) for name, column in cells]
    if console.width >= _WIDE:
        print_columns(console, columns, repeated=2)
    else:  # what the places are first, then their figures
        print_columns(console, [*columns[:2], columns[-1]])
        print_columns(console, [columns[0], *columns[2:-1]])
    if (rest := len(result.matches) - top) > 0:
        print_text(console, further(rest, len(result.matches)))
    for text in first(unchecked(result, about), top):
        print_text(console, text)
    print_text(console, outcome.sentence)
