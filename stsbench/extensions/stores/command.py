"""`stsbench encode`: texts into a folder of vectors; `neighbours`: texts nearest to a query; `mine`: hard negatives."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stsbench.cli.messages import draw_progress, echo, is_quiet, log, tell
from stsbench.cli.options import Command, add_options
from stsbench.encoders.options import CacheOptions, EncoderOptions, ProcessOptions
from stsbench.extensions.stores.options import MiningOptions, NearestOptions, StoreOptions
from stsbench.files import atomic_write, refuse_file_name

if TYPE_CHECKING:
    from stsbench.extensions.stores.build import Pace

EVERY = 30.0  # seconds between two lines of progress


@contextmanager
def show_pace() -> Iterator[Callable[[Pace], None]]:
    """Yield a function that shows the progress of an encoding, as a bar or, outside a terminal, as lines."""
    if is_quiet():
        yield lambda pace: None
        return
    if not sys.stderr.isatty():
        yield _Lines()
        return
    from rich.progress import BarColumn, TextColumn

    columns = (TextColumn("encoding"), BarColumn(), TextColumn("{task.fields[count]}"), TextColumn("{task.fields[left]}"))
    with draw_progress(*columns) as bar:
        task, clock = bar.add_task("encoding", total=None, count="", left=""), Clock()
        yield lambda pace: bar.update(task, completed=pace.texts, total=pace.total, count=_count(pace), left=clock(pace))


class Clock:
    """Computes texts per second and the time left, from the texts encoded in this call."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._began = now()

    def __call__(self, pace: Pace) -> str:
        """Return text such as "1,200 texts/s, 2 h 10 min left": for a stream the speed alone, "" before the first text."""
        seconds, new = self._now() - self._began, pace.texts - pace.kept
        if new <= 0 or seconds <= 0:
            return ""
        speed = f"{new / seconds:,.0f} texts/s"
        return speed if pace.total is None else f"{speed}, {duration((pace.total - pace.texts) * seconds / new)} left"


def duration(seconds: float) -> str:
    """Return seconds as text: "2 h 10 min", "5 min", "40 s"."""
    whole = max(0, round(seconds))
    if whole < 100:
        return f"{whole} s"
    minutes = round(whole / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


class _Lines:
    def __init__(self) -> None:
        self._clock, self._last_report = Clock(), time.monotonic()

    def __call__(self, pace: Pace) -> None:
        if time.monotonic() - self._last_report < EVERY:
            return
        self._last_report = time.monotonic()
        left = self._clock(pace)
        tell(f"{_count(pace)} texts" + (f", {left}" if left else ""))


def _count(pace: Pace) -> str:
    """Return text such as "1,200 of about 20,057", as the number of texts in a file is estimated from its size."""
    return f"{pace.texts:,}" + ("" if pace.total is None else f" of about {pace.total:,}")


@click.command(
    "encode", cls=Command, also=("embed",), short_help="Measure | Encode any number of texts into a folder of vectors.",
)
@add_options(EncoderOptions)
@click.option("--input", "source", required=True, metavar="FILE|-", help="UTF-8, one text a line, or a table: "
              ".csv, .tsv, .jsonl, .parquet, a folder that datasets saved; - is standard input.")
@click.option("--column", metavar="NAME|N", help="Which column of a table holds the text, by its name, or from 1 in a file "
              "without header; of lines, from 1, the one between tabs; 0: lines may hold tabs.")
@click.option("--output", required=True, type=click.Path(path_type=Path), help="The folder; an unfinished one is "
              "continued.")
@add_options(StoreOptions, ProcessOptions)
def encode(model: str, source: str, column: str | None, output: Path, **options: Any) -> None:
    """Encode any number of texts into a folder of vectors, in memory that does not grow.

    Row i holds the vector of line i + 1. The same command continues an interrupted one: complete shards are checked
    against the input and kept. `--model vectors:DIR`, `stsbench neighbours --corpus DIR` and `stsbench fit --data DIR`
    read the folder.
    """
    from stsbench.data.own.texts import Texts
    from stsbench.encoders.load import load_encoder
    from stsbench.evaluation.announce import described_encoder
    from stsbench.extensions.stores.build import EncodeOptions, build_store, remarks
    from stsbench.wording import counted, sized

    refuse_file_name(output)
    texts, how = Texts(source, column), EncodeOptions(model=model, output=output, column=column, **options)
    encoder = load_encoder(model, how)
    with how.runner(encoder, how) as runner:
        if runner is None:  # with a runner, other processes load the model
            encoder.ready()
        for line in (described_encoder(encoder), *encoder.notes):
            log(line)
        with show_pace() as progress:
            store = build_store(
                encoder, texts, output, dtype=how.store_dtype, shard_rows=how.shard_size, runner=runner, log=log,
                progress=progress,
            )
    for line in (*remarks(store), *texts.notes):
        log(line)
    if line := encoder.spent_in_words():
        log(line)
    shape = f"{counted(len(store), 'text')} x {store.dimension}"
    log(f"{store.folder}: {shape}, {store.dtype}, {sized(store.manifest.bytes())} with texts")


@click.command(
    "neighbours", cls=Command, also=("knn", "search", "semantic-search"),
    short_help="Measure | Find the lines of a text file nearest to a query.",
)
@add_options(EncoderOptions, CacheOptions)
@click.option("--corpus", required=True, metavar="FILE|SET|DIR", help="UTF-8, one text per line, blank lines skipped, or "
              "a table (.csv, .tsv, .jsonl, .parquet); a "
              "data set whose sentences are searched, e.g. stsb/test (`stsbench list data`); or a folder that `stsbench "
              "encode` wrote, whose vectors are read.")
@click.option("--query", "queries", multiple=True, metavar="TEXT", help="Repeat for several queries.")
@add_options(NearestOptions)
@click.option("--json", "json_target", metavar="FILE|-", help="Write the rows as JSON; - makes stdout pure JSON.")
def neighbours(
    model: str, corpus: str, queries: Sequence[str], json_target: str | None, **options: Any,
) -> int:
    """Find the lines of a text file, or the sentences of a data set, nearest to a query, by cosine.

    Equal lines are one text: the first line is shown, with the number of further copies. A line equal to the query is shown
    too, with cosine 1. For a data set the number is that of the item: both sentences of the first pair have 1.
    """
    from stsbench.cli.messages import print_result, progress_bar
    from stsbench.encoders.load import load_encoder
    from stsbench.extensions.stores.neighbours import NeighboursOptions, distinct, nearest_texts, open_corpus

    how = NeighboursOptions(model=model, **options)
    asked = distinct(queries, how.query_file)
    searched = open_corpus(corpus, how, how.offline, _tell)
    encoder = load_encoder(model, how)
    for note in encoder.notes:
        _tell(note)
    nearest = nearest_texts(encoder, searched, asked, how, how, _tell, progress_bar)
    print_result(nearest, json_target=json_target)
    return 0


def _tell(line: str) -> None:
    echo(line, err=True)


@click.command("mine", cls=Command, short_help="Train | Find hard negatives of pairs to train on.")
@add_options(EncoderOptions, CacheOptions)
@click.option("--data", required=True, type=click.Path(path_type=Path), help="Pairs: a table with the columns "
              "anchor and positive, or sent0 and sent1.")
@click.option("--output", required=True, type=click.Path(path_type=Path), help="A new .jsonl file of triplets.")
@add_options(MiningOptions)
def mine_negatives(model: str, data: Path, output: Path, **options: Any) -> None:
    """Find hard negatives of pairs: texts that an encoder finds near an anchor and that are no positives of it.

    Each pair and each negative of its anchor become a row with anchor, positive and negative, to train on. Without a margin
    or a guide some of them are paraphrases: look at them.
    """
    from stsbench.cli.messages import print_result, progress_bar
    from stsbench.encoders.load import load_encoder
    from stsbench.errors import UsageError
    from stsbench.extensions.stores.mine import MineOptions, mine_pairs, read_pairs

    if output.suffix != ".jsonl" or output.exists():
        raise UsageError(f"--output {output} must be a new file that ends in .jsonl")
    how, pairs = MineOptions(model=model, **options), read_pairs(data)
    with atomic_write(output) as stream, progress_bar() as progress:
        triplets = mine_pairs(load_encoder(model, how), pairs, how, progress)
        triplets.write(stream)
    print_result(triplets)
    train = f"stsbench train simcse --recipe sup-bert-base --data {shlex.quote(str(output))} --set data.columns={{}}"
    log(f"{output}: {len(triplets):,} triplets; to train on them: {train}")
