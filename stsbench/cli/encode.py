"""`stsbench encode`: the vectors of any number of texts, in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from stsbench.cli.options import options_of
from stsbench.cli.output.messages import log
from stsbench.encoders.options import EncoderOptions, ProcessOptions


@click.command("encode")
@options_of(EncoderOptions)
@click.option("--input", "source", required=True, metavar="FILE|-", help="UTF-8, one text a line; - is standard input.")
@click.option("--column", type=click.IntRange(min=0), help="Which tab-separated column of the input holds the text, from 1; "
              "0: lines may hold tabs.")
@click.option("--output", required=True, type=click.Path(path_type=Path), help="The folder; an unfinished one is "
              "continued.")
@click.option("--store-dtype", type=click.Choice(["float32", "float16", "int8", "binary"]), default="float32",
              show_default=True, help="How numbers are stored.")
@click.option("--shard-size", "shard_rows", type=click.IntRange(min=1), help="Texts a shard, which a kill loses at most; "
              "default 32,768.")
@options_of(ProcessOptions)
def encode(
    model: str, source: str, column: int | None, output: Path, store_dtype: str, shard_rows: int | None, devices: str | None,
    processes: int | None, **how: Any,
) -> None:
    """Encode any number of texts into a folder of vectors, in memory that does not grow.

    Row i holds line i + 1. The same command goes on after a kill, and compares what is complete. `--model vectors:DIR`,
    `stsbench neighbours --corpus DIR` and `stsbench fit --data DIR` read the folder.
    """
    from stsbench.cli.output.pace import pace_shown
    from stsbench.encoders.load import load_encoder
    from stsbench.encoders.parallel.devices import chosen_devices
    from stsbench.encoders.parallel.pool import Workers
    from stsbench.encoders.store.build import build_store
    from stsbench.encoders.store.texts import Texts
    from stsbench.evaluation.announce import described_encoder

    texts, options = Texts(source, column), EncoderOptions(model=model, **how)
    names = chosen_devices(devices, processes, options.device)
    encoder = load_encoder(model, options)
    for line in (described_encoder(encoder), *encoder.notes):
        log(line)
    workers = Workers(model, options, names, encoder) if names else None
    try:
        with pace_shown() as progress:
            store = build_store(
                encoder, texts, output, dtype=store_dtype, shard_rows=shard_rows, runner=workers, log=log, progress=progress
            )
    finally:
        if workers is not None:
            workers.close()
    _report(store)


def _report(store: Any) -> None:
    from stsbench.wording import counted, sized

    manifest = store.manifest
    for name, what in (("empty", "empty texts, encoded as such"), ("truncated", "texts truncated to the model's limit")):
        if count := manifest.total(name):
            log(f"{count:,} {what}")
    if clipped := manifest.total("clipped"):
        share = clipped / (manifest.rows * manifest.dimension)
        log(f"{clipped:,} numbers ({share:.2%}) were cut to int8's scale, which is of {manifest.calibration}")
    shape = f"{counted(manifest.rows, 'text')} x {manifest.dimension}"
    log(f"{store.folder}: {shape}, {manifest.dtype}, {sized(manifest.bytes())} with texts")
