"""`stsbench data overlap`: what a set or a training file shares with test sets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stsbench.cli.messages import echo, print_table, write_json
from stsbench.cli.options import add_options
from stsbench.errors import DataError
from stsbench.options import SetOptions

if TYPE_CHECKING:
    from stsbench.data.sets.sets import DataSet

_DEFAULT_OTHERS = "sts12/test,sts13/test,sts14/test,sts15/test,sts16/test,stsb/test"


@click.command(short_help="Count what a set or a training file shares with test sets.")
@click.argument("target", metavar="SET|FILE")
@click.option("--with", "others", metavar="ID,ID", help=f"Sets to compare, pairs:FILE and the like among them. Default: "
              f"{_DEFAULT_OTHERS}; of a file every test set that is there.")
@click.option("--near", type=click.FloatRange(0, 1), default=0.7, show_default=True,
              help="Of a file: the Jaccard of character 4-grams from which on two texts are near duplicates; 0: none.")
@add_options(SetOptions)
@click.option("--offline", is_flag=True, help="Never download.")
@click.option("--json", "json_to", metavar="FILE|-", help="Write the result as JSON to FILE, or to stdout.")
def overlap(
    target: str, others: str | None, near: float, data_dir: Path | None, sample: bool, offline: bool, json_to: str | None
) -> None:
    """Count the sentences of a set that also occur in other sets, ignoring case and punctuation.

    Of a training file (.txt, .csv, .tsv, .jsonl): the texts of test sets that it holds, as they stand, but for case and
    punctuation, and nearly, with the lines of some. Test sets of one's own are named as `stsbench eval` names them:
    sts:FILE, pairs:FILE, triplets:FILE, transfer:FILE, retrieval:FILE.
    """
    from stsbench.data.own.table import is_table

    SetOptions(data_dir=data_dir, sample=sample)
    if ":" not in target and (Path(target).is_file() or Path(target).suffix == ".txt" or is_table(Path(target))):
        _of_file(Path(target), others, near or None, data_dir, sample, offline, json_to)
        return
    from stsbench.extensions.overlap.leakage import overlap as measure

    listed = _DEFAULT_OTHERS if others is None else others
    names = [name for name in dict.fromkeys(part.strip() for part in listed.split(",")) if name and name != target]
    if not names:
        raise DataError("--with must name at least one set other than the target")
    sets = _loaded([target, *names], data_dir, sample, offline)
    report = measure(sets[0], sets[1:])
    if json_to:
        write_json({
            **vars(report), "percent": report.percent, "view": sets[0].text_version,
            "digests": {item.id: item.digest for item in sets},
            "warnings": [line for item in sets for line in item.warnings],
        }, json_to)
    if json_to == "-":
        return
    for line in (line for item in sets for line in item.warnings):
        echo(f"warning: {line}", err=True)
    shown = {item.id: item.shown for item in sets}
    rows = [[shown[id], f"{count:,}", _percent(count, report.sentences)] for id, count in report.by_other.items()]
    rows.append(["any of these", f"{report.shared:,}", _percent(report.shared, report.sentences)])
    label = " (sample data: not comparable with published numbers)" if sample else ""
    print_table(f"Sentences of {target} that also occur in other sets{label}", ["in", "sentences", "percent"], rows)
    echo(f"{target}: {report.sentences:,} distinct sentences; {report.touched_pairs:,} of {report.pairs:,} pairs "
               "have at least one shared sentence")


def _of_file(
    file: Path, others: str | None, near: float | None, data_dir: Path | None, sample: bool, offline: bool,
    json_to: str | None,
) -> None:
    """Print what a training file shares with test sets, as a table, with the lines of some."""
    from stsbench.data.own.overlap import available_tests
    from stsbench.extensions.overlap.leakage import leakage

    if not file.exists():
        raise DataError(f"{file}: there is no such file")
    missing: list[str] = []
    if others is None:
        sets, missing = available_tests(data_dir=data_dir, sample=sample)
    else:
        names = dict.fromkeys(part.strip() for part in others.split(",") if part.strip())
        sets = _loaded(names, data_dir, sample, offline)
    if not sets:
        raise DataError("no test set is there: fetch the data with `stsbench data fetch`, or give --data-dir")
    shared = leakage(file, sets, near=near)
    if json_to:
        write_json({"file": file.name, "near": near, "sets": [asdict(one) for one in shared], "missing": missing}, json_to)
    if json_to == "-":
        return
    if missing:
        echo(f"not compared, because they are not there: {', '.join(missing)}", err=True)
    for line in (line for item in sets for line in item.warnings):
        echo(f"warning: {line}", err=True)
    shown = {item.id: item.shown for item in sets}
    rows = [[shown[one.id], f"{one.texts:,}", f"{one.exact:,}", f"{one.normalised:,}", f"{one.near:,}",
             _percent(one.any, one.texts), f"{one.rows:,}"] for one in shared]
    label = " (sample data: not comparable with published numbers)" if sample else ""
    header = ["set", "texts", "exact", "normalised", "near", "percent", "rows"]
    print_table(f"Test texts that {file} holds{label}", header, rows)
    for one in shared:
        for example in one.examples:
            echo(f"{file}:{example.line}: {shown[one.id]}, {example.kind}: {example.training[:100]!r}"
                 + ("" if example.kind != "near" else f" is near {example.test[:100]!r} ({example.similarity:.2f})"))


def _loaded(names: Iterable[str], data_dir: Path | None, sample: bool, offline: bool) -> list[DataSet]:
    """Return sets of the catalog, and users' own by what `stsbench eval` calls them, in this order."""
    from stsbench.data.fetch.sources import load_data
    from stsbench.evaluation.plan import user_sets

    sets: list[DataSet] = []
    for name in names:
        users = user_sets([name]) if ":" in name else []
        if ":" in name and not users:
            raise DataError(f"{name}: it names no file: write sts:FILE, pairs:FILE, ..., or a set of the catalog")
        sets += users or [load_data(name, data_dir=data_dir, sample=sample, offline=offline)]
    return sets


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.2f}" if whole else "0.00"
