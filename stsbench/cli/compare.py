"""`stsbench compare`: two runs against each other, with intervals and tests of the differences."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from stsbench.evaluation.compare import Comparison, ComparisonTable
    from stsbench.evaluation.records import Record

RESAMPLES = 5000  # stsbench.evaluation.compare's, which --help would have to import


@click.command("compare")
@click.argument("a", type=click.Path(path_type=Path))
@click.argument("b", type=click.Path(path_type=Path))
@click.option("--protocol", metavar="P", help="sts, sts:wmean, transfer:exact, a paper's preset, ..., several with commas; "
              "default: each that both runs have, by its first aggregation and metric.")
@click.option("--metric", metavar="M", help="A metric other than each protocol's first, such as pearson or mse.")
@click.option("--resamples", metavar="N", type=click.IntRange(40, 1_000_000), default=RESAMPLES, show_default=True,
              help="Bootstrap samples of the items.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the bootstrap.")
@click.option("--json", "json_target", metavar="FILE|-", help="Write the tables as JSON; - makes stdout pure JSON.")
def compare_(
    a: Path, b: Path, protocol: str | None, metric: str | None, resamples: int, seed: int, json_target: str | None
) -> int:
    """Compare run folder A with run folder B, task by task and on average. A folder that contains one run stands for it.

    Only scores of the same data, measured in the same way, are compared; the others are listed with the reason. p is from a
    paired bootstrap over the items, corrected for the number of tasks (Holm).
    """
    from stsbench.cli.output.differences import LIMITS, print_table, print_who
    from stsbench.errors import StsbenchError
    from stsbench.evaluation.compare import compare
    from stsbench.files import atomic_write

    names = [word.strip() for word in protocol.split(",") if word.strip()] if protocol is not None else None
    if names == []:
        raise click.UsageError("--protocol is empty")
    a, b = _run_of(a), _run_of(b)
    comparison = compare(a, b, protocols=names, metric=metric, resamples=resamples, seed=seed)
    _print_left_out(comparison)
    if not comparison.tables:
        what = f" of protocol {protocol}" if protocol else ""
        raise StsbenchError(f"{a} and {b} have no measurement{what} in common: nothing to compare")
    if json_target:
        text = json.dumps(_as_json(comparison, a, b, resamples, seed), indent=1) + "\n"
        if json_target == "-":
            click.echo(text, nl=False)
        else:
            with atomic_write(Path(json_target)) as stream:
                stream.write(text)
    if json_target != "-":
        print_who(comparison, a, b, sys.stdout)
        for table in comparison.tables:
            print_table(table, sys.stdout)
        click.echo(LIMITS)
    return 3 if comparison.failures else 0


def _run_of(folder: Path) -> Path:
    """The folder, or the one run in it, as in an entry of the leaderboard. Raises StsbenchError where there are several."""
    from stsbench.errors import StsbenchError

    if not folder.is_dir() or any(folder.glob("*.json")):
        return folder
    inside = sorted({path.parent for path in folder.glob("*/*.json")})
    if len(inside) > 1:
        raise StsbenchError(f"{folder} contains several runs: name one, such as {inside[0]}")
    return inside[0] if inside else folder


def _print_left_out(comparison: Comparison) -> None:
    """One line on stderr for each reason and protocol."""
    for word, items in (("failed", comparison.failures), ("not compared", comparison.left_out)):
        tasks: dict[tuple[str, str], list[str]] = {}
        for label, task, reason in items:
            tasks.setdefault((label, reason), []).append(task)
        for (label, reason), names in tasks.items():
            click.echo(f"{word}: {label} {', '.join(dict.fromkeys(names))}: {reason}", err=True)


def _as_json(comparison: Comparison, a: Path, b: Path, resamples: int, seed: int) -> dict[str, Any]:
    from stsbench.cli.output.differences import LIMITS

    def run(path: Path, record: Record) -> dict[str, Any]:
        return {"run": str(path), "encoder": record.encoder.spec["name"], "fingerprint": record.encoder.fingerprint}

    def reasons(items: list[tuple[str, str, str]]) -> list[dict[str, str]]:
        return [dict(zip(("protocol", "task", "reason"), item, strict=True)) for item in items]

    return {
        "a": run(a, comparison.runs[0]), "b": run(b, comparison.runs[1]), "resamples": resamples, "seed": seed,
        "tables": [_table_json(table) for table in comparison.tables],
        "not_compared": reasons(comparison.left_out), "failed": reasons(comparison.failures), "limits": LIMITS,
    }  # fmt: skip


def _table_json(table: ComparisonTable) -> dict[str, Any]:
    from stsbench.cli.output.differences import sentence

    def row(item: Any) -> dict[str, Any]:
        numbers = asdict(item.difference)
        return {
            "task": item.task, "subset": item.subset, "n": item.n, "a": item.a, "b": item.b,
            "difference": numbers["value"], "low": numbers["low"], "high": numbers["high"], "p": numbers["p"],
            "p_holm": item.corrected,
        }  # fmt: skip

    setting = {**asdict(table.setting), "settings": json.loads(table.setting.settings)}
    setting = {"view" if key == "text_version" else key: value for key, value in setting.items()}  # the format's key
    return {
        **setting, "rows": [row(item) for item in table.rows], "average": row(table.average) if table.average else None,
        "no_test": table.no_test or None, "unknown_data": list(table.unknown), "sentence": sentence(table),
    }  # fmt: skip
