"""`stsbench data ceiling`: what a perfect model could score against labels on which annotators differ."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from stsbench.cli.messages import echo, write_json


@click.command("ceiling", short_help="Say how far annotators agree, and what a perfect model could score.")
@click.argument("file", metavar="FILE|SET", type=click.Path(path_type=Path))
@click.option("--labels", metavar="NAME,NAME", default="labels", show_default=True,
              help="A column for each annotator, or one whose cells hold a list.")
@click.option("--item", metavar="NAME", help="Long form, a row a label: the column that names the item.")
@click.option("--votes", metavar="NAME,NAME", help="Best-worst votes: the columns of the items that were shown.")
@click.option("--best", metavar="NAME", default="best", show_default=True, help="The column of the best one.")
@click.option("--worst", metavar="NAME", default="worst", show_default=True, help="The column of the worst one.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of random halves and resamples.")
@click.option("--json", "json_target", metavar="FILE|-", help="Write the figures as JSON; - makes stdout pure JSON.")
def ceiling(
    file: Path, labels: str, item: str | None, votes: str | None, best: str, worst: str, seed: int, json_target: str | None,
) -> None:
    """Say how far the annotators of FILE agree, and what a perfect model is expected to score against their mean.

    FILE is a table of raw labels: one against the others, half against half, Krippendorff's alpha. Of a SET whose authors
    published raw labels the figures are known without them.
    """
    from stsbench.cli.messages import print_document
    from stsbench.extensions.ceiling.labels import known_ceilings, measure_ceiling

    if (known := known_ceilings().get(str(file))) and not file.exists():
        for part, (expected, low, high) in known.items():
            echo(f"{part}: expected best of a perfect model: {expected:.1f} ({low:.1f} to {high:.1f})")
        return
    made = measure_ceiling(file, labels.split(","), item=item, votes=votes.split(",") if votes else (), best=best,
                           worst=worst, seed=seed)
    if json_target:
        write_json(asdict(made), json_target)
    if json_target != "-":
        print_document(made.document())
