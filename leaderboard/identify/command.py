"""The command `stsbench identify`: which protocol reproduces a paper's numbers."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from stsbench.cli.messages import echo, log, print_result
from stsbench.cli.options import add_options
from stsbench.errors import StsbenchError
from stsbench.options import SetOptions


@click.command(short_help="Board and papers | Find the protocol that reproduces published numbers.")
@click.argument("numbers", nargs=-1, required=True)
@click.option("--model", "models", multiple=True, help="A run folder, a folder of run folders, or anything that "
              "`stsbench eval --model` takes, which is measured first; repeatable. Without one: where NUMBERS were printed.")
@click.option("--pooler", "poolers", multiple=True, help="For models that are measured first, as in `stsbench eval`; "
              "repeatable: each is a setting of its own.")
@add_options(SetOptions)
@click.option("--top", type=click.IntRange(min=1), default=10, show_default=True, help="Rows of the table.")
@click.option("--json", "json_target", metavar="FILE|-", help="Write every setting as JSON; - makes stdout pure JSON.")
def identify(
    numbers: tuple[str, ...], models: tuple[str, ...], poolers: tuple[str, ...], top: int, json_target: str | None,
    **where: Any,
) -> int:
    """Find the setting that reproduces published NUMBERS with a model's observations; without --model the papers' rows
    that hold them, and what they were measured under: stsbench identify 76.25.

    NUMBERS: seven scores in the order STS12 STS13 STS14 STS15 STS16 STS-B SICK-R (or the first five), with commas, spaces,
    tabs, & or | between them and - for one that is not printed; or STS12=72.37,STS-B=82.03; or the id of a published row,
    such as simcse:B.2:2; or a .json, .csv or .yaml file. What holds & or | needs quotes; NUMBERS that begin with - stand
    last, after --.
    """
    if not models:
        from .published import published_matches

        print_result(published_matches(" ".join(numbers)), json_target=json_target)
        return 0
    from .api import identified
    from .report import NOTHING, first, unchecked

    outcome = identified(" ".join(numbers), models, poolers, SetOptions(**where), Path("runs"), log=log,
                         command=["stsbench", *sys.argv[1:]])
    if not outcome.candidates:
        for line in first(unchecked(outcome.result, outcome.several), top):
            echo(line, err=True)
        raise StsbenchError(NOTHING)
    print_result(replace(outcome, top=top), json_target=json_target)
    return 0
