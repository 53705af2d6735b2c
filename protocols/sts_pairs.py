"""Structure of a set's scored pairs: subsets, strata for the bootstrap, equal pairs, and pairs that share a sentence."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from stsbench.data.sets.sentences import Keys, shared_graph
from stsbench.evaluation.protocol import Observations
from stsbench.evaluation.schema import ITEM
from stsbench.metrics.bootstrap import block_rows, resample_blocks
from stsbench.metrics.shared_sentences import INFLUENCE, Influence, SharedSentences


def subset_rows(observations: Observations) -> dict[str, NDArray[np.int64]]:
    """Return subset -> int64 (k,), the indices of its rows."""
    subset = observations.arrays["subset"]
    return {name: np.flatnonzero(subset == i) for i, name in enumerate(observations.names["subsets"])}


def strata(observations: Observations) -> list[NDArray[np.int64]]:
    """Return the strata of the bootstrap as row indices: each subset, or subsets joined because they share an item."""
    if ITEM not in observations.arrays:
        return [*subset_rows(observations).values()]
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    subset, item = observations.arrays["subset"], np.unique(observations.arrays[ITEM], return_inverse=True)[1]
    count = len(observations.names["subsets"])
    nodes = count + int(item.max()) + 1
    links = coo_array((np.ones(len(item)), (subset, count + item)), shape=(nodes, nodes))
    part = connected_components(links, directed=False)[1]
    return [np.flatnonzero(part[subset] == number) for number in dict.fromkeys(part[:count].tolist())]


def as_slice(indices: NDArray[np.int64]) -> NDArray[np.int64] | slice:
    """Return ascending indices, as a slice where they are consecutive: indexing an array by a slice copies nothing."""
    if len(indices) and indices[-1] - indices[0] == len(indices) - 1:
        return slice(int(indices[0]), int(indices[-1]) + 1)
    return indices


def pair_items(observations: Observations) -> NDArray[np.int64]:
    """Return int64 (n,), the number of each row's item; equal pairs are one item, also in sets of the catalog."""
    if ITEM in observations.arrays:
        return observations.arrays[ITEM]
    return np.unique(equal_pairs(observations), return_inverse=True)[1].astype(np.int64)


def equal_pairs(observations: Observations) -> Keys:
    """Return uint64 (n,), equal for equal pairs; all different where the observations hold no keys of the texts."""
    return observations.arrays.get("pair", np.arange(len(observations.arrays["gold"]), dtype=np.uint64))


def stratum_numbers(observations: Observations) -> NDArray[np.int64]:
    """Return int64 (n,), the index in `strata` of each row's stratum."""
    number = np.empty(len(observations.arrays["gold"]), dtype=np.int64)
    for at, rows in enumerate(strata(observations)):
        number[rows] = at
    return number


def pair_graph(
    observations: Observations, sentences: tuple[Keys, Keys], rows: NDArray[np.int64] | None = None
) -> SharedSentences:
    """Return the graph of sentences shared by all pairs, or by the `rows` of a subset, computed once for all encoders."""
    stratum = stratum_numbers(observations) if rows is None else np.zeros(len(rows), dtype=np.int64)
    return shared_graph(sentences if rows is None else [side[rows] for side in sentences], stratum)


def pair_influence(
    similarity: NDArray[np.float64], gold: NDArray[np.float64], metric: str, graph: SharedSentences
) -> Influence:
    """Return the influence of each pair on the correlation of (n,) similarities with (n,) gold scores, x 100."""
    r, values = INFLUENCE[metric](similarity, gold)
    return Influence(100 * r, 100 * values, graph)


def draw_rows(
    observations: Observations, resamples: int, seed: tuple[int, str], item: NDArray[np.int64]
) -> Iterator[NDArray[np.float64]]:
    """Yield the (resamples, n) counts in blocks of rows; items are redrawn within their stratum. item: (n,), row -> item.

    The seed depends on the data's id, not on the encoder, so that two encoders have the same resamples.
    """
    members = strata(observations)
    number, data_id = seed
    n = len(observations.arrays["gold"])
    drawn = [
        resample_blocks(len(group), resamples, (number, at, *data_id.encode()), block_rows(n), item[group])
        for at, group in enumerate(members)
    ]
    for blocks in zip(*drawn, strict=True):
        counts = np.empty((len(blocks[0]), n))
        for indices, block in zip(members, blocks, strict=True):
            counts[:, indices] = block
        yield counts


@lru_cache(maxsize=1)  # all runs of a leaderboard have the same pairs
def pair_counts(pairs: tuple[bytes, ...], resamples: int, seed: int) -> tuple[NDArray[np.uint8], ...]:
    """Return for each task (resamples, n) counts of draws, equal for equal keys. pairs: keys, little-endian uint64 (n,)."""
    keys = [np.frombuffer(packed, dtype="<u8") for packed in pairs]
    distinct, where = np.unique(np.concatenate(keys), return_inverse=True)
    # uint8 is enough for Poisson(1). The seed leaves the encoder out: all have the same counts.
    counts = np.random.default_rng([seed, *b"average"]).poisson(1, (resamples, len(distinct))).astype(np.uint8)
    return tuple(counts[:, at] for at in np.split(where, np.cumsum([len(key) for key in keys])[:-1]))
