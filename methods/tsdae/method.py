"""TSDAE (Wang, Reimers and Gurevych 2021): a decoder that sees one vector writes the sentence that was damaged."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from stsbench.errors import StsbenchError
from stsbench.losses.tokens import masked_lm
from stsbench.training.api.batch import Batch, Examples, Ragged, Term, Views
from stsbench.training.api.method import Method, Needs
from stsbench.training.modules.backbone import Backbone
from stsbench.training.modules.masked_lm import made_up

from .decoder import Decoder
from .noise import damaged, damaged_ids
from .options import TSDAEOptions


class TSDAE(Method):
    """L = mean over the tokens of the sentences of -log p(token | tokens before it, vector of the damaged sentence)."""

    name = "tsdae"
    Options = TSDAEOptions
    options: TSDAEOptions

    def __init__(self, backbone: Backbone, options: TSDAEOptions) -> None:
        """Make the decoder. backbone: with its `folder` and `name`. Raises StsbenchError, one line, for a pooler of its own
        weights or a model that is no decoder in transformers."""
        super().__init__(backbone, options)
        if backbone.head is not None:
            raise StsbenchError(
                f"tsdae's decoder reads a vector of the encoder's width, and {backbone.pooler} has its own: set "
                "backbone.pooler to cls, mean or max"
            )
        self.decoder = Decoder(backbone, options)

    @classmethod
    def needs(cls, options: TSDAEOptions) -> Needs:
        """Return what plain sentences need."""
        return Needs(negatives=False)

    def views(self, rows: Examples, rng: np.random.Generator) -> Views:
        """Return the damaged sentence, drawn anew each time, and the sentence."""
        return Views([self._damaged(rows, rng), self._targets(rows)])

    def forward(self, batch: Batch) -> dict[str, Term]:
        """reconstruction: mean cross-entropy over all tokens of the sentences but their first."""
        n = len(batch)
        vectors = self.backbone.pooled(batch.ids[:n], batch.mask[:n])
        ids, counted = batch.ids[n:], self._counted(batch)
        labels = ids[:, 1:][counted.nonzero(as_tuple=True)]
        logits = self.decoder(vectors, ids[:, :-1], counted)
        return {"reconstruction": Term(masked_lm(logits, labels), len(labels))}

    def view_vectors(self, batch: Batch) -> None:
        """No two vectors are compared."""
        return None

    def counts(self, batch: Batch) -> dict[str, int]:
        """reconstruction: the tokens that are written."""
        return {"reconstruction": int(self._counted(batch).sum())}

    def inputs(self) -> dict[str, str]:
        """Return the decoder, where it is another checkpoint."""
        return {} if self.decoder.digest is None else {"decoder": self.decoder.digest}

    def notes(self) -> list[str]:
        """Return a language-model head that the checkpoint does not have."""
        stored = self.decoder.head.stored
        return [] if stored else [made_up(self.options.decoder or self.backbone.name)]

    def _damaged(self, rows: Examples, rng: np.random.Generator) -> Ragged:
        options = self.options
        if options.unit == "subword":
            special = np.array(self.backbone.tokenizer.all_special_ids)
            return [damaged_ids(np.asarray(ids), special, options.delete, rng) for ids in rows.ids("sentence")]
        texts = [damaged(text, options.delete, options.detokenise, rng) for text in rows.texts("sentence")]
        return self.backbone.tokenise(texts)

    def _targets(self, rows: Examples) -> Ragged:
        """As the decoder's tokenizer reads them."""
        if self.decoder.reads_as_encoder:
            return rows.ids("sentence")
        return self.decoder.tokenise(rows.texts("sentence"))

    def _counted(self, batch: Batch) -> Tensor:
        """Return (n, L - 1): the position after it holds a token of the sentence."""
        return batch.mask[len(batch) :, 1:].bool()
