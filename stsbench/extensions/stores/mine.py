"""`mine_negatives`: hard negative mining, texts near an anchor by an encoder that are not its positives."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Unpack

import numpy as np
from numpy.typing import NDArray

from stsbench.config import checked_options
from stsbench.data.own.source import is_in_memory, rows_file
from stsbench.data.own.table import column_names, is_table
from stsbench.data.own.texts import Texts
from stsbench.data.text.rows import is_known_header, read_rows
from stsbench.display.table import Column, Document, Table
from stsbench.display.tabular import Tabular, arrow_table
from stsbench.encoders.base import Encoder, EncoderOptions, Progress
from stsbench.encoders.cache.cache import EmbeddingCache
from stsbench.encoders.cache.embed import Embed
from stsbench.encoders.load import load_encoder, loaded_encoder
from stsbench.encoders.options import CacheOptions
from stsbench.errors import DataError, StsbenchError, UsageError
from stsbench.extensions.stores.options import MiningOptions
from stsbench.extensions.stores.search import nearest, rescored
from stsbench.options import takes
from stsbench.wording import counted

if TYPE_CHECKING:
    import pyarrow as pa

    from stsbench.extensions.arguments import EncoderArguments

_BOUNDS = ("absolute_margin", "relative_margin", "max_score", "min_score")
_PER_NEGATIVE = 10  # candidates per negative where bounds may exclude some


@dataclass(frozen=True, kw_only=True)
class MineOptions(EncoderOptions, CacheOptions, MiningOptions):
    """All options of `mine_negatives` besides the model and the pairs."""


@dataclass(frozen=True, repr=False)
class MinedNegatives(Tabular):
    """Triplets, as `rows` of anchor, positive and negative; counts: numbers of anchors, texts and excluded candidates.

    In a row, `cosine` is the model's cosine of anchor and negative, `positive_cosine` that of anchor and positive.
    """

    rows: list[dict[str, Any]]
    counts: Mapping[str, int]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def __repr__(self) -> str:
        return f"<MinedNegatives: {counted(len(self), 'triplet')}; print it>"

    def document(self) -> Document:
        """Return a table of the numbers of triplets, anchors, texts and excluded candidates."""
        counts = {"triplets": len(self), **self.counts}
        numbers = [f"{count:,}" for count in counts.values()]
        return Document([Table("mined", [Column("what", list(counts), words=True), Column("count", numbers, words=False)])])

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table."""
        return arrow_table(self.rows)

    def write(self, stream: IO[str]) -> None:
        """Write the triplets as JSON lines, which `stsbench train --data` reads."""
        for row in self.rows:
            texts = {role: row[role] for role in ("anchor", "positive", "negative")}
            stream.write(json.dumps(texts, ensure_ascii=False) + "\n")


@takes(MineOptions, without=["model"])
def mine_negatives(
    model: Any, pairs: Any, *, corpus: str | Path | None = None, negatives: int = 3, skip: int = 0, depth: int | None = None,
    absolute_margin: float | None = None, relative_margin: float | None = None, max_score: float | None = None,
    min_score: float | None = None, guide: str | None = None, draw: str = "top", seed: int = 42,
    cache_dir: str | Path | None = None, cache_limit: float = 20.0, no_cache: bool = False,
    **encoder: Unpack[EncoderArguments],
) -> MinedNegatives:
    """Return hard negatives of pairs, as `stsbench mine` finds them: texts near an anchor that are not its positives.

    model: as for `encode`. pairs: a file with the columns anchor and positive, or sent0 and sent1; or (anchor, positive)
    tuples. corpus: a file of further candidates, one per line, besides the positives. negatives: number per anchor. skip:
    number of nearest candidates to pass over; depth: number of nearest candidates to consider, by default `skip` plus
    `negatives` (ten times as many with an upper bound) plus the largest number of positives of an anchor. absolute_margin,
    relative_margin: how far a negative's cosine is at least below the anchor's lowest positive cosine, as a difference or as
    a share of that; max_score, min_score: bounds of a negative's cosine. guide: an encoder, e.g. a better one, whose cosines
    these four apply to; the order stays the model's. draw: take the nearest remaining candidates ("top"), or draw among them
    with `seed` ("random"). All others are options of `load_encoder`.

    Texts that differ only by white space count as one, blank ones are left out. Nothing is printed. Raises StsbenchError,
    one line, for unreadable pairs, no pairs, an unknown model, or where no negative is found.
    Source: sentence-transformers, mine_hard_negatives; margins: Moreira et al. (2024), NV-Retriever.

    >>> from stsbench.extensions.stores.mine import mine_negatives
    >>> pairs = [("a cat sleeps", "a cat is asleep"), ("a dog runs", "a dog is running"), ("a cat eats", "it has food")]
    >>> triplets = mine_negatives("lexical:token-set", pairs, negatives=1)
    >>> [row["negative"] for row in triplets]
    ['a dog is running', 'a cat is asleep', 'a cat is asleep']
    """
    options = checked_options(
        MineOptions, "mine_negatives", corpus=corpus, negatives=negatives, skip=skip, depth=depth,
        absolute_margin=absolute_margin, relative_margin=relative_margin, max_score=max_score, min_score=min_score,
        guide=guide, draw=draw, seed=seed, cache_dir=cache_dir, cache_limit=cache_limit, no_cache=no_cache, **encoder,
    )
    file = rows_file(pairs, "pairs", cached=False) if is_in_memory(pairs) else Path(pairs)
    return mine_pairs(loaded_encoder(model, options), read_pairs(file), options)


def read_pairs(path: Path) -> dict[str, list[str]]:
    """Return anchor -> its distinct positives. Raises DataError, one line, for a file without pairs."""
    names = column_names(path) if is_table(path) else []
    rows = read_rows(path) if is_known_header(names) else None
    if rows is None or not {"anchor", "positive"} <= {*rows.roles}:
        raise DataError(f"{path}: pairs need the columns anchor and positive, or sent0 and sent1, and there are "
                        f"{', '.join(names) or 'none'}")
    first, second = rows.roles.index("anchor"), rows.roles.index("positive")
    pairs: dict[str, dict[str, str]] = {}
    spelling: dict[str, str] = {}
    for _, texts in rows:
        if texts and _key(texts[first]) and _key(texts[second]):
            anchor = spelling.setdefault(_key(texts[first]), texts[first])
            pairs.setdefault(anchor, {}).setdefault(_key(texts[second]), texts[second])
    if not pairs:
        raise DataError(f"{path} holds no pair of texts")
    return {anchor: [*positives.values()] for anchor, positives in pairs.items()}


def mine_pairs(
    encoder: Encoder, pairs: Mapping[str, Sequence[str]], options: MineOptions,
    progress: Callable[[int], Progress] | None = None,
) -> MinedNegatives:
    """Return the hard negatives of `pairs`, anchor -> positives. Raises DataError for NaN vectors or without negatives."""
    most = max(map(len, pairs.values()))
    depth, cache, guide = _depth(options, most), EmbeddingCache.from_options(options), _guide(options)
    further = [] if options.corpus is None else [text for _, text in Texts(str(options.corpus), None).numbered()]
    anchors, spelling = list(pairs), dict[str, str]()
    for text in (*further, *(text for positives in pairs.values() for text in positives)):
        spelling.setdefault(_key(text), text)
    spelling.pop("", None)
    texts, rows = list(spelling.values()), {key: row for row, key in enumerate(spelling)}
    positives = [[rows[_key(text)] for text in pairs[anchor]] for anchor in anchors]
    itself = [rows.get(_key(anchor), -1) for anchor in anchors]
    embed = Embed(encoder, cache, None if progress is None else progress(len(anchors) + len(texts)))
    vectors = _vectors(embed, anchors, texts)
    cosines, candidates = nearest(*vectors, min(depth + most + (max(itself) >= 0), len(texts)), cosine=True)
    positive_cosines = _paired(vectors, positives)
    scores, positive_scores = list(cosines), positive_cosines
    if guide is not None:
        judged = _vectors(Embed(guide, cache), anchors, texts)
        scores, positive_scores = _paired(judged, candidates.tolist()), _paired(judged, positives)
    rng, triplets, counts = np.random.default_rng(options.seed), [], Counter[str]()
    for number, anchor in enumerate(anchors):
        allowed = ~np.isin(candidates[number], [*positives[number], itself[number]])
        counts["candidates that are positives or the anchor itself"] += int((~allowed).sum())
        allowed &= _within(options, scores[number], float(positive_scores[number].min()), allowed, counts)
        ranks = np.flatnonzero(allowed)[:depth][options.skip :]
        if options.draw == "random" and len(ranks) > options.negatives:
            ranks = np.sort(rng.choice(ranks, options.negatives, replace=False))
        ranks = ranks[: options.negatives]
        counts["anchors with fewer negatives than asked for"] += len(ranks) < options.negatives
        triplets += [
            {"anchor": anchor, "positive": positive, "negative": texts[candidates[number, rank]],
             "cosine": float(cosines[number, rank]), "positive_cosine": float(cosine)}
            for positive, cosine in zip(pairs[anchor], positive_cosines[number], strict=True) for rank in ranks
        ]
    if not triplets:
        raise DataError(f"no text is a negative: of {counted(len(texts), 'text')} all are positives, the anchor itself or "
                        "beyond a bound")
    sizes = {"anchors": len(anchors), "texts among which negatives were looked for": len(texts)}
    return MinedNegatives(triplets, {**sizes, **counts})


def _key(text: str) -> str:
    return " ".join(text.split())


def _guide(options: MineOptions) -> Encoder | None:
    """Return the encoder of --guide, None without one. Raises StsbenchError for an unknown model."""
    if options.guide is None:
        return None
    try:
        return load_encoder(options.guide, device=options.device, offline=options.offline)
    except StsbenchError as error:
        raise StsbenchError(f"--guide: {str(error).removeprefix('--model ')}") from error


def _depth(options: MineOptions, most: int) -> int:
    """Return how many nearest candidates to consider. Raises UsageError for fewer than `skip` and `negatives` need."""
    bounds = [name for name in _BOUNDS if getattr(options, name) is not None]
    if options.guide is not None and not bounds:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in _BOUNDS)
        raise UsageError(f"--guide says what is too near, and by which bound has to be said: give one of {flags}")
    depth = options.depth
    if depth is None:
        several = options.guide is not None or {*bounds} - {"min_score"}  # min_score excludes the farthest alone
        depth = options.skip + options.negatives * (_PER_NEGATIVE if several else 1) + most
    if depth < options.skip + options.negatives:
        raise UsageError(f"--depth {depth} leaves no {counted(options.negatives, 'negative')} behind --skip {options.skip}")
    return depth


def _vectors(embed: Embed, anchors: Sequence[str], texts: Sequence[str]) -> tuple[Any, Any]:
    """Return the vectors of anchors as queries and of texts as documents. Raises DataError for one that is not finite."""
    source = hashlib.sha256("\n".join([*anchors, *texts]).encode()).hexdigest()
    whole = embed.for_set([*anchors, *texts], f"pairs@{source}")
    queries, documents = whole.for_role("query"), whole.for_role("document")
    if problem := queries.unusable(anchors) or documents.unusable(texts):
        raise DataError(problem)
    return queries(anchors), documents(texts)


def _paired(vectors: tuple[Any, Any], columns: Sequence[Sequence[int]]) -> list[NDArray[np.float32]]:
    """Return for each anchor its cosines with the texts at the positions `columns`."""
    sizes = [len(row) for row in columns]
    queries = np.repeat(np.arange(len(columns)), sizes)
    cosines = rescored(*vectors, queries, np.concatenate([np.asarray(row, np.int64) for row in columns]), True)
    return np.split(cosines, np.cumsum(sizes)[:-1])


def _within(
    options: MineOptions, cosines: NDArray[np.float32], lowest: float, allowed: NDArray[np.bool_], counts: Counter[str]
) -> NDArray[np.bool_]:
    """Return a mask of the `allowed` candidates of an anchor that are within the bounds, and count the excluded ones.
    lowest: the anchor's lowest cosine with a positive."""
    left = allowed.copy()
    relative = None if options.relative_margin is None else lowest - abs(lowest) * options.relative_margin
    absolute = None if options.absolute_margin is None else lowest - options.absolute_margin
    for name, limit in (("absolute_margin", absolute), ("relative_margin", relative), ("max_score", options.max_score)):
        if limit is not None:
            counts[f"candidates above {name}"] += int((left & (cosines > limit)).sum())
            left &= cosines <= limit
    if options.min_score is not None:
        counts["candidates below min_score"] += int((left & (cosines < options.min_score)).sum())
        left &= cosines >= options.min_score
    return left
