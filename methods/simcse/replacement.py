"""The view "mlm" of SimCSE's Table 1: some of a sentence's words replaced by what a frozen masked LM predicts there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from stsbench.data.text.augment import share_of
from stsbench.errors import StsbenchError
from stsbench.training.api.batch import IGNORED
from stsbench.training.modules.backbone import Backbone
from stsbench.training.modules.generator import Generator


class Replacer(Generator):
    """A masked LM that is never trained, always in eval mode and without gradient."""

    def __init__(self, backbone: Backbone, model: str | None) -> None:
        """model: folder or Hub id of a masked LM with the backbone's vocabulary; None: the backbone's own, as it starts.

        Raises StsbenchError, one line, for another vocabulary, no mask token, or a model that stores no masked-LM head.
        """
        super().__init__(backbone, model, "eval", option="options.replacer")
        tokenizer = self.backbone.tokenizer
        if not getattr(tokenizer, "is_fast", False):
            raise StsbenchError(f"options.view mlm needs a fast tokenizer, which knows words; {self.name} has none")
        self.mask_id = tokenizer.mask_token_id
        self.special = tokenizer.all_special_ids

    def forward(self, ids: Tensor, mask: Tensor, labels: Tensor) -> Tensor:
        """`ids` with the likeliest ordinary token wherever `labels` is not IGNORED, all guessed at once. All are (n, L)."""
        chosen = labels != IGNORED
        return self.fill(ids.masked_fill(chosen, self.mask_id), mask, chosen, forbidden=self.special)


def words_to_replace(
    encoded: Any, rate: float, rng: np.random.Generator
) -> tuple[list[NDArray[np.int64]], list[NDArray[np.int64]]]:
    """The token ids of n tokenised texts and their labels: the ids of share_of(words, rate) whole words, else IGNORED.

    encoded: a fast tokenizer's output, whose words are those of its own splitting, punctuation marks among them.
    """
    ids, labels = [], []
    for number, row in enumerate(encoded["input_ids"]):
        words: Sequence[int | None] = encoded.word_ids(number)
        known = sorted({word for word in words if word is not None})
        drawn = set(rng.choice(known, share_of(len(known), rate), replace=False).tolist()) if known else set()
        tokens = np.asarray(row, dtype=np.int64)
        ids.append(tokens)
        labels.append(np.where([word in drawn for word in words], tokens, IGNORED))
    return ids, labels
