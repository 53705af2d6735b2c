"""Continued masked-LM pre-training (Devlin et al. 2019, section 3.1) of any encoder on your own sentences; for causal
models, masked next token prediction (BehnamGhader et al. 2024, LLM2Vec, section 2.2)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from stsbench.errors import StsbenchError
from stsbench.losses.tokens import guess_metrics
from stsbench.training.api.batch import IGNORED, Batch, Examples, Term, Views
from stsbench.training.api.method import Inference, Method, Needs
from stsbench.training.modules.backbone import Backbone
from stsbench.training.modules.edits import mask_tokens
from stsbench.training.modules.masked_lm import LMHead, as_masked_lm

from .options import MaskedLMOptions

_ROLES = ("sentence", "anchor")  # the first one in the data is used


def sentence_or_anchor(roles: tuple[str, ...], method: str) -> tuple[str, ...]:
    """Return ("sentence",), or ("anchor",) for pairs. Raises StsbenchError for data without either."""
    role = next((role for role in _ROLES if role in roles), None)
    if role is None:
        raise StsbenchError(
            f"{method} needs the column sentence or anchor (the data give {', '.join(roles) or 'no column'}): "
            "name it in data.columns"
        )
    return (role,)


class MaskedLM(Method):
    """Masked-LM training on one view, the masked sentence. The head is the checkpoint's, or new if it has none."""

    name = "mlm"
    Options = MaskedLMOptions
    held_out_metric = "masked_accuracy"
    options: MaskedLMOptions
    guesses: Tensor  # (2,) correct guesses and guesses since the last `metrics`

    def __init__(self, backbone: Backbone, options: MaskedLMOptions) -> None:
        """Take a backbone with its `folder` and `name`. Raises StsbenchError for a learned pooler, or without mask token."""
        super().__init__(backbone, options)
        if backbone.head is not None:
            raise StsbenchError(f"mlm trains no {backbone.head.kind.title}: set backbone.pooler to cls or mean")
        self.mask_id = _mask_id(backbone, options.mask_token)
        causal = options.predict == "previous"
        self.head = LMHead.load(backbone.folder, backbone.model, backbone.name, tied=options.tied, causal=causal)
        self.register_buffer("guesses", torch.zeros(2, dtype=torch.long))

    @classmethod
    def needs(cls, options: MaskedLMOptions) -> Needs:
        """Return the needs: sentences, or the anchors of pairs."""
        return Needs(sentence_or_anchor, negatives=False)

    def views(self, rows: Examples, rng: np.random.Generator) -> Views:
        """Return the masked copy, with the tokens to predict in extra "mlm_labels"."""
        options, plain = self.options, rows.ids(rows.roles[0])
        shares = options.probability, options.masked, options.random
        ids, labels = mask_tokens(plain, self.backbone.tokenizer, rng, *shares, self.mask_id)
        if options.predict == "previous":  # no state precedes the first token
            labels = [np.where(np.arange(len(row)) > 0, row, IGNORED) for row in labels]
        return Views([ids], {"mlm_labels": [labels]})

    def forward(self, batch: Batch) -> dict[str, Term]:
        """Return mlm, the mean cross-entropy over the masked positions, for which alone logits are computed."""
        states, labels = self.backbone(batch.ids, batch.mask)[0], batch.extra["mlm_labels"]
        if self.options.predict == "previous":  # predicted from the state of the token before
            states, labels = states[:, :-1], labels[:, 1:]
        return {"mlm": Term(*self.head.loss(states, labels, self.guesses))}

    def metrics(self) -> dict[str, float]:
        """Return masked_accuracy, the share of this process's masked tokens that were predicted correctly."""
        return guess_metrics(self.guesses)

    def inference(self) -> Inference:
        """Return the encoder, and the masked LM around it, which is exported, too."""
        model = self.backbone.model
        whole = as_masked_lm(model, self.head)
        return Inference(model, self.backbone.tokenizer, self.backbone.pooler, masked_lm=whole)


def _mask_id(backbone: Backbone, token: str | None) -> int:
    """Return the id of the token that stands for [MASK]."""
    tokenizer = backbone.tokenizer
    known = tokenizer.mask_token_id if token is None else tokenizer.get_vocab().get(token)
    if known is None:
        which = "mask token, and the tokenizer" if token is None else f"token {token!r}, and the vocabulary"
        raise StsbenchError(f"mlm needs a {which} of {backbone.name} has none: name a token in options.mask_token")
    return int(known)
