"""`stsbench eval`: measure an encoder."""

from __future__ import annotations

import os
import re
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from stsbench.cli.messages import echo
from stsbench.cli.options import Command, Option, add_options
from stsbench.cli.studies import asked_study, run_study, studies
from stsbench.encoders.options import CacheOptions, EncoderOptions, ProcessOptions
from stsbench.errors import StsbenchError
from stsbench.evaluation.options import DataOptions, MeasureOptions, RecordOptions, split_names
from stsbench.files import refuse_file_name

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
        os.environ["HF_HUB_OFFLINE"] = "1"  # for the libraries that load from the Hub by themselves, such as mteb
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
    output = asked or _default_output(options["model"])
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
    if output is not None and result.folder != output:
        log(f"warning: {output} is there already and is left as it is: this run has another name")
    log(f"run: {result.folder}")  # before anything that can still fail: the run is kept whatever happens to its table
    print_result(result, form, json_target=json_target)
    return 3 if result.failures else 0


def _of_training(options: dict[str, Any]) -> dict[str, Any]:
    """Return what records say of the training whose run folder is measured: all of it where its encoder is measured as it
    was exported, else the seed, whether a search chose its settings, and a recipe that is nobody's published one."""
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
    """Return `retrieval.ties=mid` -> its key and its value, read as YAML."""
    from stsbench.config import parse_yaml

    key, equals, value = word.partition("=")
    key = key.strip()
    if not equals or "." not in key:
        raise click.UsageError(f"--set {word}: write PROTOCOL.KEY=VALUE")
    try:
        return key, parse_yaml(value, f"--set {word}")
    except StsbenchError:
        raise click.UsageError(f"--set {word}: the value cannot be read") from None


def _default_output(model: str) -> Path:
    slug = re.sub(r"[^A-Za-z0-9.]+", "-", Path(model).name or model).strip("-.")[:40] or "model"
    return Path("runs") / f"{datetime.now():%Y%m%d-%H%M%S}-{slug}"


