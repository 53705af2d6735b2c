"""`stsbench score`: every score of a run again, from its observations."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--json", "json_target", metavar="FILE|-", help="Write the rows as JSON; - makes stdout pure JSON.")
def score(run: Path, json_target: str | None) -> int:
    """Recompute every score of RUN, a folder that `stsbench eval` wrote, from its stored observations."""
    from stsbench.cli.tables import emit_json, print_failures, print_scores
    from stsbench.evaluation import score_again

    result = score_again(run)
    if json_target:
        emit_json(result.rows, json_target)
    if json_target != "-":
        print_scores(result)
    print_failures(result)
    return 3 if result.failures else 0
