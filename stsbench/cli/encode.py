"""`stsbench encode`: the vectors of any number of texts, in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from stsbench.cli.options import options_of
from stsbench.cli.output.messages import log
from stsbench.encoders.options import EncoderOptions, ProcessOptions, StoreOptions


@click.command("encode")
@options_of(EncoderOptions)
@click.option("--input", "source", required=True, metavar="FILE|-", help="UTF-8, one text a line, or a table: "
              ".csv, .tsv, .jsonl, .parquet, a folder that datasets saved; - is standard input.")
@click.option("--column", metavar="NAME|N", help="Which column of a table holds the text, by its name, or from 1 in a file "
              "without header; of lines, from 1, the one between tabs; 0: lines may hold tabs.")
@click.option("--output", required=True, type=click.Path(path_type=Path), help="The folder; an unfinished one is "
              "continued.")
@options_of(StoreOptions, ProcessOptions)
def encode(
    model: str, source: str, column: str | None, output: Path, store_dtype: str, shard_size: int | None, devices: str | None,
    processes: int | None, **how: Any,
) -> None:
    """Encode any number of texts into a folder of vectors, in memory that does not grow.

    Row i holds line i + 1. The same command goes on after a kill, and compares what is complete. `--model vectors:DIR`,
    `stsbench neighbours --corpus DIR` and `stsbench fit --data DIR` read the folder.
    """
    from stsbench.cli.output.pace import pace_shown
    from stsbench.encoders.load import load_encoder
    from stsbench.encoders.parallel.devices import chosen_devices
    from stsbench.encoders.store.encode import encoded, remarks
    from stsbench.encoders.store.texts import Texts
    from stsbench.evaluation.announce import described_encoder
    from stsbench.wording import counted, sized

    texts, options = Texts(source, column), EncoderOptions(model=model, **how)
    storing = StoreOptions(store_dtype=store_dtype, shard_size=shard_size)
    names = chosen_devices(devices, processes, options.device)
    encoder = load_encoder(model, options)
    if not names:  # else other processes load it
        encoder.ready()
    for line in (described_encoder(encoder), *encoder.notes):
        log(line)
    with pace_shown() as progress:
        store = encoded(encoder, options, texts, output, storing, names, log, progress)
    for line in (*remarks(store), *texts.notes):
        log(line)
    if line := encoder.spent_in_words():
        log(line)
    shape = f"{counted(len(store), 'text')} x {store.dimension}"
    log(f"{store.folder}: {shape}, {store.dtype}, {sized(store.manifest.bytes())} with texts")
