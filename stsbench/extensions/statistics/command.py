"""`stsbench power`, `seeds`, `choose`, `calibrate` and `gate`: how sure a comparison is, and what to conclude from it."""

from __future__ import annotations

from pathlib import Path

import click
from click.shell_completion import CompletionItem

from stsbench.cli.messages import echo
from stsbench.cli.options import Command, Option
from stsbench.cli.runs import RESAMPLES, bootstrap, find_runs, nothing_in_common, two_sides

COSTS = "sentences/s, tokens/s, latency, cpu, first, memory, cuda-memory, parameters or bytes"  # AXES of choice.py


def _costs(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the costs that begin with `incomplete`, for shell completion."""
    from stsbench.extensions.statistics.choice import AXES

    return [CompletionItem(name) for name in AXES if name.startswith(incomplete)]


@click.command(
    "power", cls=Command, also=("sample-size",), short_help="Compare and decide | "
    "Say how large a difference N pairs can show, or how many pairs a difference needs.",
)
@click.option("--pairs", metavar="N", cls=Option, renamed={"--n": "--pairs"},
              type=click.IntRange(min=10), help="How large a difference can N pairs show? With --difference: how often?")
@click.option("--difference", metavar="D", cls=Option, renamed={"--effect": "--difference"},
              type=click.FloatRange(0, 200, min_open=True),
              help="How many pairs does a difference of D points need?")
@click.option("--run", "runs", metavar="RUN", multiple=True, help="Take the noise of this run; twice: that of the "
              "difference of two runs. Default: that of the leaderboard's rows.")
@click.option("--protocol", metavar="P", help="Of the runs: sts, pairs, a paper's preset, ...; default: all.")
@click.option("--metric", type=click.Choice(["spearman", "pearson"]), default="spearman", show_default=True)
@bootstrap
@click.option("--json", "json_target", metavar="FILE|-", help="Write all as JSON; - makes stdout pure JSON.")
def power_(
    pairs: int | None, difference: float | None, runs: tuple[str, ...], protocol: str | None, metric: str, resamples: int,
    seed: int, json_target: str | None,
) -> None:
    """Say how many pairs must be labelled, before anybody labels them.

    The difference between two encoders that N pairs detect in 80 % of experiments (5 % level), the pairs that a
    difference of D points needs, or, of both, how often N pairs detect it. It depends on how close the two encoders are.
    """
    from stsbench.cli.messages import print_result
    from stsbench.extensions.statistics.power import power

    if pairs is None and difference is None:
        raise click.UsageError("name --pairs N, --difference D, or both")
    if len(runs) > 2:
        raise click.UsageError("--run: name one run, or two")
    if (protocol is not None or resamples != RESAMPLES or seed) and not runs:
        raise click.UsageError("--protocol, --resamples and --seed have no effect without --run")
    made = power(pairs, difference, runs=runs, protocol=protocol, metric=metric, resamples=resamples, seed=seed)
    print_result(made, json_target=json_target)


@click.command(
    "seeds", short_help="Compare and decide | Say how many more seeds would settle a comparison, if any number can.",
)
@two_sides
@click.option("--power", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.8, show_default=True,
              help="How often a difference as large as the observed one is to be significant.")
@click.option("--json", "json_target", metavar="FILE|-", help="Write the table as JSON; - makes stdout pure JSON.")
def seeds_(
    a: str, b: str, protocol: str | None, metric: str | None, power: float, resamples: int, seed: int, by_seed: bool | None,
    json_target: str | None,
) -> int:
    """Say how many more seeds of A and of B would settle their comparison, task by task and on average.

    A and B are given as to `compare`; one of them has several runs. The noise of the items stays, however many seeds there
    are: where no number of seeds suffices, it says how many items would.
    """
    from stsbench.cli.messages import print_omissions, print_result
    from stsbench.errors import StsbenchError
    from stsbench.extensions.statistics.seeds_needed import seeds_needed

    runs, names = find_runs(a, b, protocol)
    made = seeds_needed(*runs, protocols=names, metric=metric, resamples=resamples, seed=seed, by_seed=by_seed, power=power)
    print_omissions(made)
    if not made.rows:
        raise StsbenchError(nothing_in_common(a, b, protocol))
    print_result(made, json_target=json_target, above=made.comparison.heading(folders=True))
    return 3 if made.comparison.failures else 0


@click.command(
    "choose", short_help="Compare and decide | "
    "Choose among runs: score beside cost, what does not differ, and the cheapest of the best.",
)
@click.argument("runs", nargs=-1, required=True, metavar="RUN RUN...")
@click.option("--protocol", metavar="P", help="sts, sts:wmean, transfer:exact, a paper's preset, ...; default: the first "
              "that all runs share.")
@click.option("--task", metavar="T", help="One task, or Avg; default: the protocol's average, or the only task.")
@click.option("--metric", metavar="M", help="A metric other than the protocol's first, such as pearson or mse.")
@click.option("--by", metavar="COST", shell_complete=_costs, help=f"{COSTS}. Default: sentences/s where all "
              "runs have it of one machine, else bytes.")
@bootstrap
@click.option("--plot", "picture", metavar="FILE", type=click.Path(path_type=Path),
              help="Draw score against cost: .png or .svg, or both without a suffix.")
@click.option("--json", "json_target", metavar="FILE|-", help="Write all as JSON; - makes stdout pure JSON.")
def choose_(
    runs: tuple[str, ...], protocol: str | None, task: str | None, metric: str | None, by: str | None, resamples: int,
    seed: int, picture: Path | None, json_target: str | None,
) -> int:
    """Choose among encoders: a run folder each, or a folder of several seeds' runs.

    A table with score, interval and costs; which no other beats in both; which scores do not differ significantly, by a
    joint test of all pairs; and the cheapest of the best. Costs are those that `stsbench eval --cost` recorded.
    """
    from stsbench.cli.messages import print_omissions, print_result
    from stsbench.display.style import save, targets
    from stsbench.extensions.statistics.choose import choose

    if len(runs) < 2:
        raise click.UsageError("choose needs two runs or more")
    if protocol is not None and not protocol.strip():
        raise click.UsageError("--protocol is empty")
    if picture is not None:
        targets(picture)  # a wrong suffix is an error before anything is computed
    made = choose(runs, protocol=protocol, task=task, metric=metric, by=by, resamples=resamples, seed=seed)
    print_omissions(made)
    if picture is not None:
        for path in save(made.plot(), picture):
            echo(f"picture: {path}", err=True)
    print_result(made, json_target=json_target)
    return 3 if made.failures else 0


@click.command(
    "calibrate", cls=Command, short_help="Compare and decide | "
    "Fit the probability of a match to a run's similarities; thresholds for a wanted precision.",
)
@click.argument("run", metavar="RUN")
@click.option("--task", metavar="T", help="The file's name, where the run has several.")
@click.option("--method", type=click.Choice(["isotonic", "logistic"]), default="isotonic", show_default=True,
              help="How the probability of a match follows from the similarity.")
@click.option("--precision", metavar="P", type=click.FloatRange(0, 1, min_open=True), multiple=True,
              default=(0.9, 0.95, 0.99), show_default=True, help="Wanted of the pairs above a threshold; repeatable.")
@click.option("--folds", type=click.IntRange(2, 100), default=5, show_default=True,
              help="Parts of the cross-validation that gives held-out probabilities.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the folds.")
@click.option("--output", metavar="FILE.json", type=click.Path(path_type=Path),
              help="Write curve and thresholds as JSON, for another program.")
@click.option("--plot", "picture", metavar="FILE", type=click.Path(path_type=Path),
              help="Draw reliability and the similarities of both kinds: .png or .svg, or both without a suffix.")
def calibrate_(
    run: str, task: str | None, method: str, precision: tuple[float, ...], folds: int, seed: int,
    output: Path | None, picture: Path | None,
) -> None:
    """Fit the probability that two texts match, by their similarity, and the threshold for a wanted precision.

    RUN is a run of `stsbench eval --protocol pairs:FILE`. The probability is fitted on its pairs, and its quality
    measured on pairs that were held out.
    """
    from stsbench.cli.messages import print_document
    from stsbench.display.style import save, targets
    from stsbench.display.table import Document
    from stsbench.extensions.statistics.calibrate import METHODS, calibrate

    if picture is not None:
        targets(picture)  # a wrong suffix is an error before anything is computed
    chosen = next(name for name in METHODS if name == method)
    made = calibrate(run, task=task, method=chosen, precision=precision, folds=folds, seed=seed)
    print_document(Document(above=made.lines()))
    if output is not None:
        echo(str(made.save(output)), err=True)
    if picture is not None:
        for path in save(made.plot(), picture):
            echo(f"picture: {path}", err=True)


@click.command("gate", cls=Command, short_help="Compare and decide | Fail where a run is worse than a baseline: for CI.")
@click.argument("run")
@click.option("--baseline", required=True, metavar="RUN", help="The run that it must not be worse than.")
@click.option("--margin", type=click.FloatRange(0, min_open=True), default=0.5, show_default=True, metavar="X",
              help="A loss that is shown to be smaller, in points, passes.")
@click.option("--protocol", metavar="P,...", help="sts, transfer:exact, ...; default: all that both have.")
@click.option("--metric", metavar="M", help="A metric other than each protocol's first.")
@bootstrap
@click.option("--summary", type=click.Path(path_type=Path), metavar="FILE", help="Append the table as Markdown, as to "
              "$GITHUB_STEP_SUMMARY.")
@click.option("--json", "json_target", metavar="FILE|-", help="Write the checks as JSON; - makes stdout pure JSON.")
def gate_(
    run: str, baseline: str, margin: float, protocol: str | None, metric: str | None, resamples: int, seed: int,
    summary: Path | None, json_target: str | None,
) -> int:
    """Fail where RUN is worse than its baseline, and not shown to be so by less than the margin.

    Looked at are the averages of the protocols that both runs have, or their tasks where there is no average. Noise alone
    fails in at most 2.5 % for each protocol. Exit codes: 0 passed, 3 failed, 1 where nothing can be compared, 2 wrong usage.
    """
    from stsbench.cli.messages import print_result
    from stsbench.extensions.statistics.gate import gate

    runs, names = find_runs(run, baseline, protocol)
    made = gate(*runs, margin=margin, protocol=names, metric=metric, resamples=resamples, seed=seed)
    print_result(made, json_target=json_target)
    if summary is not None:
        with summary.open("a", encoding="utf-8") as stream:
            stream.write(made.document().markdown() + "\n")
    return 0 if made.passed else 3
