"""What the commands of this folder ask in the same words: two sides, and the bootstrap."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

RESAMPLES = 5000  # stsbench.comparison.shared's, which --help would have to import

_BOOTSTRAP = (
    click.option("--resamples", metavar="N", type=click.IntRange(40, 1_000_000), default=RESAMPLES, show_default=True,
                 help="Bootstrap samples of the items."),
    click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the bootstrap."),
)
_TWO_SIDES = (
    click.argument("a"),
    click.argument("b"),
    click.option("--protocol", metavar="P", help="sts, sts:wmean, transfer:exact, a paper's preset, ..., several with "
                 "commas; default: each that both runs have, by its first aggregation and metric."),
    click.option("--metric", metavar="M", help="A metric other than each protocol's first, such as pearson or mse."),
    *_BOOTSTRAP,
    click.option("--by-seed/--no-by-seed", default=None, help="Of several seeds: compare A's run of a seed with B's run of "
                 "it. Default: where their records prove that they share more than the number (weights, or backbone and "
                 "data)."),
)


def two_sides(command: Callable[..., Any]) -> Callable[..., Any]:
    """The arguments A and B, what of them is compared, and the bootstrap."""
    return _asked(command, _TWO_SIDES)


def bootstrap(command: Callable[..., Any]) -> Callable[..., Any]:
    """--resamples and --seed."""
    return _asked(command, _BOOTSTRAP)


def _asked(command: Callable[..., Any], options: Sequence[Callable[..., Any]]) -> Callable[..., Any]:
    for option in reversed(options):
        command = option(command)
    return command


def runs_of(a: str, b: str, protocol: str | None) -> tuple[tuple[list[Path], list[Path]], list[str] | None]:
    """The run folders of A and of B, and the protocols' names; None for all. UsageError, one line: one of them is empty."""
    from stsbench.evaluation.run_file import run_folders

    names = [word.strip() for word in protocol.split(",") if word.strip()] if protocol is not None else None
    if names == []:
        raise click.UsageError("--protocol is empty")
    if not (a.strip() and b.strip()):
        raise click.UsageError("A and B are folders: one of them is empty")
    return (run_folders(a), run_folders(b)), names


def nothing_in_common(a: str, b: str, protocol: str | None) -> str:
    """One line."""
    return f"{a} and {b} have no measurement{f' of protocol {protocol}' if protocol else ''} in common: nothing to compare"
