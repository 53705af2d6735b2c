"""What the pairs of a set are made of: subsets, rows that are redrawn together, equal pairs, and pairs of one sentence."""

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
    """Return subset -> int64 (k,), its rows."""
    subset = observations.arrays["subset"]
    return {name: np.flatnonzero(subset == i) for i, name in enumerate(observations.names["subsets"])}


def strata(observations: Observations) -> list[NDArray[np.int64]]:
    """Return the rows that are redrawn together: those of a subset, or of all subsets that one item links."""
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
    """Return ascending indices, as a slice where they follow one another: what it takes from an array is not copied."""
    if len(indices) and indices[-1] - indices[0] == len(indices) - 1:
        return slice(int(indices[0]), int(indices[-1]) + 1)
    return indices


def pair_items(observations: Observations) -> NDArray[np.int64]:
    """Return int64 (n,), the number of each row's item: of the catalog's sets, too, equal pairs are one."""
    if ITEM in observations.arrays:
        return observations.arrays[ITEM]
    return np.unique(equal_pairs(observations), return_inverse=True)[1].astype(np.int64)


def equal_pairs(observations: Observations) -> Keys:
    """Return uint64 (n,), equal for equal pairs; each row is one where nothing is known of the texts."""
    return observations.arrays.get("pair", np.arange(len(observations.arrays["gold"]), dtype=np.uint64))


def stratum_numbers(observations: Observations) -> NDArray[np.int64]:
    """Return int64 (n,), which of `strata` each row is redrawn in."""
    number = np.empty(len(observations.arrays["gold"]), dtype=np.int64)
    for at, rows in enumerate(strata(observations)):
        number[rows] = at
    return number


def pair_graph(
    observations: Observations, sentences: tuple[Keys, Keys], rows: NDArray[np.int64] | None = None
) -> SharedSentences:
    """Return the graph of all pairs, or of the `rows` of a subset, computed once for all encoders."""
    stratum = stratum_numbers(observations) if rows is None else np.zeros(len(rows), dtype=np.int64)
    return shared_graph(sentences if rows is None else [side[rows] for side in sentences], stratum)


def pair_influence(
    similarity: NDArray[np.float64], gold: NDArray[np.float64], metric: str, graph: SharedSentences
) -> Influence:
    """Return what each pair does to a correlation of (n,) similarities with (n,) gold scores, x 100."""
    r, values = INFLUENCE[metric](similarity, gold)
    return Influence(100 * r, 100 * values, graph)


def draw_rows(
    observations: Observations, resamples: int, seed: tuple[int, str], item: NDArray[np.int64]
) -> Iterator[NDArray[np.float64]]:
    """Yield blocks of rows of (resamples, n) counts, items redrawn within their subset. item: (n,), equal for rows of one.

    Seeded by the data (their id), not by the encoder: two encoders meet the same resamples.
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


@lru_cache(maxsize=1)  # a leaderboard asks for the same pairs with every run
def pair_counts(pairs: tuple[bytes, ...], resamples: int, seed: int) -> tuple[NDArray[np.uint8], ...]:
    """Return (resamples, n) of each task: how often each pair was drawn, equal keys (little-endian uint64) alike."""
    keys = [np.frombuffer(packed, dtype="<u8") for packed in pairs]
    distinct, where = np.unique(np.concatenate(keys), return_inverse=True)
    # A Poisson(1) number above 255 does not occur; seeded alike for every encoder.
    counts = np.random.default_rng([seed, *b"average"]).poisson(1, (resamples, len(distinct))).astype(np.uint8)
    return tuple(counts[:, at] for at in np.split(where, np.cumsum([len(key) for key in keys])[:-1]))
