"""`stsbench identify`: which protocol reproduces a paper's numbers."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stsbench.cli.output.json_file import write_json
from stsbench.cli.output.messages import echo, log
from stsbench.errors import StsbenchError

_WIDE = 120  # columns of a terminal that has room for a setting in words and its figures

if TYPE_CHECKING:
    from stsbench.encoders.base import Encoder

    from .numbers import Numbers
    from .observed import Observed
    from .search import SearchResult


@click.command()
@click.argument("numbers", nargs=-1, required=True)
@click.option("--model", "models", required=True, multiple=True, help="A run folder, a folder of run folders, or anything "
              "that `stsbench eval --model` takes, which is measured first; repeatable.")
@click.option("--pooler", "poolers", multiple=True, help="For models that are measured first, as in `stsbench eval`; "
              "repeatable: each is a setting of its own.")
@click.option("--data-dir", type=click.Path(path_type=Path), help="Folder in SentEval's layout.")
@click.option("--sample", is_flag=True, help="The small data set inside the package.")
@click.option("--top", type=click.IntRange(min=1), default=10, show_default=True, help="Rows of the table.")
@click.option("--json", "json_target", metavar="FILE|-", help="Write every setting as JSON; - makes stdout pure JSON.")
def identify(
    numbers: tuple[str, ...], models: tuple[str, ...], poolers: tuple[str, ...], data_dir: Path | None, sample: bool,
    top: int, json_target: str | None,
) -> int:
    """Find the setting that reproduces published NUMBERS with a model's observations.

    NUMBERS: seven scores in the order STS12 STS13 STS14 STS15 STS16 STS-B SICK-R (or the first five), with commas, spaces,
    tabs, & or | between them and - for one that is not printed; or STS12=72.37,STS-B=82.03; or the id of a published row,
    such as simcse:B.2:2; or a .json, .csv or .yaml file. What holds & or | needs quotes; NUMBERS that begin with - stand
    last, after --.
    """
    from .model import source
    from .numbers import read_numbers, refuse_impossible, resolved
    from .observed import known_tasks, observed, run_folders
    from .report import NOTHING, unchecked
    from .search import search

    if sample and data_dir:
        raise click.UsageError("--sample and --data-dir exclude each other")
    published = read_numbers(" ".join(numbers))
    runs_of = {model: run_folders(Path(model).expanduser()) for model in models}
    for value, option in ((poolers, "--pooler"), (data_dir, "--data-dir"), (sample, "--sample")):
        if value and all(runs_of.values()):
            raise click.UsageError(f"{option} does not apply to run folders: their observations are used as they are")
    if not all(runs_of.values()):
        published = resolved(published, known_tasks([]))  # a task nobody knows is said before anything is measured
        if not any(runs_of.values()):  # a run's geometry has a score that may exceed 100, what is measured here has none
            refuse_impossible(published)
    sources = {model: source(model, next(iter(poolers), None)) for model in models if not runs_of[model]}
    folders = [folder for model in models for folder in runs_of[model] or [
        _measured(model, sources[model], pooler, published, data_dir, sample) for pooler in poolers or (None,)
    ]]
    observations = observed(dict.fromkeys(folder.resolve() for folder in folders), log)
    result = search(resolved(published, known_tasks(observations)), observations)
    if not result.matches:
        for line in _first(unchecked(result, len(observations) > 1), top):
            echo(line, err=True)
        raise StsbenchError(NOTHING)
    if json_target:
        from .report import as_json

        write_json(as_json(result, len(observations) > 1), json_target)
    if json_target != "-":
        _print(result, observations, top)
    return 0


def _first(lines: list[str], top: int) -> list[str]:
    return [*lines[:top], *([f"and {len(lines) - top} more"] if len(lines) > top else [])]


def _measured(
    model: str, source: str | Encoder, pooler: str | None, numbers: Numbers, data_dir: Path | None, sample: bool
) -> Path:
    """The run folder of `model`, measured on the tasks in question under the plain protocols that score them."""
    from stsbench.evaluation.api import EvalOptions, run
    from stsbench.evaluation.protocol import kinds

    tasks = {task.partition("/")[0] for task in numbers.items}
    protocols = {name: kinds()[name]({}) for name in ("sts", "regression", "transfer")}
    known = {task for protocol in protocols.values() for task in protocol.tasks()}
    if other := sorted(tasks - known - {"Avg"}):
        raise StsbenchError(
            f"{model} cannot be measured on {', '.join(other)} here: measure it with `stsbench eval` and name its run folder"
        )
    if "Avg" in tasks:
        protocol = "transfer" if tasks & set(protocols["transfer"].tasks()) else "sts"
        tasks = (tasks - {"Avg"}) | set(protocols[protocol].averaged)
    if "SICK-R" in tasks:
        tasks.add("SICK-R-MTEB")
    chosen = [name for name, protocol in protocols.items() if tasks & set(protocol.tasks())]
    slug = re.sub(r"[^A-Za-z0-9.]+", "-", Path(model).name or model).strip("-.")[:40] or "model"
    result = run(EvalOptions(
        model=source, output=Path("runs") / f"{datetime.now():%Y%m%d-%H%M%S}-{slug}", protocols=chosen,
        tasks=sorted(tasks), pooler=pooler, data_dir=data_dir, sample=sample, command=["stsbench", *sys.argv[1:]],
    ), log=log)
    for name, reason in result.failures.items():
        log(f"failed: {name}: {reason}")
    if not result.records:
        raise StsbenchError(f"no task could be scored with {model}")
    log(f"run: {result.folder}")
    return result.folder


def _print(result: SearchResult, observations: Sequence[Observed], top: int) -> None:
    from stsbench.cli.output.grid import Column, console_of, print_columns, print_text

    from .report import further, heading, named, sentence, signed, unchecked

    console = console_of(markup=False)
    about, items = len(observations) > 1, result.numbers.items
    for text in heading(result, observations):
        print_text(console, text)
    header = ("place", "setting", "mean\n|diff|", "largest\n|diff|", "to the\nlast digit", *items, "papers' presets")
    lines = []
    for match in result.matches[:top]:
        rank = f"{match.rank}" + ("=" if sum(other.rank == match.rank for other in result.matches) > 1 else "")
        cells = [signed(match.differences[task]) for task in items]
        figures = [f"{match.mean:.2f}", f"{abs(match.largest[1]):.2f}", f"{match.exact} of {len(items)}"]
        lines.append([rank, named(match, about, ":"), *figures, *cells, ", ".join(match.papers)])
    if result.matches:
        print_text(console, "Differences are measured minus published, in points (x 100).")
        words = ("setting", "papers' presets")
        named_cells = zip(header, zip(*lines, strict=True), strict=True)
        columns = [Column(name, column, name in words, 50) for name, column in named_cells]
        if console.width >= _WIDE:
            print_columns(console, columns, repeated=2)
        else:  # what the places are first, then their figures
            print_columns(console, [*columns[:2], columns[-1]])
            print_columns(console, [columns[0], *columns[2:-1]])
    if (rest := len(result.matches) - top) > 0:
        print_text(console, further(rest, len(result.matches)))
    for text in _first(unchecked(result, about), top):
        print_text(console, text)
    print_text(console, sentence(result, about))
