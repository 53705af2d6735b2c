"""Retrieval: ranks of relevant texts by cosine, and recall, hit rate, precision, reciprocal rank, MAP and nDCG of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from stsbench.errors import ScoreError
from stsbench.metrics.similarity import paired_similarity

Floats = NDArray[np.float64]
Index = NDArray[np.int64]
TIES = ("worst", "mid")
# Cosines that differ by no more than this count as equal. Two vectors of one direction and different lengths, rounded to
# float32, are up to 2^-24 off in direction, so that their cosines with a third vector differ by up to 2^-23.
TIED = 2.0**-23
_QUERIES = 256  # queries, and relevant texts, in a block
_PAIRS = 2048  # pairs of a query and a relevant text in a block


def relevant_ranks(
    queries: Any,
    corpus: Any,
    relevant: Sequence[Sequence[int]],
    exclude: Sequence[Sequence[int]] | None = None,
    *,
    ties: str = "worst",
    block: int = 4096,
) -> tuple[Floats, Index]:
    """Return the ranks of all relevant texts, float64 (m,), 1 the best, and the query of each, int64 (m,).

    queries (q, d), corpus (n, d): dense or CSR, ranked by cosine in float64. relevant: for each query distinct corpus
    positions, at least one, -1 for a text that is not in the corpus: its rank is infinite; exclude: positions that are
    never counted, such as the query itself.
    The rank is 1 + the number of corpus texts with a larger cosine + those that tie with it (at most 2^-23 apart): `ties`
    "worst" counts every irrelevant one as ranked before it, "mid" half of them. Relevant texts of one query that tie with
    one another take consecutive ranks in the given order.
    Memory beside the arguments: about 16 * block * (d + 1024) bytes. Raises ScoreError for a query without relevant
    text, a relevant text that is excluded, and vectors that are not finite.
    """
    if ties not in TIES:
        raise ValueError(f"unknown ties '{ties}'; known: {', '.join(TIES)}")
    exclude = [()] * len(relevant) if exclude is None else exclude
    _check(relevant, exclude, corpus.shape[0])
    every = np.repeat(np.arange(len(relevant)), [len(texts) for texts in relevant])
    position = np.array([index for texts in relevant for index in texts], dtype=np.int64)
    ranks, present = np.full(len(every), np.inf), position >= 0
    if not present.any():
        return ranks, every
    query, position = every[present], position[present]
    score = np.concatenate([
        paired_similarity(queries[query[low : low + _PAIRS]], corpus[position[low : low + _PAIRS]])
        for low in range(0, len(query), _PAIRS)
    ])
    hidden = np.array([(i, index) for i, texts in enumerate(exclude) for index in texts], np.int64).reshape(-1, 2)
    larger, tied = np.zeros(len(query)), np.zeros(len(query))
    for start in range(0, corpus.shape[0], block):
        rows = _unit(corpus[start : start + block], "corpus row", start)
        here = hidden[(hidden[:, 1] >= start) & (hidden[:, 1] < start + block)]
        for low in range(0, len(relevant), _QUERIES):
            products = _unit(queries[low : low + _QUERIES], "query", low) @ rows.T
            cosines = np.asarray(products.toarray() if sparse.issparse(rows) else products, dtype=np.float64)
            excluded = here[(here[:, 0] >= low) & (here[:, 0] < low + _QUERIES)]
            cosines[excluded[:, 0] - low, excluded[:, 1] - start] = -np.inf
            first, last = np.searchsorted(query, [low, low + _QUERIES])
            for some in range(first, last, _QUERIES):
                these = slice(some, min(some + _QUERIES, last))
                against = cosines[query[these] - low]
                above = np.count_nonzero(against > (score[these] + TIED)[:, None], axis=1)
                larger[these] += above
                tied[these] += np.count_nonzero(against >= (score[these] - TIED)[:, None], axis=1) - above
    among, before = _relevant_ties(score, query)
    ranks[present] = 1 + larger + before + (tied - among) * (1.0 if ties == "worst" else 0.5)
    return ranks, every


def recall(ranks: Floats, query: Index, k: int) -> Floats:
    """Return (q,) the share of each query's relevant texts that are in its top k (recall_k of trec_eval; Manning et al.
    2008, 8.4).

    With one relevant text a query this is 0 or 1, and its mean is DiffCSE's recall@k (Chuang et al. 2022, table 10).
    """
    return np.asarray(np.bincount(query, ranks <= k) / np.bincount(query))


def hit(ranks: Floats, query: Index, k: int) -> Floats:
    """Return (q,) 1 where at least one relevant text is in the top k, else 0 (success_k of trec_eval).

    Image-caption retrieval calls this R@k although an image has five captions (Faghri et al. 2018, VSE++).
    """
    return np.asarray(_best(ranks, query) <= k, dtype=np.float64)


def reciprocal_rank(ranks: Floats, query: Index, k: int | None = None) -> Floats:
    """Return (q,) 1 / the rank of the best relevant text (Voorhees 1999), 0 for a rank beyond k or infinite; the mean over
    queries is the MRR."""
    best = _best(ranks, query)
    return np.asarray(np.where(best <= (np.inf if k is None else k), 1 / best, 0.0))


def precision(ranks: Floats, query: Index, k: int) -> Floats:
    """Return (q,) the number of relevant texts in a query's top k, divided by k (P_k of trec_eval)."""
    return np.asarray(np.bincount(query, ranks <= k) / k)


def average_precision(ranks: Floats, query: Index) -> Floats:
    """Return (q,) the mean over a query's relevant texts of the precision at their rank, 0 for an infinite rank (map of
    trec_eval; Manning et al. 2008, 8.4)."""
    order = np.lexsort((ranks, query))
    sizes = np.bincount(query)
    nth = np.arange(len(query)) - np.repeat(np.cumsum(sizes) - sizes, sizes) + 1
    return np.asarray(np.bincount(query[order], nth / ranks[order]) / sizes)


def ndcg(ranks: Floats, query: Index, gains: Floats, k: int) -> Floats:
    """Return (q,) the discounted gain of a query's top k, divided by that of the best order of its relevant texts
    (ndcg_cut_k of trec_eval; Järvelin and Kekäläinen 2002): a text of gain g at rank r contributes g / log2(1 + r).

    gains: (m,), of the relevant texts in the order of `ranks`. Raises ScoreError for one that is not finite and above 0.
    """
    if not (np.isfinite(gains) & (gains > 0)).all():
        raise ScoreError("a gain must be a finite number above 0")
    with np.errstate(divide="ignore"):
        reached = np.where(ranks <= k, gains / np.log2(1 + ranks), 0.0)
    order = np.lexsort((-gains, query))
    sizes = np.bincount(query)
    nth = np.arange(len(query)) - np.repeat(np.cumsum(sizes) - sizes, sizes) + 1
    ideal = np.where(nth <= k, gains[order] / np.log2(1 + nth), 0.0)
    return np.asarray(np.bincount(query, reached) / np.bincount(query[order], ideal))


def _best(ranks: Floats, query: Index) -> Floats:
    best = np.full(int(query.max()) + 1, np.inf)
    np.minimum.at(best, query, ranks)
    return best


def _check(relevant: Sequence[Sequence[int]], exclude: Sequence[Sequence[int]], n: int) -> None:
    if not len(relevant):
        raise ScoreError("there are no queries")
    for number, (wanted, excluded) in enumerate(zip(relevant, exclude, strict=True)):
        if not wanted:
            raise ScoreError(f"query {number} (from 0) has no relevant text")
        known = [index for index in wanted if index != -1]
        if len(set(known)) < len(known) or not all(0 <= index < n for index in known):
            raise ScoreError(f"query {number} (from 0): relevant positions must be distinct and below {n}")
        if set(wanted) & set(excluded):
            raise ScoreError(f"query {number} (from 0): its relevant text is the query itself, which is never counted")


def _unit(rows: Any, kind: str, start: int) -> Any:
    """Return float64 rows of length 1; zero rows stay zero."""
    many = sparse.issparse(rows)
    rows = rows.tocsr().astype(np.float64) if many else np.asarray(rows, np.float64)
    squares = np.asarray(rows.multiply(rows).sum(axis=1)).ravel() if many else np.einsum("nd,nd->n", rows, rows)
    if not np.isfinite(squares).all():
        raise ScoreError(f"{kind} {start + int(np.argmin(np.isfinite(squares)))} (from 0) contains NaN or infinity")
    factors = np.divide(1, np.sqrt(squares), out=np.zeros_like(squares), where=squares > 0)
    return sparse.diags(factors) @ rows if many else rows * factors[:, None]


def _relevant_ties(score: Floats, query: Index) -> tuple[Floats, Floats]:
    """Return, for each relevant text, how many of its query's relevant texts tie with it, itself included, and how many of
    these precede it."""
    among, before = np.ones(len(score)), np.zeros(len(score))
    starts = np.flatnonzero(np.r_[True, query[1:] != query[:-1]])
    for low, high in zip(starts, np.r_[starts[1:], len(query)], strict=True):
        if high - low > 1:
            equal = np.abs(score[low:high, None] - score[None, low:high]) <= TIED
            among[low:high] = equal.sum(axis=1)
            before[low:high] = np.tril(equal, -1).sum(axis=1)
    return among, before
