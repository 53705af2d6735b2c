"""`stsbench neighbours`: the lines of a text file, or the sentences of a data set, that are nearest to a query."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from stsbench.cli.options import options_of
from stsbench.cli.output.messages import echo
from stsbench.encoders.options import CacheOptions, EncoderOptions
from stsbench.errors import DataError
from stsbench.wording import counted


@click.command("neighbours")
@options_of(EncoderOptions, CacheOptions)
@click.option("--corpus", required=True, metavar="FILE|SET|DIR", help="UTF-8, one text per line, blank lines skipped; a "
              "data set whose sentences are searched, e.g. stsb/test (`stsbench list data`); or a folder that `stsbench "
              "encode` wrote, whose vectors are read.")
@click.option("--column", type=click.IntRange(min=1), help="Which tab-separated column of the corpus holds the text, from "
              "1; needed where lines hold tabs (Flickr30k's image.jpg#0<TAB>caption: 2).")
@click.option("--data-dir", type=click.Path(path_type=Path), help="For a SET: a folder in SentEval's layout.")
@click.option("--sample", is_flag=True, help="For a SET: the small sample inside the package.")
@click.option("--query", "queries", multiple=True, metavar="TEXT", help="Repeat for several queries.")
@click.option("--query-file", type=click.Path(path_type=Path), metavar="FILE", help="More queries, one per line.")
@click.option("--top", type=click.IntRange(min=1), default=3, show_default=True, help="Neighbours of each query.")
@click.option("--backend", type=click.Choice(["exact", "faiss"]), default="exact", show_default=True,
              help="faiss needs faiss-cpu.")
@click.option("--json", "json_target", metavar="FILE|-", help="Write the rows as JSON; - makes stdout pure JSON.")
def neighbours(
    model: str, corpus: str, column: int | None, data_dir: Path | None, sample: bool, queries: Sequence[str],
    query_file: Path | None, top: int, backend: str, json_target: str | None, cache_dir: Path | None, cache_limit: float,
    no_cache: bool, **how: Any,
) -> int:
    """Find the lines of a text file, or the sentences of a data set, nearest to a query, by cosine.

    Equal lines are one text: the first line is shown, with the number of further copies. A line equal to the query is shown
    too, with cosine 1. For a data set the number is that of the item: both sentences of the first pair have 1.
    """
    from stsbench.cli.output.json_file import write_json
    from stsbench.cli.output.progress import progress_bar
    from stsbench.encoders.cache.cache import EmbeddingCache
    from stsbench.encoders.cache.embed import Embed
    from stsbench.encoders.load import load_encoder
    from stsbench.encoders.store.manifest import is_store
    from stsbench.encoders.store.nearest import check_same_encoder
    from stsbench.encoders.store.vectors import VectorStore
    from stsbench.files import cache_root
    from stsbench.metrics.similarity import zero_rows

    if cache_dir and no_cache:
        raise click.UsageError("--cache and --no-cache exclude each other")
    asked = [text for text in (" ".join(query.split()) for query in queries) if text]
    if query_file:
        asked += read_lines(query_file, None)
    asked = list(dict.fromkeys(asked))
    if not asked:
        what = "the queries are empty" if queries or query_file else "no query"
        raise click.UsageError(f"{what}: give --query TEXT or --query-file FILE")
    stored = is_store(Path(corpus))
    if stored and (column is not None or data_dir or sample):
        raise click.UsageError(f"--column, --data-dir and --sample do not apply to {corpus}, a folder of vectors")
    lines, unit = ({}, "line") if stored else _corpus(corpus, column, data_dir, sample, how["offline"])
    texts, name = list(lines), Path(corpus).name if unit == "line" else corpus
    encoder = load_encoder(model, **how)
    for note in encoder.notes:
        echo(note, err=True)
    cache = None if no_cache else EmbeddingCache(cache_dir or cache_root() / "embeddings", int(cache_limit * 1e9))
    store = VectorStore(Path(corpus)) if stored else None
    if store is not None:
        check_same_encoder(store, encoder)
    everything = list(dict.fromkeys([*texts, *asked]))
    with progress_bar() as progress:
        embed = Embed(encoder, cache, progress(len(everything)) if progress else None).for_set(texts, _named(name, texts))
        embed.add(everything)
    if problem := embed.unusable(everything):
        raise DataError(problem)
    for query, zero in zip(asked, zero_rows(embed(asked)), strict=True):
        if zero:
            echo(f"the vector of the query '{query}' is zero: every cosine is 0 and the order is arbitrary", err=True)
    if store is None:
        rows = _rows(asked, texts, lines, unit, embed, top, backend)
    else:
        rows = _stored_rows(asked, store, embed, top, backend)
    if json_target:
        write_json(rows, json_target)
    if json_target != "-":
        _print(rows, unit)
    return 0


def _corpus(
    corpus: str, column: int | None, data_dir: Path | None, sample: bool, offline: bool
) -> tuple[dict[str, list[int]], str]:
    """Text -> where it stands, from 1, and what is counted there: "line" of a file, "item" of a set of the catalog."""
    from stsbench.data.sets.catalog import entries

    if Path(corpus).exists() or corpus not in {item.id for item in entries()}:
        if data_dir or sample:
            raise click.UsageError(f"--data-dir and --sample need a data set as --corpus; {corpus} is not one")
        return read_lines(Path(corpus), column), "line"
    if column is not None:
        raise click.UsageError(f"--column needs a file as --corpus; {corpus} is a data set")
    if data_dir and sample:
        raise click.UsageError("--sample and --data-dir exclude each other")
    return read_set(corpus, data_dir=data_dir, sample=sample, offline=offline), "item"


def read_set(
    set_id: str, *, data_dir: Path | None = None, sample: bool = False, offline: bool = False
) -> dict[str, list[int]]:
    """Text -> the numbers of its items (from 1): of pairs first all first sentences, then all second ones.

    Raises DataError for a set that is not here or damaged; what it warns of goes to stderr.
    """
    from stsbench.data.fetch.sources import load
    from stsbench.data.sets.sets import fed

    data = load(set_id, data_dir=data_dir, sample=sample, offline=offline)
    for line in data.warnings:
        echo(f"warning: {line}", err=True)
    items: dict[str, list[int]] = {}
    for part in (data.first, data.second):
        for number, text in enumerate(fed(part), start=1):
            items.setdefault(text, []).append(number)
    return items


def read_lines(path: Path, column: int | None) -> dict[str, list[int]]:
    """Text -> the numbers of its lines (from 1), in file order; runs of whitespace become one space, blank texts go.

    Raises DataError naming file and line for text that is not UTF-8, for tabs without a column, for too few columns.
    """
    from stsbench.data.sets.lines import numbered_lines

    numbers: dict[str, list[int]] = {}
    for number, line in numbered_lines(path):
        if not line.strip():
            continue
        cells = line.split("\t")
        if column is None and len(cells) > 1:
            raise DataError(f"{path}:{number} contains a tab: choose the column of the text, e.g. --column {len(cells)}")
        if column is not None and len(cells) < column:
            columns = counted(len(cells), "column")
            raise DataError(f"{path}:{number} has {columns}: there is no --column {column}")
        if text := " ".join(cells[(column or 1) - 1].split()):
            numbers.setdefault(text, []).append(number)
    if not numbers:
        raise DataError(f"{path} contains no text")
    return numbers


def _named(name: str, texts: Sequence[str]) -> str:
    """What an encoder that is fitted on the corpus was fitted on."""
    import hashlib

    return f"{name}@{hashlib.sha256(chr(10).join(texts).encode()).hexdigest()}"


def _rows(
    asked: Sequence[str], texts: Sequence[str], lines: dict[str, list[int]], unit: str, embed: Any, top: int, backend: str
) -> list[dict[str, Any]]:
    from stsbench.metrics.nearest import nearest

    scores, indices = nearest(embed(asked), embed(texts), min(top, len(texts)), cosine=True, backend=backend)
    return [
        {"query": query, "rank": rank + 1, "cosine": float(scores[i, rank]), unit: lines[texts[index]][0],
         "copies": len(lines[texts[index]]), "text": texts[index]}
        for i, query in enumerate(asked) for rank, index in enumerate(indices[i].tolist())
    ]


def _stored_rows(asked: Sequence[str], store: Any, embed: Any, top: int, backend: str) -> list[dict[str, Any]]:
    """The same of a folder of vectors; its row i is line i + 1 of what was encoded."""
    from stsbench.encoders.store.nearest import neighbours_in

    lists = neighbours_in(store, embed(asked), top, backend=backend)
    return [
        {"query": query, "rank": rank, "cosine": neighbour.cosine, "line": neighbour.row + 1, "copies": neighbour.copies,
         "text": neighbour.text}
        for query, neighbours in zip(asked, lists, strict=True) for rank, neighbour in enumerate(neighbours, start=1)
    ]


def _print(rows: Sequence[dict[str, Any]], unit: str) -> None:
    from stsbench.cli.output.grid import Column, console_of, print_columns, print_text

    console = console_of()
    for query in dict.fromkeys(row["query"] for row in rows):
        its = [row for row in rows if row["query"] == query]
        units = [str(row[unit]) + (f" (+{row['copies'] - 1} more)" if row["copies"] > 1 else "") for row in its]
        print_text(console, f"query: {query}")
        print_columns(console, [
            Column("rank", [str(row["rank"]) for row in its]), Column("cosine", [f"{row['cosine']:.4f}" for row in its]),
            Column(unit, units), Column("text", [row["text"] for row in its], True, max(20, console.width - 45)),
        ])
