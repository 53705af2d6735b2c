"""A frozen masked language model that fills chosen places of a text with words of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from stsbench.encoders.forward.identity import folder_digest
from stsbench.encoders.transformer.find import resolve_base
from stsbench.encoders.transformer.trainable import backbone_folder
from stsbench.errors import StsbenchError
from stsbench.training.modules.backbone import Backbone, load_backbone
from stsbench.training.modules.lm_head import LMHead

_PLACES = 1024  # that get vocabulary logits at a time: 125 MB with BERT's vocabulary, whatever the batch


class Generator(nn.Module):
    """A masked LM with the encoder's vocabulary. Nothing in it is ever trained, and nothing it does has a gradient."""

    words: Tensor  # the ids that are tokens

    def __init__(
        self, backbone: Backbone, model: str | None, mode: Literal["train", "eval"], option: str = "options.generator"
    ) -> None:
        """model: a masked LM as `backbone_folder` takes it; None: the encoder's own checkpoint, as it is stored.

        mode: "train": its dropout is on whenever this module is in train mode, "eval": never. option: what errors call the
        setting. Raises StsbenchError, one line, for another vocabulary, no mask token or no stored masked-LM head.
        """
        super().__init__()
        self.name = backbone.name if model is None else model
        offline = getattr(backbone, "offline", False)
        folder = backbone.folder if model is None else backbone_folder(model, offline, option)
        self.backbone = load_backbone(folder, self.name, max_length=backbone.max_length, offline=offline)
        base = resolve_base(folder, offline)
        self.digest = folder_digest(folder, [base] if base else [])
        self.mode = mode
        tokenizer = self.backbone.tokenizer
        known = tokenizer.get_vocab()
        if known != backbone.tokenizer.get_vocab():
            raise StsbenchError(
                f"{option} {self.name} must share the vocabulary of {backbone.name}, and it does not: name "
                "another masked LM, or null for the encoder's own checkpoint"
            )
        if tokenizer.mask_token_id is None:
            raise StsbenchError(
                f"a masked LM needs a mask token, and the tokenizer of {self.name} has none: take another backbone"
            )
        if tokenizer.mask_token_id != backbone.tokenizer.mask_token_id:
            raise StsbenchError(f"{option} {self.name} must have the mask token of {backbone.name}, and it does not")
        self.head = LMHead.load(folder, self.backbone.model, self.name, tied=True)
        if not self.head.stored:
            raise StsbenchError(
                f"{self.name} stores no masked-LM head, so its words would be random: name a masked LM with the same "
                f"vocabulary in {option}, or train a head first (stsbench train mlm)"
            )
        rows = len(self.head.decoder.weight)  # some may only pad the table to a round number: no token has their ids
        self.register_buffer("words", torch.tensor(sorted(id for id in known.values() if id < rows)), persistent=False)
        self.requires_grad_(False).train()

    def train(self, mode: bool = True) -> Generator:
        """With the mode "eval" stay in eval mode, whatever the method around it does."""
        super().train(mode and self.mode == "train")
        return self

    def fill(
        self, ids: Tensor, mask: Tensor, chosen: Tensor, *, sampling: bool = False, forbidden: Sequence[int] = ()
    ) -> Tensor:
        """(n, L) `ids` with another token at the chosen places, all guessed at once from `ids` as they are.

        ids, mask: (n, L), the mask 1 on real tokens; chosen: (n, L) bool, real tokens only. The token is the likeliest one,
        or drawn from the softmax by torch's generator of that device; never one of `forbidden`, and never an id without a
        token. Rows without a chosen place are not computed.
        """
        rows = chosen.any(1).nonzero().squeeze(1)
        if not len(rows):
            return ids
        words = self.words
        if forbidden:
            words = words[~torch.isin(words, torch.tensor(list(forbidden), device=words.device))]
        filled = ids.clone()
        with torch.no_grad():
            hidden = self.backbone(ids[rows], mask[rows])[0][chosen[rows]]
            filled[chosen] = torch.cat([self._tokens(part, words, sampling) for part in hidden.split(_PLACES)])
        return filled

    def _tokens(self, hidden: Tensor, words: Tensor, sampling: bool) -> Tensor:
        """(m, d) -> (m,) of the ids `words`."""
        logits = self.head(hidden)
        if len(words) < logits.shape[1]:
            logits = logits[:, words]
        if not sampling:
            return words[logits.argmax(1)]
        # torch.multinomial draws a number for each word of the vocabulary, five times the work on a CPU
        below = logits.softmax(1, dtype=torch.float32).cumsum(1)
        drawn = torch.rand(len(below), 1, device=below.device) * below[:, -1:]
        return words[torch.searchsorted(below, drawn, right=True).squeeze(1).clamp_(max=len(words) - 1)]
