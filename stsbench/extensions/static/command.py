"""`stsbench distil-static`: a transformer as a table of its tokens' vectors."""

from __future__ import annotations

import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from stsbench.cli.messages import log
from stsbench.cli.options import Command, add_options
from stsbench.encoders.options import EncoderOptions
from stsbench.extensions.static.options import READ, StaticOptions


@click.command(
    "distil-static", cls=Command, short_help="Train | Distil a transformer to a table of its tokens' vectors (model2vec).",
    common=("model", "output", "dimensions", "sif", "remove", "vocabulary", "words", "pooler", "prompt", "revision",
            "trust_remote_code", "device", "offline"),
)
@add_options(EncoderOptions, StaticOptions, only={*READ, *(entry.name for entry in fields(StaticOptions))})
@click.option("--output", required=True, type=click.Path(path_type=Path), help="A new folder for the model.")
def distil_static(output: Path, **options: Any) -> None:
    """Distil a transformer, without texts, to a static model: a vector for each token, of which a text is the mean.

    Each token is encoded alone by the model with its pooler; then principal components, and weights by Zipf's law, as
    model2vec has them. The folder is a --model for stsbench and loads in model2vec and sentence-transformers.
    """
    from stsbench.extensions.static.distil import DistilOptions, distil_model

    distil_model(DistilOptions(**options), output, log, bar=sys.stderr.isatty())
