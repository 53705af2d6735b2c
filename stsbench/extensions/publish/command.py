"""`stsbench export`: a run's results, or the model that a training kept, as another program reads it."""

from __future__ import annotations

from pathlib import Path

import click

from stsbench.cli.messages import echo
from stsbench.cli.options import Command, Option
from stsbench.extensions.publish.export import TARGETS, exported


@click.command(
    cls=Command, also=("card", "model-card"),
    short_help="Tools | Write a run in another tool's format (mteb, sentence-transformers).",
)
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--to", "target", cls=Option, renamed={"--format": "--to"}, required=True, type=click.Choice(TARGETS),
              help="sentence-transformers: a trained model. mteb: result files of mteb. "
                   "model-card: README.md for the Hub. model-index: its metadata. json: the records.")
@click.option("--output", type=click.Path(path_type=Path), help="A new folder; default: RUN-TARGET beside the run.")
def export(run: Path, target: str, output: Path | None) -> int:
    """Write a run's results, or the model kept by a training run, in the format of another program.

    To sentence-transformers: a copy of the model that `stsbench train` kept in RUN, for SentenceTransformer(DIR) and
    transformers' AutoModel.

    To mteb: the records of `--protocol mteb` whose data are MTEB's own, for mteb.ResultCache(DIR).load_results(). Scores
    on SentEval's text, on the sample or on a part of a set are left out, each with its reason (exit code 3).

    To model-card: a model card of the Hugging Face Hub, with every score in its metadata. To model-index: the metadata
    alone, to be merged into an existing card. To json: the records, for programs that do not read RUN's Parquet file.
    """
    files, left_out = exported(run, target, output)
    for path in files:
        echo(str(path))
    for task, reason in left_out.items():
        echo(f"{task} left out: {reason}", err=True)
    return 3 if left_out else 0
