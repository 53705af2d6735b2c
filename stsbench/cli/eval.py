"""`stsbench eval`: measure an encoder."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import fields
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from stsbench.cli.options import options_of, usage_errors
from stsbench.cli.output.messages import echo
from stsbench.encoders.options import CacheOptions, EncoderOptions, ProcessOptions
from stsbench.errors import StsbenchError
from stsbench.evaluation.options import DataOptions, MeasureOptions, RecordOptions, VariantOptions, words_of


@click.command("eval")
@options_of(EncoderOptions, CacheOptions, ProcessOptions, MeasureOptions, VariantOptions, DataOptions, RecordOptions)
@click.option("--prompt-file", metavar="FILE", help="Measure behind each prompt of a file, one a line.")
@click.option("--json", "json_target", metavar="FILE|-", help="Write the rows as JSON; - makes stdout pure JSON.")
@click.option("--format", "form", type=click.Choice(["table", "latex", "markdown", "csv"]), default="table",
              show_default=True, help="How scores are printed.")
def evaluate(json_target: str | None, form: str, **options: Any) -> int:
    """Measure an encoder under one protocol, several, or all.

    Scores go to stdout; a run folder keeps records and observations, for `stsbench score`.
    """
    from stsbench.cli.output.json_file import write_json
    from stsbench.cli.output.messages import log
    from stsbench.cli.output.progress import progress_bar
    from stsbench.cli.output.report import print_failures, print_report
    from stsbench.evaluation.api import EvalOptions, run
    from stsbench.evaluation.tables import SAMPLE

    if options["offline"]:
        os.environ["HF_HUB_OFFLINE"] = "1"  # for the libraries that load from the Hub by themselves, such as mteb
    if options["sample"] and options["data_dir"]:
        raise click.UsageError("--sample and --data-dir exclude each other")
    if options["sample"] and options["text_version"] == "raw":
        raise click.UsageError("--sample is its own text version: leave --text out")
    for key, option in (("protocols", "--protocol"), ("tasks", "--tasks")):
        if words_of(options[key]) == ():
            raise click.UsageError(f"{option} names nothing")
    pairs = [_setting(word) for word in options["settings"]]
    options["settings"] = dict(pairs)
    if twice := [key for number, (key, _) in enumerate(pairs) if key in dict(pairs[:number])]:
        raise click.UsageError(f"--set {twice[0]} is given twice")
    asked = options.pop("output")
    output = asked or _default_output(options["model"])
    command = ["stsbench", *sys.argv[1:]]
    options["without_overlap"] = options["without_overlap"] or ()
    variants = {entry.name: options.pop(entry.name) for entry in fields(VariantOptions)}
    if variants["quantise"] or variants["dims"]:
        return _each_variant(options, variants, asked or output.with_name(f"{output.name}-variants"), json_target, form)
    for name, value in variants.items():
        if value and value != getattr(VariantOptions, name):
            raise click.UsageError(f"--{name} has no effect without --quantise or --dims")
    if options["prompt_file"] is not None:
        return _behind_each(options, asked or output.with_name(f"{output.name}-prompts"), json_target, form)
    options.pop("prompt_file")
    chosen = EvalOptions(output=output, command=command, extra_provenance=_of_training(options), **options)
    with usage_errors(), progress_bar() as progress:
        result = run(chosen, log=log, progress=progress, **({"doing": progress.doing} if progress else {}))
    print_failures(result)
    if not result.records:
        raise StsbenchError("no task could be scored" if result.failures else "no task was asked for")
    if options["sample"] and json_target == "-":
        echo(SAMPLE, err=True)
    if output is not None and result.folder != output:
        log(f"warning: {output} is there already and is left as it is: this run has another name")
    log(f"run: {result.folder}")  # before anything that can still fail: the run is kept whatever happens to its table
    if json_target != "-":
        print_report(result, form)
    if json_target:
        write_json([row.model_dump() for row in result.rows], json_target)
    return 3 if result.failures else 0


def _behind_each(options: dict[str, Any], output: Path, json_target: str | None, form: str) -> int:
    """Every prompt of a file, with one load of the model: a table; the runs, the scores and the picture in a folder."""
    from stsbench.cli.output.messages import log
    from stsbench.experiments.prompts import measure_prompts, read_prompts

    path = Path(options.pop("prompt_file"))
    if not path.is_file():
        raise click.UsageError(f"--prompt-file {path}: there is no such file")
    prompts = read_prompts(path)
    encoder, how = _loaded(options, form, "prompts of a file are")
    made = measure_prompts(encoder, prompts, how.pop("protocols"), tasks=how.pop("tasks"), output=output, log=log, **how)
    return _shown(made, output, "prompts.csv and prompts.png", json_target)


def _each_variant(
    options: dict[str, Any], variants: dict[str, Any], output: Path, json_target: str | None, form: str
) -> int:
    """Every smaller copy of the vectors, with one load of the model: as a file of prompts."""
    from stsbench.cli.output.messages import log
    from stsbench.experiments.variants import measure_variants

    if options["prompt_file"] is not None:
        raise click.UsageError("--quantise and --dims: a file of prompts is measured by itself")
    options.pop("prompt_file")
    for name in ("post", "fit_on"):
        if options.pop(name) is not None:
            raise click.UsageError(f"--{name.replace('_', '-')}: smaller copies are of a model's own vectors: `stsbench "
                                   "fit` writes a model with a post-processing, which is then measured")
    encoder, how = _loaded(options, form, "smaller copies are")
    asked: dict[str, Any] = {name: value or () for name, value in variants.items() if name != "clip"}
    made = measure_variants(encoder, **asked, clip=variants["clip"], output=output, log=log, **how)
    return _shown(made, output, "variants.csv and pictures", json_target)


def _loaded(options: dict[str, Any], form: str, what: str) -> tuple[Any, dict[str, Any]]:
    """The encoder, and the options that are not of it. UsageError for those that several runs in one process do not take."""
    from stsbench.encoders.load import load_encoder

    names = {entry.name for entry in fields(EncoderOptions)}
    if set_too := [name for name in ("devices", "processes") if options[name] is not None]:
        raise click.UsageError(f"--{set_too[0]}: {what} measured in one process")
    if options.pop("cost"):
        raise click.UsageError("--cost is of one encoder: measure the one that you choose with it")
    if form != "table":
        raise click.UsageError(f"--format {form}: {what} printed as a table, and a CSV file is in the run folder")
    encoder = load_encoder(options["model"], EncoderOptions(**{key: options[key] for key in names & options.keys()}))
    return encoder, {key: value for key, value in options.items() if key not in {*names, "devices", "processes"}}


def _shown(made: Any, output: Path, files: str, json_target: str | None) -> int:
    """Save and print what was measured. 3 where a task failed, else 0."""
    from stsbench.cli.output.json_file import write_json
    from stsbench.cli.output.messages import log

    made.save(output)
    log(f"runs, {files}: {output}")
    if json_target != "-":
        echo(str(made))
    if json_target:
        write_json([*made.rows()], json_target)
    return 3 if made.failures else 0


def _of_training(options: dict[str, Any]) -> dict[str, Any]:
    """What records say of the training whose run folder is measured: all of it where its encoder is measured as it was
    exported, else the seed, and whether a search chose its settings."""
    from stsbench.encoders.options import CHANGING

    run = Path(options["model"]).expanduser()
    if not (run / "train.json").is_file():
        return {}
    from stsbench.training.runs.finish import stored_facts

    facts = stored_facts(run)
    asked = EncoderOptions(**{name: options[name] for name in CHANGING}).of_this_machine()
    changed = options["post"] or any(getattr(asked, name) != getattr(EncoderOptions, name) for name in CHANGING)
    return {key: facts[key] for key in ("seed", "search") if key in facts} if changed else facts


def _setting(word: str) -> tuple[str, Any]:
    """`retrieval.ties=mid` -> its key and its value, read as YAML."""
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


