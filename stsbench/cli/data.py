"""`stsbench data`: fetch, verify, bundle the data sets, and measure what they share."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stsbench.cli.options import add_options
from stsbench.cli.output.messages import echo, is_quiet, write_json
from stsbench.cli.output.report import print_table
from stsbench.errors import DataError
from stsbench.options import SetOptions
from stsbench.registry import names, resolve
from stsbench.wording import counted, sized

if TYPE_CHECKING:
    from stsbench.data.fetch.download import Progress
    from stsbench.data.fetch.install import FetchReport
    from stsbench.data.sets.sets import DataSet

_GROUP = "stsbench.data_commands"  # entry points: what extensions add
_DEFAULT_OTHERS = "sts12/test,sts13/test,sts14/test,sts15/test,sts16/test,stsb/test"

_data_dir = click.option(
    "--data-dir", type=click.Path(path_type=Path, file_okay=False, exists=True), help="A folder with downstream/."
)
_json = click.option("--json", "json_to", metavar="FILE|-", help="Write the result as JSON to FILE, or to stdout.")
_strict = click.option("--strict", is_flag=True, help="Refuse files that differ from the catalog.")


@click.group()
def data() -> None:
    """Fetch, check, bundle and compare the data sets."""


for command in (resolve(_GROUP, name) for name in names(_GROUP)):
    data.add_command(command)


@data.command(short_help="Download the data into the user cache.")
@click.argument("sets", nargs=-1)
@click.option("--training", is_flag=True, help="Fetch the training texts that papers share (some 170 MB) and nothing else.")
@click.option("--raw", is_flag=True, help="Also fetch the original texts from the Hub (MTEB's data).")
@click.option("--from", "bundle_file", type=click.Path(path_type=Path, dir_okay=False, exists=True),
              help="Install a bundle instead of downloading.")
@click.option("--force", is_flag=True, help="Fetch again even if all files are present.")
@_strict
def fetch(
    sets: tuple[str, ...], training: bool, raw: bool, bundle_file: Path | None, force: bool, strict: bool
) -> None:
    """Download the data into the user cache; with SETS and --raw, only the raw files of those sets.

    SETS may also be training texts (wiki1m_for_simcse.txt, nli_for_simcse.csv), sets in other languages (STS17, JSTS,
    ATEC, ...), at the revision that mteb pins, and sets of their authors' repositories (semrel, semantoneg, ...):
    `stsbench list data` names them.
    """
    from stsbench.data.fetch import download
    from stsbench.data.fetch.install import install_bundle
    from stsbench.data.sets.catalog import catalog
    from stsbench.files import data_root

    if bundle_file is not None:
        _tell(install_bundle(bundle_file, data_root(), strict=strict))
        return
    what = download.select_sources(sets, training=training, raw=raw)
    with _progress("senteval.tar" if what.archive else "files") as step:
        reports = download.fetch(what, data_root(), force=force, strict=strict, progress=step)
    for report in reports:
        _tell(report)
    if not what.training and (what.archive or what.raw):
        echo(f"training texts ({', '.join(catalog().training)}): stsbench data fetch --training", err=True)


@data.command(short_help="Compare the files of a data folder with the catalog.")
@click.argument("sets", nargs=-1)
@_data_dir
@_json
def verify(sets: tuple[str, ...], data_dir: Path | None, json_to: str | None) -> None:
    """Compare the files of a data folder with the catalog; fails if any differs (or if a named set is missing)."""
    from stsbench.data.fetch.sources import verify as states_of
    from stsbench.data.sets.catalog import entries, entry

    for name in sets:
        if name not in {item.id for item in entries()}:
            entry(name)  # raises with the nearest name
    root = _root(data_dir)
    states = states_of(root, sets)
    if json_to:
        write_json({"root": str(root), "sets": [vars(state) for state in states]}, json_to)
    if json_to != "-":
        print_table(f"Data in {root}", ["set", "text", "state", "items", "digest"], [
            [s.id, s.text_version, s.state, "" if s.pairs is None else f"{s.pairs:,}", s.digest[:12]] for s in states
        ])
    bad = [state for state in states if state.state in ("changed", "unreadable")]
    if bad:
        raise DataError(f"{len(bad)} of {len(states)} sets differ from the catalog: {bad[0].notes[0]}")
    if all(state.state == "missing" for state in states):
        raise DataError(f"no data set is complete in {root}: {states[0].notes[0]} is missing")
    present = {state.id for state in states if state.state != "missing"}
    for state in states:
        if sets and state.id not in present:
            raise DataError(f"{state.id} is not complete: {state.notes[0]} is missing")


@data.command(short_help="Write the data files to an archive for other machines.")
@click.argument("target", type=click.Path(path_type=Path, dir_okay=False))
@_data_dir
def bundle(target: Path, data_dir: Path | None) -> None:
    """Write the known data files to TARGET (.tar or .tar.gz), for `data fetch --from` on a machine without network."""
    from stsbench.data.fetch.install import write_bundle

    names = write_bundle(_root(data_dir), target)
    echo(f"{target}: {counted(len(names), 'file')}, {sized(target.stat().st_size)}")
    echo("Mind the licences: several sets are for research only and must not be redistributed.")


@data.command(short_help="Count what a set or a training file shares with test sets.")
@click.argument("target", metavar="SET|FILE")
@click.option("--with", "others", metavar="ID,ID", help=f"Sets to compare, pairs:FILE and the like among them. Default: "
              f"{_DEFAULT_OTHERS}; of a file every test set that is there.")
@click.option("--near", type=click.FloatRange(0, 1), default=0.7, show_default=True,
              help="Of a file: the Jaccard of character 4-grams from which on two texts are near duplicates; 0: none.")
@add_options(SetOptions)
@click.option("--offline", is_flag=True, help="Never download.")
@_json
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
    from stsbench.data.own.overlap import overlap as measure

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
    from dataclasses import asdict

    from stsbench.data.own.overlap import available_tests, leakage

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


def _root(data_dir: Path | None) -> Path:
    from stsbench.files import data_root

    configured = os.environ.get("STSBENCH_DATA")
    root = data_dir or (Path(configured) if configured else data_root())
    if not root.is_dir():
        raise DataError(f"{root} does not exist: fetch the data with `stsbench data fetch` or give --data-dir")
    return root


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.2f}" if whole else "0.00"


def _tell(report: FetchReport) -> None:
    number = counted(len(report.installed), "file")
    done = f"{number} installed" if report.installed else "nothing to do: all files are present"
    echo(f"{report.root}: {done}")
    for name in report.changed:
        echo(f"warning: {name} differs from the known file: results on it are marked as such", err=True)
    for name in report.missing:
        echo(f"warning: {name} was not in the archive", err=True)
    if report.note:
        echo(report.note)


@contextmanager
def _progress(title: str) -> Iterator[Progress]:
    """Show a bar on stderr; none with --quiet, and where stderr is not a terminal."""
    if is_quiet() or not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.progress import BarColumn, DownloadColumn, TextColumn

    from stsbench.cli.output.progress import draw_progress

    with draw_progress(TextColumn("{task.description}"), BarColumn(), DownloadColumn(), transient=False) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
