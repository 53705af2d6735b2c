"""`stsbench compare`: two encoders against each other, with intervals and tests of the differences."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stsbench.cli.output.messages import echo

if TYPE_CHECKING:
    from stsbench.evaluation.comparability import Comparison, ComparisonTable
    from stsbench.evaluation.records import Record

RESAMPLES = 5000  # stsbench.evaluation.compare's, which --help would have to import


@click.command("compare")
@click.argument("a")
@click.argument("b")
@click.option("--protocol", metavar="P", help="sts, sts:wmean, transfer:exact, a paper's preset, ..., several with commas; "
              "default: each that both runs have, by its first aggregation and metric.")
@click.option("--metric", metavar="M", help="A metric other than each protocol's first, such as pearson or mse.")
@click.option("--resamples", metavar="N", type=click.IntRange(40, 1_000_000), default=RESAMPLES, show_default=True,
              help="Bootstrap samples of the items.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the bootstrap.")
@click.option("--by-seed/--no-by-seed", default=None, help="Of several seeds: compare A's run of a seed with B's run of it. "
              "Default: where their records prove that they share more than the number (weights, or backbone and data).")
@click.option("--json", "json_target", metavar="FILE|-", help="Write the tables as JSON; - makes stdout pure JSON.")
def compare_(
    a: str, b: str, protocol: str | None, metric: str | None, resamples: int, seed: int, by_seed: bool | None,
    json_target: str | None,
) -> int:
    """Compare A with B, task by task and on average: run folders, or folders of several seeds' runs.

    A folder that contains runs stands for these: an entry of the leaderboard, or runs/x-42,runs/x-43 with commas. Only
    scores of the same data, measured in the same way, are compared; the others are listed with the reason. p is from a
    paired bootstrap over the items, and of several seeds also over these, corrected for the number of tasks (Holm).
    """
    from stsbench.cli.output.differences import limits, print_table, print_who
    from stsbench.cli.output.grid import console_of, print_text
    from stsbench.cli.output.json_file import write_json
    from stsbench.errors import StsbenchError
    from stsbench.evaluation.compare import compare
    from stsbench.evaluation.run_file import run_folders

    names = [word.strip() for word in protocol.split(",") if word.strip()] if protocol is not None else None
    if names == []:
        raise click.UsageError("--protocol is empty")
    if not (a.strip() and b.strip()):
        raise click.UsageError("A and B are folders: one of them is empty")
    runs = run_folders(a), run_folders(b)
    comparison = compare(*runs, protocols=names, metric=metric, resamples=resamples, seed=seed, by_seed=by_seed)
    _print_left_out(comparison)
    if not comparison.tables:
        what = f" of protocol {protocol}" if protocol else ""
        raise StsbenchError(f"{a} and {b} have no measurement{what} in common: nothing to compare")
    if json_target:
        write_json(_as_json(comparison, runs, resamples, seed), json_target)
    if json_target != "-":
        print_who(comparison, *runs, sys.stdout)
        for table in comparison.tables:
            print_table(table, sys.stdout)
        print_text(console_of(), limits(comparison))
    return 3 if comparison.failures else 0


def _print_left_out(comparison: Comparison) -> None:
    """One line on stderr for each reason and protocol."""
    for word, items in (("failed", comparison.failures), ("not compared", comparison.left_out)):
        tasks: dict[tuple[str, str], list[str]] = {}
        for label, task, reason in items:
            tasks.setdefault((label, reason), []).append(task)
        for (label, reason), names in tasks.items():
            echo(f"{word}: {label} {', '.join(dict.fromkeys(names))}: {reason}", err=True)


def _as_json(comparison: Comparison, runs: tuple[list[Path], list[Path]], resamples: int, seed: int) -> dict[str, Any]:
    from stsbench.cli.output.differences import limits

    def side(paths: list[Path], record: Record) -> dict[str, Any]:
        one = {"encoder": record.encoder.spec["name"], "fingerprint": record.encoder.fingerprint}
        return {"run": str(paths[0]), **one} if len(paths) == 1 else {"runs": list(map(str, paths)), **one}

    def reasons(items: list[tuple[str, str, str]]) -> list[dict[str, str]]:
        return [dict(zip(("protocol", "task", "reason"), item, strict=True)) for item in items]

    return {
        "a": side(runs[0], comparison.runs[0]), "b": side(runs[1], comparison.runs[1]),
        "seeds": list(comparison.seeds), "by_seed": comparison.by_seed, "resamples": resamples, "seed": seed,
        "tables": [_table_json(table) for table in comparison.tables],
        "not_compared": reasons(comparison.left_out), "failed": reasons(comparison.failures), "limits": limits(comparison),
    }


def _table_json(table: ComparisonTable) -> dict[str, Any]:
    from stsbench.cli.output.differences import sentence, unevenness

    def row(item: Any) -> dict[str, Any]:
        numbers = asdict(item.difference)
        return {
            "task": item.task, "subset": item.subset, "n": item.n, "a": item.a, "b": item.b,
            "difference": numbers["value"], "low": numbers["low"], "high": numbers["high"], "p": numbers["p"],
            "p_holm": item.corrected,
        }

    setting = {**asdict(table.setting), "settings": json.loads(table.setting.settings)}
    setting = {"view" if key == "text_version" else key: value for key, value in setting.items()}  # the format's key
    return {
        **setting, "rows": [row(item) for item in table.rows], "average": row(table.average) if table.average else None,
        "no_test": table.no_test or None, "unknown_data": list(table.unknown), "sentence": sentence(table),
        "uneven_seeds": unevenness(table) or None,
    }
