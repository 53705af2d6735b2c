"""The command `stsbench data`: fetch, verify and bundle the data sets."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stsbench.cli.messages import echo, is_quiet, print_table, write_json
from stsbench.errors import DataError
from stsbench.registry import names, resolve
from stsbench.wording import counted, sized

if TYPE_CHECKING:
    from stsbench.data.fetch.download import Progress
    from stsbench.data.fetch.install import FetchReport

_GROUP = "stsbench.data_commands"  # entry points: further subcommands, of extensions

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
            entry(name)  # raises DataError with the nearest name
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


def _root(data_dir: Path | None) -> Path:
    from stsbench.files import data_root

    configured = os.environ.get("STSBENCH_DATA")
    root = data_dir or (Path(configured) if configured else data_root())
    if not root.is_dir():
        raise DataError(f"{root} does not exist: fetch the data with `stsbench data fetch` or give --data-dir")
    return root


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
    """Yield a progress callback that draws a bar on stderr, or nothing with --quiet and without a terminal."""
    if is_quiet() or not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.progress import BarColumn, DownloadColumn, TextColumn

    from stsbench.cli.messages import draw_progress

    with draw_progress(TextColumn("{task.description}"), BarColumn(), DownloadColumn(), transient=False) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
