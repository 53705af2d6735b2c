"""IS-BERT (Zhang et al. 2020): a CNN over the tokens, and the mutual information of its local vectors and their mean."""

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
    """E_negative - E_positive: each token's vector scores high with its own sentence's, low with those of the batch's other
    sentences. Encoder and CNN are trained, and both are tested; nothing else has weights."""

    name = "is-bert"
    trained_pooler = "mean_cnn"
    Options = ISBERTOptions
    options: ISBERTOptions

    def __init__(self, backbone: Backbone, options: ISBERTOptions) -> None:
        """backbone: with the pooler mean_cnn. Raises StsbenchError, one line, for another."""
        super().__init__(backbone, options)
        if options.padding == "states":
            backbone.engine = "padded"  # the packed pass computes no states at padding

    def views(self, rows: Examples, rng: np.random.Generator) -> Views:
        """Return the sentence, once."""
        return Views([rows.ids("sentence")], one_length=self.options.padding == "states")

    def forward(self, batch: Batch) -> dict[str, Term]:
        """negative: E_negative, over the scores of this process's tokens with all other sentences of the batch; positive:
        -E_positive, over their scores with their own."""
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
        owners, indices = features.real.nonzero(as_tuple=True)  # a GPU is waited for once
        negative, positive = jensen_shannon(features.tokens[owners, indices], owners + first, sentences)
        tokens = len(owners)
        return {"negative": Term(negative, tokens * (len(sentences) - 1)), "positive": Term(positive, tokens)}

    def _padded(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return its ids and mask; as the authors' code pads them, where the states at padding are read."""
        if self.options.padding == "zeros" or batch.ids.shape[1] >= self.backbone.max_length:
            return batch.ids, batch.mask
        token = self.backbone.tokenizer.pad_token_id
        return functional.pad(batch.ids, (0, 1), value=token), functional.pad(batch.mask, (0, 1))

    def counts(self, batch: Batch) -> dict[str, int]:
        """Return tokens, and their scores with other sentences."""
        tokens = int(batch.mask.sum())
        others = (batch.shares.total if self.gather_mode == "exact" else len(batch)) - 1
        return {"negative": tokens * others, "positive": tokens}
