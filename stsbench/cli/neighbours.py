"""`stsbench neighbours`: the lines of a text file, or the sentences of a data set, that are nearest to a query."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from stsbench.cli.options import options_of, usage_errors
from stsbench.cli.output.messages import echo
from stsbench.encoders.options import CacheOptions, EncoderOptions, NearestOptions


@click.command("neighbours")
@options_of(EncoderOptions, CacheOptions)
@click.option("--corpus", required=True, metavar="FILE|SET|DIR", help="UTF-8, one text per line, blank lines skipped, or "
              "a table (.csv, .tsv, .jsonl, .parquet); a "
              "data set whose sentences are searched, e.g. stsb/test (`stsbench list data`); or a folder that `stsbench "
              "encode` wrote, whose vectors are read.")
@click.option("--column", metavar="NAME|N", help="Which column of the corpus holds the text, as for `stsbench encode`; "
              "needed where lines hold tabs (Flickr30k's image.jpg#0<TAB>caption: 2).")
@click.option("--data-dir", type=click.Path(path_type=Path), help="For a SET: a folder in SentEval's layout.")
@click.option("--sample", is_flag=True, help="For a SET: the small sample inside the package.")
@click.option("--query", "queries", multiple=True, metavar="TEXT", help="Repeat for several queries.")
@click.option("--query-file", type=click.Path(path_type=Path), metavar="FILE", help="More queries, one per line.")
@options_of(NearestOptions)
@click.option("--json", "json_target", metavar="FILE|-", help="Write the rows as JSON; - makes stdout pure JSON.")
def neighbours(
    model: str, corpus: str, column: str | None, data_dir: Path | None, sample: bool, queries: Sequence[str],
    query_file: Path | None, top: int, backend: str, json_target: str | None, cache_dir: Path | None, cache_limit: float,
    no_cache: bool, **how: Any,
) -> int:
    """Find the lines of a text file, or the sentences of a data set, nearest to a query, by cosine.

    Equal lines are one text: the first line is shown, with the number of further copies. A line equal to the query is shown
    too, with cosine 1. For a data set the number is that of the item: both sentences of the first pair have 1.
    """
    from stsbench.cli.output.json_file import write_json
    from stsbench.cli.output.progress import progress_bar
    from stsbench.encoders.load import load_encoder
    from stsbench.encoders.store.neighbours import corpus_of, distinct, nearest_texts

    keeping = CacheOptions(cache_dir=cache_dir, cache_limit=cache_limit, no_cache=no_cache)
    with usage_errors():
        asked = distinct(queries, query_file, keeping)
        searched = corpus_of(corpus, column, data_dir, sample, how["offline"], _tell)
    encoder = load_encoder(model, **how)
    for note in encoder.notes:
        _tell(note)
    nearest = nearest_texts(encoder, searched, asked, keeping, NearestOptions(top=top, backend=backend), _tell, progress_bar)
    if json_target:
        write_json(nearest.rows, json_target)
    if json_target != "-":
        _print(nearest.rows, nearest.unit)
    return 0


def _tell(line: str) -> None:
    echo(line, err=True)


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
