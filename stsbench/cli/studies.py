"""What extensions add to `stsbench eval`: studies, each of which measures one encoder several times with one load of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import click

from stsbench.cli.messages import log
from stsbench.encoders.options import EncoderOptions, ProcessOptions
from stsbench.evaluation.options import RecordOptions
from stsbench.options import flag_name
from stsbench.registry import names, resolve

_GROUP = "stsbench.studies"  # entry points: objects of the class Study


@dataclass(frozen=True, kw_only=True)
class Study:
    """What `eval` measures in the place of one run where an option of the study asks for it.

    options: a dataclass of `stsbench.options.option`, which `eval` takes, too; asked_by: those that ask for the study, and
    without which the others have no effect; subject: what is measured, in the plural; suffix: of the default folder; files:
    what is written beside the runs. measure: takes a function that loads the encoder, a value for each of the options, and
    arguments of `stsbench.evaluate` with `output` and `log`; what is wrong usage, it refuses before it loads. It returns a
    `Tabular` with `failures`, a line for each task without a score, and `save(folder)`, which writes files beside the runs.
    """

    options: type
    asked_by: Sequence[str]
    subject: str
    suffix: str
    files: str
    measure: Callable[..., Any]


def studies() -> list[Study]:
    """Return every study that is installed."""
    return [resolve(_GROUP, name) for name in names(_GROUP)]


def asked_study(options: dict[str, Any]) -> tuple[Study, dict[str, Any]] | None:
    """Take the options of studies out of those of `eval`; return the study that is asked for, with the values of its own.

    UsageError: there are two, or an option has no effect.
    """
    asked = []
    for study in studies():
        values = {entry.name: options.pop(entry.name) for entry in fields(study.options)}
        if any(values[name] for name in study.asked_by):
            asked.append((study, values))
            continue
        flags = {entry.name: flag_name(entry) for entry in fields(study.options)}
        for entry in fields(study.options):
            if values[entry.name] and values[entry.name] != entry.default:
                others = " or ".join(flags[name] for name in study.asked_by)
                raise click.UsageError(f"{flags[entry.name]} has no effect without {others}")
    if len(asked) > 1:
        raise click.UsageError(f"{' and '.join(study.subject for study, _ in asked)} exclude each other")
    return asked[0] if asked else None


def run_study(
    study: Study, values: Mapping[str, Any], options: dict[str, Any], output: Path, form: str, json_target: str | None
) -> int:
    """Measure, save and print. Return 3 where a task failed, else 0. UsageError for what several runs in one process do not
    take."""
    from stsbench.cli.messages import print_result
    from stsbench.encoders.load import load_encoder

    encoder = {entry.name: options.pop(entry.name) for entry in fields(EncoderOptions)}
    for entry in (*fields(ProcessOptions), *fields(RecordOptions)):
        if options.pop(entry.name, entry.default) != entry.default:
            raise click.UsageError(f"{flag_name(entry)}: {study.subject} are measured in one process, each for its scores: "
                                   "leave it out, and measure the one that you choose with it")
    if form != "table":
        raise click.UsageError(f"--format {form}: {study.subject} are printed as a table, and a CSV file is in the run "
                               "folder")
    made = study.measure(
        lambda: load_encoder(encoder["model"], EncoderOptions(**encoder)), **values, output=output, log=log, **options
    )
    made.save(output)
    log(f"runs, {study.files}: {output}")
    print_result(made, json_target=json_target)
    return 3 if made.failures else 0
