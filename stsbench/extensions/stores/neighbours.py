"""`stsbench.neighbours`: semantic search, the texts of a corpus that are nearest to queries by cosine."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from stsbench.config import checked_options
from stsbench.data.own.texts import Texts, checked_texts
from stsbench.display.table import Column, Document, Table
from stsbench.display.tabular import Tabular, arrow_table
from stsbench.encoders.base import Encoder, EncoderOptions, Progress
from stsbench.encoders.cache.cache import EmbeddingCache
from stsbench.encoders.cache.embed import Embed
from stsbench.encoders.load import loaded_encoder
from stsbench.encoders.options import CacheOptions
from stsbench.errors import DataError, UsageError, warning_log
from stsbench.extensions.stores.options import NearestOptions
from stsbench.extensions.stores.search import check_same_encoder, nearest, neighbours_in
from stsbench.extensions.stores.shard import is_store
from stsbench.extensions.stores.vectors import VectorStore
from stsbench.metrics.similarity import zero_rows
from stsbench.notebook import in_notebook, start_bar
from stsbench.options import takes
from stsbench.wording import counted

if TYPE_CHECKING:
    import pyarrow as pa

    from stsbench.extensions.arguments import EncoderArguments

Log = Callable[[str], None]
Bar = Callable[[], AbstractContextManager[Callable[[int], Progress] | None]]


@dataclass(frozen=True, repr=False)
class Neighbours(Tabular):
    """The neighbours of each query, best first; a sequence of rows, which are dictionaries.

    Keys of a row: query; rank, from 1; cosine; line, or item for a data set (`unit` names the key): position of the text's
    first occurrence, from 1; copies: how often the text occurs in the corpus; text.
    """

    rows: list[dict[str, Any]]
    unit: str

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.rows[index]

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table."""
        return arrow_table(self.rows)

    def __repr__(self) -> str:
        queries = len({row["query"] for row in self.rows})
        return f"<Neighbours: {counted(len(self), 'row')}, of {queries} quer{'y' if queries == 1 else 'ies'}; print it>"

    def document(self) -> Document:
        """Return a table for each query."""
        return Document([self._table(query) for query in dict.fromkeys(row["query"] for row in self.rows)])

    def _table(self, query: str) -> Table:
        rows = [row for row in self.rows if row["query"] == query]
        lines = [f"{row[self.unit]} (+{row['copies'] - 1} more)" if row["copies"] > 1 else row[self.unit] for row in rows]
        return Table(f"query: {query}", [
            Column("rank", [row["rank"] for row in rows], words=False), Column("cosine", [row["cosine"] for row in rows], 4),
            Column(self.unit, lines, words=False), Column("text", [row["text"] for row in rows], words=True),
        ])


@dataclass(frozen=True)
class Corpus:
    """The searched texts. texts: text -> numbers of its lines or items; store: a folder of vectors with its texts."""

    name: str
    unit: str
    texts: dict[str, list[int]] = field(default_factory=dict)
    store: Path | None = None

    @property
    def fitted_on(self) -> str:
        """Return NAME@SHA256 of the corpus's texts, `fitted_on` in the spec of an encoder that is fitted on them."""
        return f"{self.name}@{hashlib.sha256(chr(10).join(self.texts).encode()).hexdigest()}"


@dataclass(frozen=True, kw_only=True)
class NeighboursOptions(EncoderOptions, CacheOptions, NearestOptions):
    """All options of `neighbours` besides the model, the corpus and the queries."""


@takes(NeighboursOptions, without=["model"], renamed={"query": "queries"})
def neighbours(
    model: Any, corpus: str | Path | VectorStore | Iterable[str], queries: str | Iterable[str] = (), *,
    query_file: str | Path | None = None, top: int = 3, backend: str = "exact", column: int | str | None = None,
    data_dir: str | Path | None = None, sample: bool = False, cache_dir: str | Path | None = None, cache_limit: float = 20.0,
    no_cache: bool = False, **encoder: Unpack[EncoderArguments],
) -> Neighbours:
    """Return the texts of a corpus that are nearest to each query, by cosine, as `stsbench neighbours` finds them.

    model: as for `encode`. corpus: a list of texts; a file as for `encode`; a data set, e.g. "stsb/test"; or a folder of
    vectors that `encode` wrote, or what it returned. queries: one text or several; query_file: a file of further queries,
    one per line. top: neighbours per query; backend: exact, or faiss, which needs faiss-cpu. column: a file's column of
    texts, as for `encode`. data_dir, sample: location of a data set. cache_dir, cache_limit (GB), no_cache: of the cache of
    vectors. All others are options of `load_encoder`.

    Equal texts count as one, blank ones are left out, and a text equal to the query is included, with cosine 1. Nothing is
    printed; a query whose vector is zero is a StsbenchWarning. Raises StsbenchError, one line, without a query, for an
    unreadable corpus, an unknown model, or vectors of another encoder.

    >>> import stsbench
    >>> rows = stsbench.neighbours("lexical:token-set", ["A cat sleeps.", "Rain falls."], "a cat", top=1)
    >>> [(row["rank"], row["text"], round(row["cosine"], 2)) for row in rows]
    [(1, 'A cat sleeps.', 0.71)]
    """
    log = warning_log()
    options = checked_options(
        NeighboursOptions, "neighbours", query_file=query_file, top=top, backend=backend, column=column, data_dir=data_dir,
        sample=sample, cache_dir=cache_dir, cache_limit=cache_limit, no_cache=no_cache, **encoder,
    )
    texts = [queries] if isinstance(queries, str) else list(checked_texts(queries, "query"))
    asked = distinct(texts, options.query_file)
    searched = open_corpus(corpus, options, options.offline, log)
    return nearest_texts(
        loaded_encoder(model, options), searched, asked, options, options, lambda line: log(f"warning: {line}"),
        lambda: nullcontext(start_bar if in_notebook() else None),
    )


def distinct(queries: Sequence[str], query_file: Path | None) -> list[str]:
    """Return the distinct queries, with runs of white space as one space. Raises UsageError where there are none."""
    asked = [text for text in (" ".join(query.split()) for query in queries) if text]
    if query_file:
        asked += read_lines(query_file, None)
    if not asked:
        what = "the queries are empty" if queries or query_file else "no query"
        raise UsageError(f"{what}: give --query TEXT or --query-file FILE")
    return list(dict.fromkeys(asked))


def open_corpus(
    corpus: str | Path | VectorStore | Iterable[str], how: NearestOptions, offline: bool, log: Log
) -> Corpus:
    """Return the corpus of texts, a file, a data set or a store. Raises UsageError for options without effect, DataError."""
    from stsbench.data.sets.catalog import entries

    if not isinstance(corpus, str | Path | VectorStore):
        if how.column is not None:
            raise UsageError(f"column={how.column!r} has no effect on texts that are given: it is of a file")
        return Corpus("texts", "line", _numbered(corpus))
    path = corpus.folder if isinstance(corpus, VectorStore) else Path(corpus)
    if is_store(path):
        if how.column is not None or how.data_dir or how.sample:
            name = path if isinstance(corpus, VectorStore) else corpus
            raise UsageError(f"--column, --data-dir and --sample do not apply to {name}, a folder of vectors")
        return Corpus(path.name, "line", store=path)
    if path.exists() or corpus not in {item.id for item in entries()}:
        if how.data_dir or how.sample:
            raise UsageError(f"--data-dir and --sample need a data set as --corpus; {corpus} is not one")
        if not path.exists() and " " in str(corpus):
            raise UsageError(f"the corpus is a file, a data set or a list of texts, and {corpus!r} is none: a text that is "
                             "searched for goes by queries=")
        return Corpus(path.name, "line", read_lines(path, how.column, log))
    if how.column is not None:
        raise UsageError(f"--column needs a file as --corpus; {corpus} is a data set")
    return Corpus(str(corpus), "item", _read_set(str(corpus), how.data_dir, how.sample, offline, log))


def nearest_texts(
    encoder: Encoder, corpus: Corpus, queries: Sequence[str], keeping: CacheOptions, how: NearestOptions, log: Log, bar: Bar
) -> Neighbours:
    """Return the `how.top` texts nearest to each query. log: called with a line for each query whose vector is zero; bar:
    makes a progress bar."""
    texts, store = list(corpus.texts), None if corpus.store is None else VectorStore(corpus.store)
    if store is not None:
        check_same_encoder(store, encoder)
    everything = list(dict.fromkeys([*texts, *queries]))
    with bar() as progress:
        embed = Embed(encoder, EmbeddingCache.from_options(keeping), progress(len(everything)) if progress else None)
        embed = embed.for_set(texts, corpus.fitted_on)
        embed.add(everything)
    if problem := embed.unusable(everything):
        raise DataError(problem)
    vectors = embed(queries)
    for query, zero in zip(queries, zero_rows(vectors), strict=True):
        if zero:
            log(f"the vector of the query '{query}' is zero: every cosine is 0 and the order is arbitrary")
    if store is not None:
        # row i of a store is line i + 1 of the encoded file
        lists = [[(one.cosine, one.row + 1, one.copies, one.text) for one in neighbours]
                 for neighbours in neighbours_in(store, vectors, how.top, backend=how.backend)]
    else:
        scores, indices = nearest(vectors, embed(texts), min(how.top, len(texts)), cosine=True, backend=how.backend)
        numbers = list(corpus.texts.values())
        lists = [[(float(score), numbers[i][0], len(numbers[i]), texts[i]) for score, i in zip(*row, strict=True)]
                 for row in zip(scores, indices.tolist(), strict=True)]
    return Neighbours([
        {"query": query, "rank": rank, "cosine": cosine, corpus.unit: number, "copies": copies, "text": text}
        for query, row in zip(queries, lists, strict=True)
        for rank, (cosine, number, copies, text) in enumerate(row, start=1)
    ], corpus.unit)


def _read_set(set_id: str, data_dir: Path | None, sample: bool, offline: bool, log: Log) -> dict[str, list[int]]:
    """Return text -> the numbers of its items, from 1; the first sentences of all pairs come before the second ones.

    Raises DataError for a set that is missing or damaged.
    """
    from stsbench.data.fetch.sources import load_data
    from stsbench.data.sets.sets import fed

    data = load_data(set_id, data_dir=data_dir, sample=sample, offline=offline)
    for line in data.warnings:
        log(f"warning: {line}")
    items: dict[str, list[int]] = {}
    for part in (data.first, data.second):
        for number, text in enumerate(fed(part), start=1):
            items.setdefault(text, []).append(number)
    return items


def _numbered(texts: Iterable[str]) -> dict[str, list[int]]:
    """Return text -> its positions among the texts, from 1, with white space treated as by `read_lines`."""
    numbers: dict[str, list[int]] = {}
    for number, text in enumerate(checked_texts(texts, "text"), start=1):
        if text := " ".join(text.split()):
            numbers.setdefault(text, []).append(number)
    if not numbers:
        raise DataError("the corpus contains no text")
    return numbers


def read_lines(path: Path, column: int | str | None, log: Log | None = None) -> dict[str, list[int]]:
    """Return text -> numbers of its lines, from 1, in file order, with runs of white space as one space, no blank texts.

    The file is read as by `encode`. Raises DataError naming file and line for text that is not UTF-8, for tabs without
    `column`, for too few columns.
    """
    numbers: dict[str, list[int]] = {}
    source = Texts(str(path), column)
    for number, text in source.numbered():
        if text := " ".join(text.split()):
            numbers.setdefault(text, []).append(number)
    for line in source.notes:
        if log:
            log(f"warning: {line}")
    if not numbers:
        raise DataError(f"{path} contains no text")
    return numbers
