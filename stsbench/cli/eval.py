"""The command `stsbench eval`: measure an encoder."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from stsbench.cli.messages import echo
from stsbench.cli.options import Command, Option, add_options
from stsbench.encoders.options import CacheOptions, EncoderOptions, ProcessOptions
from stsbench.errors import StsbenchError
from stsbench.evaluation.options import DataOptions, MeasureOptions, RecordOptions, Study, split_names, studies
from stsbench.files import refuse_file_name
from stsbench.options import flag_name

_COMMON = ("model", "protocols", "tasks", "columns", "sample", "data_dir", "pooler", "prompt", "max_length", "truncate_dim",
           "similarity", "dtype", "device", "output", "form")


@click.command(
    "eval", cls=Command, common=_COMMON, also=("benchmark", "evaluate", "find-threshold", "measure", "test", "threshold"),
)
@add_options(EncoderOptions, CacheOptions, ProcessOptions, MeasureOptions, *(study.options for study in studies()),
            DataOptions, RecordOptions)
@click.option("--json", "json_target", metavar="FILE|-", help="Write the rows as JSON; - makes stdout pure JSON.")
@click.option("--format", "form", cls=Option, renamed={"--latex": "--format latex", "--csv": "--format csv"},
              type=click.Choice(["table", "latex", "markdown", "csv"]), default="table",
              show_default=True, help="How scores are printed.")
def evaluate(json_target: str | None, form: str, **options: Any) -> int:
    """Measure an encoder under one protocol, several, or all.

    Scores go to stdout; a run folder keeps records and observations, for `stsbench score`.

    \b
    stsbench eval --model minilm --sample
    stsbench eval --model minilm --protocol pairs:mine.csv --columns sentence1=q
    """
    from stsbench.cli.messages import log, print_omissions, print_result, progress_bar
    from stsbench.evaluation.api import EvalOptions, run
    from stsbench.evaluation.tables import SAMPLE

    if options["offline"]:
        os.environ["HF_HUB_OFFLINE"] = "1"  # for libraries that load from the Hub themselves, such as mteb
    for key, option in (("protocols", "--protocol"), ("tasks", "--tasks")):
        if split_names(options[key]) == ():
            raise click.UsageError(f"{option} names nothing")
    pairs = [_setting(word) for word in options["settings"]]
    options["settings"] = dict(pairs)
    if twice := [key for number, (key, _) in enumerate(pairs) if key in dict(pairs[:number])]:
        raise click.UsageError(f"--set {twice[0]} is given twice")
    asked = options.pop("output")
    if asked is not None:
        refuse_file_name(asked)
    name = re.sub(r"[^A-Za-z0-9.]+", "-", Path(options["model"]).name or options["model"]).strip("-.")[:40] or "model"
    output = asked or Path("runs") / f"{datetime.now():%Y%m%d-%H%M%S}-{name}"
    command = ["stsbench", *sys.argv[1:]]
    options["without_overlap"] = options["without_overlap"] or ()
    if chosen_study := asked_study(options):
        study, values = chosen_study
        folder = asked or output.with_name(f"{output.name}-{study.suffix}")
        return run_study(study, values, options, folder, form, json_target)
    chosen = EvalOptions(output=output, command=command, extra_provenance=_of_training(options), **options)
    with progress_bar() as progress:
        result = run(chosen, log=log, progress=progress, **({"doing": progress.doing} if progress else {}))
    print_omissions(result)
    if not result.records:
        raise StsbenchError("no task could be scored" if result.failures else "no task was asked for")
    if options["sample"] and json_target == "-":
        echo(SAMPLE, err=True)
    if result.folder != output:
        log(f"warning: {output} is there already and is left as it is: this run has another name")
    log(f"run: {result.folder}")  # before printing, which may fail: the run is kept all the same
    print_result(result, form, json_target=json_target)
    return 3 if result.failures else 0


def asked_study(options: dict[str, Any]) -> tuple[Study, dict[str, Any]] | None:
    """Remove the options of studies from `options`; return the requested study with its options' values, None without one.

    Raises click.UsageError for two studies, and for an option that has no effect.
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
    """Run a study, save it in `output` and print it; return exit code 3 where a task failed, else 0. Raises
    click.UsageError for options that several runs in one process do not support."""
    from stsbench.cli.messages import log, print_result
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


def _of_training(options: dict[str, Any]) -> dict[str, Any]:
    """Return the facts that records keep of the training whose run folder is measured, {} for any other model: all of them
    if the encoder is measured as exported, else only the seed, the search of settings, and a changed recipe."""
    from stsbench.encoders.options import CHANGING

    run = Path(options["model"]).expanduser()
    if not (run / "train.json").is_file():
        return {}
    from stsbench.training.recipes.recipe import CHANGED
    from stsbench.training.runs.finish import stored_facts

    facts = stored_facts(run)
    asked = EncoderOptions(**{name: options[name] for name in CHANGING}).of_this_machine()
    changed = options["post"] or any(getattr(asked, name) != getattr(EncoderOptions, name) for name in CHANGING)
    if not changed:
        return facts
    told = {"seed", "search", *(("recipe",) if str(facts.get("recipe")).endswith(CHANGED) else ())}
    return {key: value for key, value in facts.items() if key in told}


def _setting(word: str) -> tuple[str, Any]:
    """Return key and value of `retrieval.ties=mid`, the value read as YAML. Raises click.UsageError, one line."""
    from stsbench.config import parse_yaml

    key, equals, value = word.partition("=")
    key = key.strip()
    if not equals or "." not in key:
        raise click.UsageError(f"--set {word}: write PROTOCOL.KEY=VALUE")
    try:
        return key, parse_yaml(value, f"--set {word}")
    except StsbenchError:
        raise click.UsageError(f"--set {word}: the value cannot be read") from None
