"""`stsbench fit`: fit a post-processing of a model's vectors, and write both as a model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from stsbench.cli.messages import log
from stsbench.cli.options import Command, add_options
from stsbench.encoders.options import CacheOptions, EncoderOptions


@click.command(
    "fit", cls=Command, short_help="Train | Fit a post-processing (whitening, ...) and write a model with it.",
)
@click.argument("post", metavar="NAME")
@add_options(EncoderOptions, CacheOptions)
@click.option("--data", type=click.Path(path_type=Path), help="Texts to fit on: .txt, a sentence a line, or "
              ".csv, .tsv, .jsonl of NLI pairs (both sentences); or a folder of vectors. "
              "What the model's own weights determine needs none.")
@click.option("--output", required=True, type=click.Path(path_type=Path), help="A new folder for the model.")
@click.option("--set", "settings", multiple=True, metavar="SETTING=VALUE",
              help="A setting of NAME (`stsbench show post NAME` lists them); repeatable.")
def fit(
    post: str, model: str, data: Path | None, output: Path, settings: Sequence[str], cache_dir: Path | None,
    cache_limit: float, no_cache: bool, **how: Any,
) -> None:
    """Fit a post-processing on texts, and write a model that applies it to its vectors.

    NAME: whitening, all-but-the-top, standardise, renormalise or another one of `stsbench list post`, or a
    chain such as standardise+whitening.
    The folder is a --model for stsbench and loads in sentence-transformers, where an affine map is a Dense module.
    """
    from stsbench.cli.messages import progress_bar
    from stsbench.encoders.cache.cache import EmbeddingCache
    from stsbench.extensions.fit.fit import add_settings, fit_model

    cache = EmbeddingCache.from_options(CacheOptions(cache_dir=cache_dir, cache_limit=cache_limit, no_cache=no_cache))
    chain = add_settings(post, settings)
    with progress_bar() as progress:
        fit_model(model, EncoderOptions(model=model, **how), chain, data, output, cache=cache, log=log, progress=progress)
