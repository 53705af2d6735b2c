"""The view "mlm" of SimCSE's Table 1: some of a sentence's words replaced by what a frozen masked LM predicts there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from stsbench.data.augment import share_of
from stsbench.encoders.checkpoint import weights_digest
from stsbench.encoders.hub import resolve
from stsbench.errors import StsbenchError
from stsbench.modules.backbone import Backbone, load_backbone
from stsbench.modules.lm_head import LMHead
from stsbench.training.batch import IGNORED


class Replacer(nn.Module):
    """A masked LM that is never trained, always in eval mode and without gradient."""

    def __init__(self, backbone: Backbone, model: str | None) -> None:
        """model: folder or Hub id of a masked LM with the backbone's vocabulary; None: the backbone's own, as it starts.

        Raises StsbenchError, one line, for another vocabulary, no mask token, or a model that stores no masked-LM head.
        """
        super().__init__()
        name = backbone.name if model is None else model
        folder = backbone.folder if model is None else resolve(model)
        self.backbone = load_backbone(folder, name, max_length=backbone.max_length)
        self.digest = weights_digest(folder)
        tokenizer = self.backbone.tokenizer
        if tokenizer.get_vocab() != backbone.tokenizer.get_vocab():
            raise StsbenchError(f"options.replacer {name} must share the vocabulary of {backbone.name}, and it does not")
        if not getattr(tokenizer, "is_fast", False):
            raise StsbenchError(f"options.view mlm needs a fast tokenizer, which knows words; {name} has none")
        if tokenizer.mask_token_id is None:
            raise StsbenchError(f"options.view mlm needs a mask token, and the tokenizer of {name} has none")
        self.head = LMHead.load(folder, self.backbone.model, name, tied=True)
        if not self.head.found:
            raise StsbenchError(
                f"options.view mlm: {name} stores no masked-LM head, so its words would be random; name a masked LM with "
                "the same vocabulary in options.replacer"
            )
        self.mask_id = tokenizer.mask_token_id
        self.special = tokenizer.all_special_ids
        self.requires_grad_(False).train(False)

    def train(self, mode: bool = True) -> Replacer:
        """Stay in eval mode, whatever the method around it does."""
        super().train(False)
        return self

    def forward(self, ids: Tensor, mask: Tensor, labels: Tensor) -> Tensor:
        """`ids` with the likeliest ordinary token wherever `labels` is not IGNORED, all guessed at once. All are (n, L)."""
        chosen = labels != IGNORED
        rows = chosen.any(1)
        if not bool(rows.any()):
            return ids
        with torch.no_grad():
            hidden = self.backbone(ids.masked_fill(chosen, self.mask_id)[rows], mask[rows])[0]
            logits = self.head(hidden[chosen[rows]])
        logits[:, self.special] = -torch.inf  # a special token is no word
        replaced = ids.clone()
        replaced[chosen] = logits.argmax(1)
        return replaced


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
