"""Contrastive Tension (Carlsson et al. 2021): two encoders, equal at first, agree on equal sentences and not on others."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from stsbench.losses.contrastive import scaled
from stsbench.losses.labelled import ct
from stsbench.training.api.batch import Batch, Examples, Gathering, Shares, Term, Views
from stsbench.training.api.contrasting import contrast
from stsbench.training.api.method import Inference, Method, Needs
from stsbench.training.modules.backbone import Backbone

from .options import ContrastiveTensionOptions

MODELS = ("model2", "model1")  # in this order, as the authors' code keeps model2 when both score the same


class ContrastiveTension(Method):
    """Two encoders that are both trained. `backbone` is model2, which sentence-transformers tests; `first` is model1."""

    name = "ct"
    Options = ContrastiveTensionOptions
    options: ContrastiveTensionOptions
    kept: Tensor  # () 1 or 2: the encoder that is tested

    def __init__(self, backbone: Backbone, options: ContrastiveTensionOptions) -> None:
        super().__init__(backbone, options)
        self.first = copy.deepcopy(backbone, {id(backbone.tokenizer): backbone.tokenizer})
        self.log_scale: nn.Parameter | None = None
        if options.objective == "in-batch" and options.learned_scale:
            # two dimensions, so that weight decay applies to it as in the library
            self.log_scale = nn.Parameter(torch.full((1, 1), math.log(options.scale)))
        # a buffer, so that checkpoints store the encoder that development data chose
        self.register_buffer("kept", torch.tensor(2))
        self.in_tension = False  # until its stage starts, model1 is not trained, and model2 is scored for both

    @classmethod
    def needs(cls, options: ContrastiveTensionOptions) -> Needs:
        """Return the needs: groups of the sentences that form a positive pair and its negative pairs."""
        return Needs(group_size=group_size(options))

    def start_stage(self, stage: str) -> None:
        """Copy model2's weights to model1, as a stage of labelled rows (recipe.semi) may have trained model2."""
        self.first.load_state_dict(self.backbone.state_dict())
        self.in_tension = True
        if self.options.keep == "model1":
            self.choose("model1")

    def views(self, rows: Examples, rng: np.random.Generator) -> Views:
        """Return, for the objective pairs, the texts of every pair for model1 and for model2, and labels, 1 for positive
        pairs; for in-batch, one view, which both encoders read."""
        ids = rows.ids("sentence")
        if self.options.objective == "in-batch":
            return Views([ids])
        first, second, labels = pair_up(len(ids), self.options)
        return Views([[ids[index] for index in first], [ids[index] for index in second]], labels=labels)

    def forward(self, batch: Batch) -> dict[str, Term]:
        """Return tension, the binary cross-entropy of pairs, or in_batch, the cross-entropy over the batch."""
        n, options = len(batch), self.options
        second = slice(n, None) if options.objective == "pairs" else slice(None)
        x = self.first.pooled(batch.ids[:n], batch.mask[:n])
        y = self.backbone.pooled(batch.ids[second], batch.mask[second])
        if options.objective == "in-batch":
            scale = options.scale if self.log_scale is None else self.log_scale.exp()
            return {"in_batch": batch_term(x, y, scale, options.similarity == "cosine", batch.shares, self.gather_mode)}
        assert batch.labels is not None
        weight = float(batch.shares.total) if options.reduction == "sum" else 1.0
        return {"tension": Term(ct(x, y, batch.labels), n, weight)}

    def view_vectors(self, batch: Batch) -> None:
        """Return None: views of the same tokens may be one vector, as both encoders have the same weights at first."""

    def metrics(self) -> dict[str, float]:
        """Return scale, the learned factor of the similarities."""
        return {} if self.log_scale is None else {"scale": float(self.log_scale.detach().exp())}

    def inference(self) -> Inference:
        """Return the encoder that is kept, without the other."""
        return self._encoder("model1" if int(self.kept) == 1 else "model2")

    def candidates(self) -> dict[str, Inference]:
        """Return both encoders if the better one is to be kept, else {}."""
        if self.options.keep != "best":
            return {}
        return {name: self._encoder(name if self.in_tension else "model2") for name in MODELS}

    def choose(self, name: str) -> None:
        """Set the encoder that is kept, model1 or model2."""
        self.kept.fill_(1 if name == "model1" else 2)

    def _encoder(self, name: str) -> Inference:
        encoder: Any = self.first if name == "model1" else self.backbone
        return Inference(encoder.model, encoder.tokenizer, encoder.pooler, token_pooler=encoder.head)


Pairs = tuple[list[int], list[int], list[int]]


def group_size(options: ContrastiveTensionOptions) -> int:
    """Return the number of sentences in a group: 1 + 2 k (fresh, consecutive) or 1 + k (anchor); 1 for the objective
    in-batch."""
    if options.objective == "in-batch":
        return 1
    return 1 + options.k * (1 if options.negatives == "anchor" else 2)


def pair_up(count: int, options: ContrastiveTensionOptions) -> Pairs:
    """Return the sentence that each encoder reads in every pair, as indices below `count`, and 1 for positive pairs, in
    which both read the same one. Each group yields 1 + k pairs, the positive first. ValueError for a part of a group.
    """
    size = group_size(options)
    if count % size:
        raise ValueError(f"{count} sentences are not whole groups of {size}")
    first: list[int] = []
    second: list[int] = []
    for start in range(0, count, size):
        others = list(range(start + 1, start + size))
        if options.negatives == "anchor":
            left, right = [start] * options.k, others
        elif options.negatives == "fresh":
            left, right = others[: options.k], others[options.k :]
        else:
            left, right = others[::2], others[1::2]
        first += [start, *left]
        second += [start, *right]
    return first, second, [int(a == b) for a, b in zip(first, second, strict=True)]


def batch_term(first: Tensor, second: Tensor, scale: Tensor | float, cosine: bool, shares: Shares, mode: Gathering) -> Term:
    """Return (CE(S) + CE(S^T)) / 2 with S_ij = scale * sim(first_i, second_j) over all processes, where row i has the
    target i.

    first, second: (n, d), this process's rows; scale: a positive number, or a (1, 1) tensor. Source: sentence-transformers,
    ContrastiveTensionLossInBatchNegatives.
    """
    x, y = (scaled(vectors, "cosine" if cosine else "dot", 1e-12) for vectors in (first, second))
    one, other = (contrast(a * scale, b, [], shares, mode, similarity="dot") for a, b in ((x, y), (y, x)))
    return Term((one.value + other.value) / 2, one.count)
