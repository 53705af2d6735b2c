"""CMLM (Yang et al. 2020): masked tokens of a sentence are predicted with the vector of the sentence before it.

No training code was released: this follows the paper, and card.md says what is inferred.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from stsbench.data.text.examples import followed, following
from stsbench.encoders.forward.passes import check_family, own_positions
from stsbench.errors import StsbenchError
from stsbench.losses.tokens import guess_metrics
from stsbench.training.api.batch import IGNORED, Batch, Examples, Ragged, Term, Views
from stsbench.training.api.method import Method, Needs
from stsbench.training.modules.backbone import Backbone
from stsbench.training.modules.edits import mask_tokens
from stsbench.training.modules.masked_lm import LMHead
from stsbench.training.modules.soft_prompt import EmbeddingChange, SoftPrompt

from .options import ConditionalMaskedLMOptions

_TERMS = ("mlm", "mlm_back")  # mlm_back with options.both_directions alone


class ConditionalMaskedLM(Method):
    """The loss is the mean over masked tokens of s2 of -log p(token | masked s2, P(v(s1))). One encoder reads s1 and s2."""

    name = "cmlm"
    Options = ConditionalMaskedLMOptions
    held_out_metric = "masked_accuracy"
    options: ConditionalMaskedLMOptions
    guesses: Tensor  # (2,) correct guesses and guesses since the last `metrics`

    def __init__(self, backbone: Backbone, options: ConditionalMaskedLMOptions) -> None:
        """Take a backbone with its `folder` and `name`. Raises StsbenchError, one line, if it cannot be trained."""
        super().__init__(backbone, options)
        check_backbone(backbone)
        config = backbone.model.config
        std, epsilon = getattr(config, "initializer_range", 0.02), getattr(config, "layer_norm_eps", 1e-12)
        self.projections = Projections(backbone.width, options.vectors, std, epsilon) if options.vectors else None
        self.head = LMHead.load(backbone.folder, backbone.model, backbone.name, tied=True)
        self.register_buffer("guesses", torch.zeros(2, dtype=torch.long))

    @classmethod
    def needs(cls, options: ConditionalMaskedLMOptions) -> Needs:
        """Return the needs: sentences, with the next sentence of each where its tokens are predicted."""
        if options.sentence == "same":
            return Needs(negatives=False)
        return Needs(negatives=False, usable=partial(followed, option="options.sentence next"), reach=1)

    def views(self, rows: Examples, rng: np.random.Generator) -> Views:
        """Return the sentences that are encoded as vectors, then as many masked sentences, with the tokens to predict in
        extra "mlm_labels".

        In the order of the terms: s1, masked s2; in both directions s1, s2, masked s2, masked s1. With options.vectors 0
        there are only masked sentences.
        """
        options, tokenizer = self.options, self.backbone.tokenizer
        plain: Ragged = rows.ids("sentence")
        guessed = plain if options.sentence == "same" else following(rows, 1, rng).ids("sentence")
        targets = [guessed, plain] if options.both_directions else [guessed]
        shares = options.probability, options.masked, options.random
        pairs = [mask_tokens(ids, tokenizer, rng, *shares) for ids in targets]
        read = [plain, guessed][: len(targets)] if options.vectors else []
        return Views([*read, *(ids for ids, _ in pairs)], {"mlm_labels": [labels for _, labels in pairs]})

    def forward(self, batch: Batch) -> dict[str, Term]:
        """Return mlm, the mean cross-entropy over the masked tokens of s2, and mlm_back, of s1 with the vector of s2."""
        masked = slice(len(batch.ids) - len(batch.extra["mlm_labels"]), None)
        parts = zip(_TERMS, self._states(batch, masked).split(len(batch)), self._labels(batch), strict=False)
        return {name: Term(*self.head.loss(states, labels, self.guesses)) for name, states, labels in parts}

    def view_vectors(self, batch: Batch) -> None:
        """Return None, as no two vectors are compared."""
        return None

    def counts(self, batch: Batch) -> dict[str, int]:
        """Return the number of masked tokens for each term."""
        labels = self._labels(batch)
        return {name: int((part != IGNORED).sum()) for name, part in zip(_TERMS, labels, strict=False)}

    def metrics(self) -> dict[str, float]:
        """Return masked_accuracy, the share of this process's masked tokens that were predicted correctly."""
        return guess_metrics(self.guesses)

    def _states(self, batch: Batch, masked: slice) -> Tensor:
        """Return (m, L, d) last states of the masked sentences."""
        ids, mask = batch.ids[masked], batch.mask[masked]
        if self.projections is None:
            states: Tensor = self.backbone(ids, mask)[0]
            return states
        vectors = self.backbone.pooled(batch.ids[: len(ids)], batch.mask[: len(ids)])
        return conditioned_states(self.backbone, self.projections(vectors), ids, mask)

    def _labels(self, batch: Batch) -> tuple[Tensor, ...]:
        """Return the labels (n, L) of each term."""
        labels: tuple[Tensor, ...] = batch.extra["mlm_labels"].split(len(batch))
        return labels


def check_backbone(backbone: Backbone) -> None:
    """Raise StsbenchError, one line, for a pooler of another width or a tokenizer without mask token."""
    if backbone.head is not None:
        raise StsbenchError("cmlm reads the sentence's vector as one more token: set backbone.pooler to mean, max or cls")
    if backbone.tokenizer.mask_token_id is None:
        raise StsbenchError(f"cmlm needs a mask token, and the tokenizer of {backbone.name} has none")


class Projections(nn.Module):
    """P(v): the sentence's vector v and N - 1 learned projections of it, each Linear(d, d), GELU, LayerNorm."""

    def __init__(self, width: int, count: int, std: float, epsilon: float) -> None:
        """width: d; count: N, at least 1; std: of the linear weights (biases start at 0); epsilon: of the LayerNorms."""
        super().__init__()
        self.learned = nn.ModuleList(_projection(width, std, epsilon) for _ in range(count - 1))

    def forward(self, vectors: Tensor) -> Tensor:
        """Return (n, N, d): the vectors (n, d) themselves, then their N - 1 projections."""
        return torch.stack([vectors, *(projection(vectors) for projection in self.learned)], 1)


def _projection(width: int, std: float, epsilon: float) -> nn.Sequential:
    linear = nn.Linear(width, width)
    nn.init.normal_(linear.weight, std=std)
    nn.init.zeros_(linear.bias)
    return nn.Sequential(linear, nn.GELU(), nn.LayerNorm(width, eps=epsilon))


def conditioned_states(backbone: Backbone, vectors: Tensor, ids: Tensor, mask: Tensor) -> Tensor:
    """Return (n, L, d) last hidden states of the texts ids, mask (n, L), each read after its `vectors` (n, N, d).

    The vectors are inserted after the embeddings' LayerNorm and dropout, without position and type embeddings. The text
    keeps its own positions, and attention is not restricted. Rows begin with a real token. Raises EncoderError for a model
    that is neither BERT nor RoBERTa.
    """
    check_family(backbone.model)
    count = vectors.shape[1]
    positions = own_positions(backbone.model.embeddings, ids)
    # the embeddings of the first N positions are overwritten, so that any real token can fill them
    indices = [torch.cat([part[:, :1].expand(-1, count), part], 1) for part in (ids, mask, positions)]
    soft = SoftPrompt(indices[2], change=EmbeddingChange(leading=vectors))
    states: Tensor = backbone(indices[0], indices[1], soft=soft)[0]
    return states[:, count:]
