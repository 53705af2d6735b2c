"""Exact k-nearest-neighbour search: the k most similar rows of a corpus for each query, by blocks, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from stsbench.encoders.base import Encoder
from stsbench.errors import EncoderError, ScoreError, StsbenchError
from stsbench.extensions.stores.shard import Floats
from stsbench.extensions.stores.vectors import VectorStore
from stsbench.metrics.similarity import paired_similarity

Positions = NDArray[np.int64]
BACKENDS = ("exact", "faiss")
_QUERIES = 1024  # queries per block
_RESCORED = 2048  # candidates per block
_MORE = 4  # factor by which more rows are searched where copies of a text leave too few distinct texts


def nearest(
    queries: Any,
    corpus: Any,
    k: int,
    *,
    cosine: bool = False,
    exclude: Positions | None = None,
    block: int = 4096,
    progress: Callable[[int], None] | None = None,
    backend: str = "exact",
) -> tuple[Floats, Positions]:
    """Return scores float32 (q, k) and positions int64 (q, k) of the k corpus rows with the largest inner products, best
    first.

    queries: (q, d), dense or CSR. corpus: (n, d) of the same kind, an array or memmap, or an iterable of such blocks.
    cosine: rows are scaled to length 1 first (a zero row's cosine is 0). exclude: int64 (q,), a corpus position that a
    query never retrieves, -1 for none. A score is the float64 product rounded to float32; of equal scores the lower
    position comes first, so that results depend neither on `block` nor on the machine's matrix product. Where the corpus has
    fewer than k rows, positions are -1 and scores -inf. progress: called with the number of corpus rows just searched.

    Memory besides queries, corpus and result: 4 * block * (1024 + 2 d) bytes, 17 MB of products at block = 4096 (about
    twelve times that in the worst case, a corpus of ties throughout, which is also slow).

    backend "faiss" (needs faiss-cpu; dense rows) holds a copy of the corpus; its scores are float32 sums, and the order of
    equal ones may differ. Raises ScoreError for rows that are not finite, StsbenchError without faiss.
    """
    if backend not in BACKENDS:
        raise StsbenchError(f"unknown backend '{backend}'; known: {', '.join(BACKENDS)}")
    if k < 1 or block < 1:
        raise ValueError("k and block must be at least 1")
    excluded = np.full(queries.shape[0], -1, np.int64) if exclude is None else np.asarray(exclude, np.int64)
    search = _faiss if backend == "faiss" else _exact
    return search(queries, split_blocks(corpus, block), k, cosine, excluded, progress or (lambda rows: None))


def split_blocks(corpus: Any, block: int) -> Iterator[Any]:
    """Yield blocks of at most `block` rows of an array, a CSR matrix, or an iterable of either."""
    parts: Iterable[Any] = [corpus] if hasattr(corpus, "shape") else corpus
    for part in parts:
        for start in range(0, part.shape[0], block):
            yield part[start : start + block]


def _exact(
    queries: Any, blocks: Iterator[Any], k: int, cosine: bool, exclude: Positions, progress: Callable[[int], None]
) -> tuple[Floats, Positions]:
    scores = np.full((len(exclude), k), -np.inf, np.float32)
    positions = np.full((len(exclude), k), -1, np.int64)
    start, memory = 0, np.empty(0, np.float32)
    for raw in blocks:
        rows, size = _scaled(raw, cosine, start, "corpus row")
        for low in range(0, len(exclude), _QUERIES):
            part = slice(low, low + _QUERIES)
            asked, asked_size = _scaled(queries[part], cosine, low, "query")
            if len(memory) < asked.shape[0] * rows.shape[0]:
                memory = np.empty(asked.shape[0] * rows.shape[0], np.float32)
            products = _products(asked, rows, memory)
            hidden = exclude[part] - start
            inside = np.flatnonzero((hidden >= 0) & (hidden < rows.shape[0]))
            products[inside, hidden[inside]] = -np.inf
            # Bound of a float32 sum's error (Higham 2002, section 3.1), with room for the scaling and the last rounding.
            margin = np.float32((_terms(rows) + 16) * 2.0**-23 * size * asked_size)
            at, column = _candidates(products, scores[part, -1], k, margin)
            exact = rescored(queries[part], raw, at, column, cosine)
            _merge(scores[part], positions[part], at, exact, column + start)
        start += rows.shape[0]
        progress(rows.shape[0])
    return scores, positions


def _scaled(rows: Any, cosine: bool, start: int, kind: str) -> tuple[Any, float]:
    """Return float32 rows, scaled to length 1 for cosine (zero rows stay zero), and their largest length. Raises ScoreError
    for a row that is not finite."""
    if sparse.issparse(rows):
        rows = rows.tocsr().astype(np.float32)
        squares = np.asarray(rows.multiply(rows).sum(axis=1), np.float64).ravel()
    else:
        rows = np.asarray(rows, np.float32)
        squares = np.einsum("nd,nd->n", rows, rows)
        if not (squares.min(initial=1) > 1e-30 and squares.max(initial=0) < 1e30):  # zero, or out of float32's range
            squares = np.einsum("nd,nd->n", rows, rows, dtype=np.float64)
    if not np.isfinite(squares).all():
        bad = int(np.argmin(np.isfinite(squares)))
        raise ScoreError(f"{kind} {start + bad} (from 0) contains NaN or infinity: it has no neighbours")
    lengths = np.sqrt(squares)
    if not cosine:
        return rows, float(lengths.max(initial=0))
    factors = np.divide(1, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    if sparse.issparse(rows):
        return sparse.diags(factors.astype(np.float32)) @ rows, 1.0
    # The factor of a very short row exceeds float32: such rows are scaled in float64.
    tiny = factors > 1e30
    scaled = rows * np.where(tiny, 0, factors).astype(np.float32)[:, None]
    scaled[tiny] = rows[tiny] * factors[tiny, None]
    return scaled, 1.0


def _terms(rows: Any) -> int:
    return int(np.diff(rows.indptr).max(initial=0)) if sparse.issparse(rows) else int(rows.shape[1])


def _products(queries: Any, rows: Any, memory: Floats) -> Floats:
    if sparse.issparse(rows):
        return np.asarray((queries @ rows.T).toarray(), np.float32)
    out = memory[: queries.shape[0] * rows.shape[0]].reshape(queries.shape[0], rows.shape[0])
    return np.matmul(queries, rows.T, out=out)


def _candidates(products: Floats, worst: Floats, k: int, margin: np.float32) -> tuple[Positions, Positions]:
    """Return (query, column) of every product that may belong to the k best, given each query's k-th best score so far,
    `worst`."""
    floor = worst - margin
    empty = np.flatnonzero(np.isneginf(worst))  # queries with fewer than k rows so far: the block's own k-th best decides
    if len(empty) and products.shape[1] > k:
        kth = products.shape[1] - k
        floor[empty] = np.partition(products[empty], kth, axis=1)[:, kth] - 2 * margin
    hits = np.flatnonzero(products >= floor[:, None])
    hits = hits[~np.isneginf(products.ravel()[hits])]
    at, column = np.divmod(hits, products.shape[1])
    return at, column


def rescored(queries: Any, rows: Any, queries_at: Positions, column: Positions, cosine: bool) -> Floats:
    """Return float32 (m,) scores of m candidates, computed in float64 from the two rows of each alone."""
    out = np.empty(len(queries_at), np.float32)
    for low in range(0, len(queries_at), _RESCORED):
        some = slice(low, low + _RESCORED)
        out[some] = paired_similarity(queries[queries_at[some]], rows[column[some]], "cosine" if cosine else "dot")
    return out


def _merge(scores: Floats, positions: Positions, queries: Positions, exact: Floats, where: Positions) -> None:
    """Merge m candidates (query, score, position) into the k best of each query, in place."""
    k = scores.shape[1]
    touched, group = np.unique(queries, return_inverse=True)
    group = np.concatenate([group, np.repeat(np.arange(len(touched)), k)])
    score = np.concatenate([exact, scores[touched].ravel()])
    position = np.concatenate([where, positions[touched].ravel()])
    order = np.lexsort((position, -score, group))
    first = np.searchsorted(group[order], np.arange(len(touched)))
    best = order[first[:, None] + np.arange(k)]
    scores[touched], positions[touched] = score[best], position[best]


def _faiss(
    queries: Any, blocks: Iterator[Any], k: int, cosine: bool, exclude: Positions, progress: Callable[[int], None]
) -> tuple[Floats, Positions]:
    try:
        import faiss
    except ImportError as error:
        raise StsbenchError("backend faiss is not installed: pip install 'stsbench[stores]', or use exact") from error
    if sparse.issparse(queries):
        raise StsbenchError("backend faiss takes dense vectors only: use exact for this encoder")
    index = faiss.IndexFlatIP(queries.shape[1])
    for raw in blocks:
        index.add(np.ascontiguousarray(_scaled(raw, cosine, index.ntotal, "corpus row")[0]))
        progress(raw.shape[0])
    spare = int((exclude >= 0).any())  # room for the excluded row
    scores, positions = index.search(np.ascontiguousarray(_scaled(queries, cosine, 0, "query")[0]), k + spare)
    if spare:
        keep = (positions != exclude[:, None]) | (positions < 0)
        order = np.argsort(~keep, axis=1, kind="stable")[:, :k]
        scores, positions = np.take_along_axis(scores, order, 1), np.take_along_axis(positions, order, 1)
    return np.where(positions < 0, -np.inf, scores).astype(np.float32), positions.astype(np.int64)


@dataclass(frozen=True)
class Neighbour:
    """One distinct text of a store. row: its first row, from 0; copies: number of rows with this text."""

    row: int
    cosine: float
    copies: int
    text: str


def neighbours_in(
    store: VectorStore, queries: Floats, top: int, *, backend: str = "exact"
) -> list[list[Neighbour]]:
    """Return for each of q vectors (q, d) the `top` most similar distinct, non-empty texts by cosine, best first.

    Memory and errors are as for `nearest`.
    """
    many = top
    while True:
        many = min(many, len(store))
        scores, indices = nearest(queries, store.blocks(), many, cosine=True, backend=backend)
        texts = store.texts(indices.ravel())
        rows = [texts[i * many : (i + 1) * many] for i in range(len(queries))]
        if many == len(store) or all(len(set(row) - {""}) >= top for row in rows):
            break
        many *= _MORE
    distinct = list(dict.fromkeys(texts))
    index = {text: i for i, text in enumerate(distinct)}
    first, copies = store.copies(distinct)
    lists = []
    for row, cosines in zip(rows, scores, strict=True):
        best = {text: float(cosine) for text, cosine in reversed(list(zip(row, cosines, strict=True)))}
        names = [text for text in dict.fromkeys(row) if text][:top]
        lists.append([Neighbour(int(first[index[text]]), best[text], int(copies[index[text]]), text) for text in names])
    return lists


def check_same_encoder(store: VectorStore, encoder: Encoder) -> None:
    """Raise EncoderError unless `encoder` made the store, or differs from the store's encoder in the prompt alone: queries
    may have another prompt than documents."""
    stored, current = vars(store.encoder), vars(encoder.spec)
    differ = [key for key in current if key not in ("name", "prefix", "options") and current[key] != stored[key]]
    roles = [{key: value for key, value in spec["options"].items() if key != "role"} for spec in (stored, current)]
    differ += ["options"] if roles[0] != roles[1] else []
    if differ:
        raise EncoderError(
            f"{store.folder} was made by another encoder ({store.encoder.name}; other {', '.join(differ)}) than "
            f"{encoder.spec.name}: their vectors cannot be compared"
        )
