"""`stsbench new`: a method, a protocol or a kind of encoder of one's own, to begin with."""

from __future__ import annotations

from pathlib import Path

import click

from stsbench.cli.output.messages import echo
from stsbench.extensions.templates.write import KINDS


@click.command("new", short_help="Tools | Write a small method, protocol or encoder of your own, with its test.")
@click.argument("kind", type=click.Choice([*KINDS]))
@click.argument("name")
@click.option("--output", type=click.Path(path_type=Path), help="A new folder; default NAME.")
def new(kind: str, name: str, output: Path | None) -> None:
    """Write a folder with a small class that works, its test, and what makes it known by NAME once it is installed.

    NAME: words of letters and digits, joined by hyphens, such as my-loss.
    """
    from stsbench.extensions.templates.write import write_template

    for line in write_template(kind, name, output).lines():
        echo(line)
