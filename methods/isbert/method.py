"""IS-BERT (Zhang et al. 2020): mutual information between the local vectors of a CNN over the tokens and their mean."""

from __future__ import annotations

import numpy as np
from torch import Tensor
from torch.nn import functional

from stsbench.encoders.forward.token_pooler import MeanCNN
from stsbench.errors import StsbenchError
from stsbench.losses.group import jensen_shannon
from stsbench.training.api.batch import Batch, Examples, Term, Views, gather
from stsbench.training.api.method import Method
from stsbench.training.modules.backbone import Backbone

from .options import ISBERTOptions


class ISBERT(Method):
    """The loss E_negative - E_positive: each token's vector should score high with its own sentence's vector and low with
    those of other sentences in the batch. Encoder and CNN are trained and tested; nothing else has weights."""

    name = "is-bert"
    trained_pooler = "mean_cnn"
    Options = ISBERTOptions
    options: ISBERTOptions

    def __init__(self, backbone: Backbone, options: ISBERTOptions) -> None:
        """Take a backbone with the pooler mean_cnn. Raises StsbenchError, one line, for another pooler."""
        super().__init__(backbone, options)
        if options.padding == "states":
            backbone.engine = "padded"  # the packed pass computes no states at padding

    def views(self, rows: Examples, rng: np.random.Generator) -> Views:
        """Return one view, the sentences."""
        return Views([rows.ids("sentence")], one_length=self.options.padding == "states")

    def forward(self, batch: Batch) -> dict[str, Term]:
        """Return negative, E_negative over the scores of this process's tokens with all other sentences of the batch, and
        positive, -E_positive over their scores with their own sentences."""
        assert isinstance(self.backbone.head, MeanCNN)
        if self.gather_mode == "simcse":
            raise StsbenchError("training.gather simcse has no meaning for is-bert, which counts tokens: set exact or local")
        ids, mask = self._padded(batch)
        states = self.backbone(ids, mask)[0]
        features = self.backbone.head.features(states, mask, zero_padding=self.options.padding == "zeros")
        sentences = gather(features.vectors, batch.shares, self.gather_mode)
        if len(sentences) < 2:
            raise StsbenchError("is-bert needs two sentences in a batch at least: one has no other to be unlike")
        first = batch.shares.start if self.gather_mode == "exact" else 0
        owners, indices = features.real.nonzero(as_tuple=True)  # waits for a GPU once
        negative, positive = jensen_shannon(features.tokens[owners, indices], owners + first, sentences)
        tokens = len(owners)
        return {"negative": Term(negative, tokens * (len(sentences) - 1)), "positive": Term(positive, tokens)}

    def _padded(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the batch's ids and mask; if states at padding are read, padded as in the authors' code."""
        if self.options.padding == "zeros" or batch.ids.shape[1] >= self.backbone.max_length:
            return batch.ids, batch.mask
        token = self.backbone.tokenizer.pad_token_id
        return functional.pad(batch.ids, (0, 1), value=token), functional.pad(batch.mask, (0, 1))

    def counts(self, batch: Batch) -> dict[str, int]:
        """Return the numbers of scores with other sentences (negative) and of tokens (positive)."""
        tokens = int(batch.mask.sum())
        others = (batch.shares.total if self.gather_mode == "exact" else len(batch)) - 1
        return {"negative": tokens * others, "positive": tokens}
