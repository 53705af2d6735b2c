"""ConSERT's augmentations: what is drawn for each text on the CPU, and the embeddings changed by it.

Source: Yan et al. (2021), ConSERT, section 3, and its released code: counts are rounded down, special tokens may be chosen,
masks of attention and pooling stay those of the text, and what is kept is not rescaled. Every draw belongs to a row,
whichever process has it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stsbench.encoders.forward.passes import own_positions
from stsbench.training.api.batch import Batch, Ragged, Views
from stsbench.training.modules.backbone import Backbone
from stsbench.training.modules.soft_prompt import EmbeddingChange, SoftPrompt

SLOTS = ("first", "second")


def add_draws(
    views: Views, augmentations: Sequence[str], rates: Sequence[float | None], width: int, pad: int, rng: np.random.Generator
) -> Views:
    """Return `views` with what each of the two views of its texts needs, under names that begin with "first" or "second":

    - shuffle: extra "... order", for each position the one whose position id it gets;
    - token_cutoff: extra "... cut", 1 at tokens set to 0; feature_cutoff, dropout: by_row "... cut", (n, d) and (n, L, d);
    - span: extra "... ids", the tokens, `pad` outside a window.
    width: d. What has no draw costs `rng` nothing.
    """
    for slot, name, rate in zip(SLOTS, augmentations, rates, strict=True):
        lengths = [[len(row) for row in texts] for texts in views.tokens]
        if name == "shuffle":
            views.extra[f"{slot} order"] = [[rng.permutation(n) for n in part] for part in lengths]
        elif name == "token_cutoff":
            views.extra[f"{slot} cut"] = [[_chosen(n, rate, rng).astype(np.int64) for n in part] for part in lengths]
        elif name == "feature_cutoff":
            views.by_row[f"{slot} cut"] = [np.stack([_chosen(width, rate, rng) for _ in part]) for part in lengths]
        elif name == "dropout":
            longest = max(map(max, lengths))
            views.by_row[f"{slot} cut"] = [np.stack([_elements(n, longest, width, rate, rng) for n in part])
                                           for part in lengths]
        elif name == "span":
            views.extra[f"{slot} ids"] = [_windows(texts, rate, pad, rng) for texts in views.tokens]
    return views


def changed(backbone: Backbone, batch: Batch, slot: str, name: str) -> tuple[Tensor, SoftPrompt | None]:
    """Return the token ids (n, L) that a view reads, and what is done to their embeddings; None: nothing.

    n: all texts of the batch; slot: first or second; name: the augmentation, by which the batch's draws were made.
    """
    ids, real = batch.ids, batch.mask.bool()
    if name == "shuffle":
        positions = own_positions(backbone.model.embeddings, ids)
        order = torch.where(real, batch.extra[f"{slot} order"], torch.arange(ids.shape[1], device=ids.device))
        return ids, SoftPrompt(positions.gather(1, order))
    if name == "span":
        return batch.extra[f"{slot} ids"], SoftPrompt(own_positions(backbone.model.embeddings, ids))
    if name == "token_cutoff":
        return ids, _cut(batch.extra[f"{slot} cut"].eq(1).logical_and(real).unsqueeze(2))
    if name == "feature_cutoff":
        return ids, _cut(batch.by_row[f"{slot} cut"].unsqueeze(1))
    if name == "dropout":
        return ids, _cut(batch.by_row[f"{slot} cut"][:, : ids.shape[1]])
    return ids, None


def _cut(mask: Tensor) -> SoftPrompt:
    return SoftPrompt(change=EmbeddingChange((mask,)))


def _chosen(count: int, rate: float | None, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return (count,) true at floor(count * rate) places, drawn without replacement."""
    assert rate is not None
    mask = np.zeros(count, dtype=np.bool_)
    mask[rng.permutation(count)[: int(count * rate)]] = True
    return mask


def _elements(tokens: int, longest: int, width: int, rate: float | None, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return (longest, width) true at floor(tokens * width * rate) elements of the first `tokens` rows."""
    mask = np.zeros((longest, width), dtype=np.bool_)
    mask[:tokens] = _chosen(tokens * width, rate, rng).reshape(tokens, width)
    return mask


def _windows(texts: Ragged, rate: float | None, pad: int, rng: np.random.Generator) -> Ragged:
    """Return each text with `pad` outside a window of max(floor(n (1 - rate)), 1) of its n tokens."""
    assert rate is not None
    rows = []
    for text in texts:
        kept = max(int(len(text) * (1 - rate)), 1)
        start = int(rng.integers(len(text) - kept + 1))
        row = np.full(len(text), pad, dtype=np.int64)
        row[start : start + kept] = text[start : start + kept]
        rows.append(row)
    return rows
