"""What `stsbench mine` does, for callers in Python: texts that an encoder finds near an anchor and that are no positives of
it, as hard negatives of a training."""

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
_PER_NEGATIVE = 10  # candidates looked at for each negative, where some may be left out


@dataclass(frozen=True, kw_only=True)
class MineOptions(EncoderOptions, CacheOptions, MiningOptions):
    """All that `mine_negatives` takes besides the model and the pairs."""


@dataclass(frozen=True, repr=False)
class MinedNegatives(Tabular):
    """Triplets, as `rows` of anchor, positive and negative; counts: what of the candidates was left out, and anchors.

    A negative's cosine with the anchor, by the model, is its `cosine`; `positive_cosine` is that of the pair.
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
        """Return what was found and what was left out."""
        counts = {"triplets": len(self), **self.counts}
        numbers = [f"{count:,}" for count in counts.values()]
        return Document([Table("mined", [Column("what", list(counts), words=True), Column("count", numbers, words=False)])])

    def to_arrow(self) -> pa.Table:
        """Return the rows."""
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
    """Return hard negatives of pairs, as `stsbench mine` finds them: texts near an anchor that are no positives of it.

    model: as `encode` takes it. pairs: a file with the columns anchor and positive, or sent0 and sent1; or rows: tuples of
    an anchor and its positive. corpus: a file of further texts, one a line; without it candidates are the positives.
    negatives: of each anchor. skip: the nearest that are passed over; depth: candidates looked at, by default `skip` and
    `negatives`, ten times as many with a bound, and as many as an anchor has positives at most. absolute_margin,
    relative_margin: what a negative's cosine is below the positive's, the lowest where there are several, at least, by
    itself or as a share of its size; max_score, min_score: its bounds. guide: an encoder by whose cosines these four are
    asked, e.g. a better one; the order stays the model's. draw: the nearest of what is left ("top"), or drawn by `seed`
    ("random"). All others are options of `load_encoder`.

    Texts that differ by white space alone are one, and blank ones are left out. Nothing is printed. Raises StsbenchError,
    one line: not readable, no pairs, no such model, no negative.
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
    """Return the negatives of `pairs`, anchor -> positives. Raises DataError: a vector that is not finite, no negative."""
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
    """Return the encoder that judges, if one is asked for. StsbenchError: there is none of that name."""
    if options.guide is None:
        return None
    try:
        return load_encoder(options.guide, device=options.device, offline=options.offline)
    except StsbenchError as error:
        raise StsbenchError(f"--guide: {str(error).removeprefix('--model ')}") from error


def _depth(options: MineOptions, most: int) -> int:
    """Return how many candidates are looked at beside the positives. UsageError: too few for what is asked for."""
    bounds = [name for name in _BOUNDS if getattr(options, name) is not None]
    if options.guide is not None and not bounds:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in _BOUNDS)
        raise UsageError(f"--guide says what is too near, and by which bound has to be said: give one of {flags}")
    depth = options.depth
    if depth is None:
        several = options.guide is not None or {*bounds} - {"min_score"}  # what is too far is not replaced by what is nearer
        depth = options.skip + options.negatives * (_PER_NEGATIVE if several else 1) + most
    if depth < options.skip + options.negatives:
        raise UsageError(f"--depth {depth} leaves no {counted(options.negatives, 'negative')} behind --skip {options.skip}")
    return depth


def _vectors(embed: Embed, anchors: Sequence[str], texts: Sequence[str]) -> tuple[Any, Any]:
    """Return the vectors of anchors, read as queries, and of texts, as documents. DataError: one that is not finite."""
    source = hashlib.sha256("\n".join([*anchors, *texts]).encode()).hexdigest()
    whole = embed.for_set([*anchors, *texts], f"pairs@{source}")
    queries, documents = whole.for_role("query"), whole.for_role("document")
    if problem := queries.unusable(anchors) or documents.unusable(texts):
        raise DataError(problem)
    return queries(anchors), documents(texts)


def _paired(vectors: tuple[Any, Any], columns: Sequence[Sequence[int]]) -> list[NDArray[np.float32]]:
    """Return, for each anchor, its cosines with the texts at `columns`."""
    sizes = [len(row) for row in columns]
    queries = np.repeat(np.arange(len(columns)), sizes)
    cosines = rescored(*vectors, queries, np.concatenate([np.asarray(row, np.int64) for row in columns]), True)
    return np.split(cosines, np.cumsum(sizes)[:-1])


def _within(
    options: MineOptions, cosines: NDArray[np.float32], lowest: float, allowed: NDArray[np.bool_], counts: Counter[str]
) -> NDArray[np.bool_]:
    """Return which candidates of an anchor the bounds leave, and count the others of those that are `allowed`. lowest: the
    lowest cosine of a positive."""
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
