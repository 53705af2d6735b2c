"""What `stsbench encode` does, for callers in Python."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from stsbench.config import checked_options
from stsbench.data.own.texts import STDIN, Texts, checked_texts
from stsbench.encoders.base import Encoder, EncoderOptions
from stsbench.encoders.load import loaded_encoder
from stsbench.encoders.options import ProcessOptions
from stsbench.encoders.parallel import Workers, chosen_devices
from stsbench.errors import EncoderError, UsageError, warning_log
from stsbench.extensions.stores.build import Pace, build_store
from stsbench.extensions.stores.options import StoreOptions
from stsbench.extensions.stores.vectors import VectorStore
from stsbench.notebook import in_notebook, make_bar
from stsbench.options import takes

if TYPE_CHECKING:
    from stsbench.extensions.arguments import EncoderArguments


class GivenTexts(Texts):
    """Texts of a program, row i being text i, without white space around it. A text may hold tabs and line breaks."""

    def __init__(self, texts: Iterable[str]) -> None:
        """DataError: there is nothing to go through."""
        super().__init__(STDIN)
        self._listed = checked_texts(texts, "text")
        self._length = len(texts) if isinstance(texts, Sized) else None

    def expected(self) -> int | None:
        """How many there are, where that is known before they are read."""
        return self._length

    def _texts(self) -> Iterator[str]:
        for text in self._listed:
            self._read(f"{text}\n".encode())
            yield text.strip()


@dataclass(frozen=True, kw_only=True)
class EncodeOptions(EncoderOptions, StoreOptions, ProcessOptions):
    """All that `encode` takes besides the model and the texts."""

    output: Path
    column: int | str | None = None


@takes(EncodeOptions, without=["model"])
def encode(
    model: Any, texts: str | Path | Iterable[str], output: str | Path, *, column: int | str | None = None,
    store_dtype: str = "float32", shard_size: int | None = None, devices: str | None = None, processes: int | None = None,
    **encoder: Unpack[EncoderArguments],
) -> VectorStore:
    """Encode any number of texts into a folder of vectors, as `stsbench encode` does, and open it.

    model: what stands after --model, an encoder, a function from n texts to (n, d) numbers, or an object with such a method
    `encode`. texts: a file, UTF-8, one text a line ("-": standard input), or a table with a column of texts (.csv, .tsv,
    .jsonl, .parquet, or a folder that datasets saved), or an iterable of texts, which need not fit into memory; row i is the
    text at position i. output: the folder; an unfinished one is continued, a finished one compared. column: of a table the
    name of the column of texts, or its position, from 1, in a file without header; of lines its position between tabs; 0:
    lines may hold tabs. store_dtype: float32, float16, int8 or binary; shard_size: texts a shard (32,768). devices: names
    between commas, or all; processes: their number. All others are options of `load_encoder`.

    Nothing is printed; in a notebook there is a progress bar. Texts that are empty or were cut to the model's limit, and
    numbers cut to int8's scale, are a StsbenchWarning. Raises StsbenchError, one line: not readable, no such model, a text
    without a finite vector, or a folder of another encoder or other texts.

    >>> import stsbench
    >>> store = stsbench.encode(lambda texts: [[len(text), 1] for text in texts], ["A cat sleeps.", "Rain."], "vectors")
    >>> store.shape, store.text(1), store.rows([1])
    ((2, 2), 'Rain.', array([[5., 1.]], dtype=float32))
    """
    log = warning_log()
    options = checked_options(
        EncodeOptions, "encode", output=output, column=column, store_dtype=store_dtype, shard_size=shard_size,
        devices=devices, processes=processes, **encoder,
    )
    if options.column is not None and not isinstance(texts, str | Path):
        raise UsageError(f"column={options.column!r} has no effect on texts that are given: it is of a file")
    source = Texts(str(texts), options.column) if isinstance(texts, str | Path) else GivenTexts(texts)
    names = chosen_devices(options.devices, options.processes, options.device)
    if names:
        if not isinstance(model, str | os.PathLike):
            raise EncoderError("devices and processes need a model that each process can load by its name, a string")
        options = replace(options, model=os.fspath(model))
    with _bar_shown() as progress:
        store = encoded(loaded_encoder(model, options), options, source, options.output, options, names, log, progress)
    for line in remarks(store):
        log(f"warning: {store.folder}: {line}")
    for line in source.notes:
        log(f"warning: {line}")
    return store


def encoded(
    encoder: Encoder, options: EncoderOptions, texts: Texts, folder: Path, storing: StoreOptions, devices: list[str | None],
    log: Callable[[str], None], progress: Callable[[Pace], None] | None = None,
) -> VectorStore:
    """`build_store`, in a process for each of `devices`, or here where there are none. options: those of `encoder`."""
    workers = Workers(options.model, options, devices, encoder) if devices else None
    try:
        return build_store(
            encoder, texts, folder, dtype=storing.store_dtype, shard_rows=storing.shard_size, runner=workers, log=log,
            progress=progress,
        )
    finally:
        if workers is not None:
            workers.close()


@contextmanager
def _bar_shown() -> Iterator[Callable[[Pace], None] | None]:
    """Yield what shows a Pace in a notebook, as a bar of texts whose number may be an estimate; None elsewhere."""
    if not in_notebook():
        yield None
        return
    bars: list[Any] = []

    def show(pace: Pace) -> None:
        if not bars:  # a widget has the total that it was made with
            bars.append(make_bar(total=pace.total, initial=pace.kept, desc="encoding", unit="text"))
        bars[0].total = pace.total
        bars[0].update(pace.texts - bars[0].n)

    try:
        yield show
    finally:
        for bar in bars:
            bar.close()


def remarks(store: VectorStore) -> Iterator[str]:
    """A line for each thing that a user must know of a store."""
    manifest = store.manifest
    if count := manifest.total("empty"):
        yield f"{count:,} empty texts, encoded as such"
    if count := manifest.total("truncated"):
        yield f"{count:,} texts truncated to the model's limit"
    if clipped := manifest.total("clipped"):
        share = clipped / (manifest.rows * manifest.dimension)
        yield f"{clipped:,} numbers ({share:.2%}) were cut to int8's scale, which is of {manifest.calibration}"
