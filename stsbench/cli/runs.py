"""Commands that take runs: `stsbench compare` and `stsbench score`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from stsbench.cli.options import Command, Option

RESAMPLES = 5000  # as in stsbench.comparison.shared, repeated so that --help need not import it
_BOOTSTRAP = (
    click.option("--resamples", cls=Option, metavar="N", type=click.IntRange(40, 1_000_000), default=RESAMPLES,
                 show_default=True, help="Bootstrap samples of the items.",
                 renamed=dict.fromkeys(("--bootstrap", "--n-boot", "--n-bootstrap"), "--resamples")),
    click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the bootstrap."),
)
_TWO_SIDES = (
    click.argument("a"),
    click.argument("b"),
    click.option("--protocol", cls=Option, renamed=dict.fromkeys(("--data", "--model"), "two run folders, of stsbench eval"),
                 metavar="P,...", help="sts, sts:wmean, transfer:exact, a paper's preset, ..., several with "
                 "commas; default: each that both runs have, by its first aggregation and metric."),
    click.option("--metric", metavar="M", help="A metric other than each protocol's first, such as pearson or mse."),
    *_BOOTSTRAP,
    click.option("--by-seed/--no-by-seed", default=None, help="Of several seeds: compare A's run of a seed with B's run of "
                 "it. Default: where their records prove that they share more than the number (weights, or backbone and "
                 "data)."),
)


def two_sides(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the arguments A and B, the options of what is compared, and those of the bootstrap to `command`."""
    return _bind(command, _TWO_SIDES)


def bootstrap(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --resamples and --seed to `command`."""
    return _bind(command, _BOOTSTRAP)


def _bind(command: Callable[..., Any], options: Sequence[Callable[..., Any]]) -> Callable[..., Any]:
    for option in reversed(options):
        command = option(command)
    return command


@click.command("compare", cls=Command, also=("report", "significance"))
@two_sides
@click.option("--margin", metavar="X", type=float, help="Say, too, whether A and B are practically equal within X points "
              "(TOST), or X in the unit of a --metric that is not x 100.")
@click.option("--json", "json_target", metavar="FILE|-", help="Write the tables as JSON; - makes stdout pure JSON.")
@click.option("--report", "report_target", cls=Option, metavar="FILE|-",
              renamed=dict.fromkeys(("--format", "--latex"), "--report FILE.tex"),
              help="Write paragraphs and tables for a paper: LaTeX to "
              "FILE.tex, else Markdown; - makes stdout the report alone.")
def compare_(
    a: str, b: str, protocol: str | None, metric: str | None, resamples: int, seed: int, by_seed: bool | None,
    margin: float | None, json_target: str | None, report_target: str | None,
) -> int:
    """Compare A with B, task by task and on average: run folders, or folders of several seeds' runs.

    A folder that contains runs stands for these: an entry of the leaderboard, or runs/x-42,runs/x-43 with commas. Only
    scores of the same data, measured in the same way, are compared; the others are listed with the reason. p is from a
    paired bootstrap over the items, and of several seeds also over these, corrected for the number of tasks (Holm).
    """
    from stsbench.cli.messages import print_omissions, print_result
    from stsbench.comparison.compare import compare
    from stsbench.errors import StsbenchError

    if json_target == report_target == "-":
        raise click.UsageError("--json - and --report - both write to stdout: name a file for one")
    runs, names = find_runs(a, b, protocol)
    comparison = compare(*runs, protocols=names, metric=metric, resamples=resamples, seed=seed, by_seed=by_seed,
                         margin=margin)
    print_omissions(comparison)
    if not comparison.tables:
        raise StsbenchError(nothing_in_common(a, b, protocol))
    print_result(comparison, json_target=json_target, report_target=report_target, above=comparison.heading(folders=True))
    return 3 if comparison.failures else 0


def find_runs(a: str, b: str, protocol: str | None) -> tuple[tuple[list[Path], list[Path]], list[str] | None]:
    """Return the run folders of A and B, and the names of the protocols, None for all. Raises click.UsageError, one line,
    where A, B or `protocol` is empty."""
    from stsbench.evaluation.protocol import protocol_name
    from stsbench.evaluation.run_file import run_folders

    names = [protocol_name(word.strip()) for word in protocol.split(",") if word.strip()] if protocol is not None else None
    if names == []:
        raise click.UsageError("--protocol is empty")
    if not (a.strip() and b.strip()):
        raise click.UsageError("A and B are folders: one of them is empty")
    return (run_folders(a), run_folders(b)), names


def nothing_in_common(a: str, b: str, protocol: str | None) -> str:
    """Return the line that says that no measurement can be compared."""
    return f"{a} and {b} have no measurement{f' of protocol {protocol}' if protocol else ''} in common: nothing to compare"


@click.command(cls=Command, also=("report",))
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--json", "json_target", metavar="FILE|-", help="Write the rows as JSON; - makes stdout pure JSON.")
@click.option("--format", "form", type=click.Choice(["table", "latex", "markdown", "csv"]), default="table",
              show_default=True, help="How scores are printed.")
@click.option("--report", "report_target", metavar="FILE|-", help="Write paragraphs and tables for a paper: LaTeX to "
              "FILE.tex, else Markdown; - makes stdout the report alone.")
@click.option("--protocol", metavar="FILE.py:CLASS", help="The protocol of your own that RUN was measured by.")
def score(run: Path, json_target: str | None, form: str, report_target: str | None, protocol: str | None) -> int:
    """Recompute every score of RUN, a folder written by `stsbench eval`, from its stored observations."""
    from stsbench.cli.messages import print_omissions, print_result
    from stsbench.evaluation.protocol import protocol_name
    from stsbench.evaluation.rescore import score_again

    if json_target == report_target == "-":
        raise click.UsageError("--json - and --report - both write to stdout: name a file for one")
    if report_target == "-" and form != "table":
        raise click.UsageError(f"--report - writes the report alone: leave --format {form} out")
    if protocol is not None:
        protocol_name(protocol)
    result = score_again(run)
    print_result(result, form, json_target=json_target, report_target=report_target)
    print_omissions(result)
    return 3 if result.failures else 0
