"""Which tokens a masked language model has to guess: BERT's masking, of token lists of any lengths."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

_IGNORED = -100  # torch's cross-entropy skips it; the label of a position that is not to be guessed


def mask_tokens(
    ids: Sequence[Sequence[int] | NDArray[np.integer]],
    special_ids: Iterable[int],
    mask_id: int,
    vocab_size: int,
    rng: np.random.Generator,
    probability: float = 0.15,
    masked: float = 0.8,
    random: float = 0.1,
) -> tuple[list[NDArray[np.int64]], list[NDArray[np.int64]]]:
    """A masked copy of each list of token ids, and its labels: the token at a chosen position, -100 elsewhere.

    Every token that is not special is chosen with `probability`, each on its own; of the chosen ones the share `masked`
    becomes mask_id, the share `random` an id uniform in [0, vocab_size), and the rest stays (Devlin et al. 2019, section
    3.1). masked + random must not exceed 1.
    """
    if not len(ids):
        return [], []
    rows = [np.asarray(row, dtype=np.int64) for row in ids]
    tokens = np.concatenate(rows)
    chosen = (rng.random(len(tokens)) < probability) & ~np.isin(tokens, list(special_ids))
    fate = rng.random(len(tokens))
    other = chosen & (fate >= masked) & (fate < masked + random)
    copy = np.where(chosen & (fate < masked), mask_id, tokens)
    copy[other] = rng.integers(0, vocab_size, int(other.sum()))
    labels = np.where(chosen, tokens, _IGNORED)
    ends = np.cumsum([len(row) for row in rows])[:-1]
    return np.split(copy, ends), np.split(labels, ends)
