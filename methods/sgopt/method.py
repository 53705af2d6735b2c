"""SG-OPT (Kim et al. 2021): a sentence's vector is pulled to those of all layers of the model before training."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from stsbench.training.api.batch import Batch, Examples, Term, Views
from stsbench.training.api.contrasting import contrast_views
from stsbench.training.api.method import Method
from stsbench.training.modules.backbone import Backbone, pool_layers
from stsbench.training.modules.projector import GELUProjector
from stsbench.training.modules.reference import Reference

from .checks import check_options, layers_of
from .losses import all_layers_term, one_layer_term
from .options import SGOPTOptions


class SGOPT(Method):
    """The backbone, trained, its frozen copy, and a projection of both, which the test leaves out."""

    name = "sg-opt"
    Options = SGOPTOptions
    options: SGOPTOptions

    def __init__(self, backbone: Backbone, options: SGOPTOptions) -> None:
        """Raises StsbenchError, one line, for options that do not go together or not with the backbone."""
        super().__init__(backbone, options)
        check_options(options)
        self.layers = layers_of(options, backbone)
        std = float(getattr(backbone.model.config, "initializer_range", 0.02))
        self.projector = GELUProjector(backbone.width, options.projection_width, std)
        self.reference = Reference(backbone, options.reference_dropout)

    @classmethod
    def roles(cls, options: SGOPTOptions, available: tuple[str, ...]) -> tuple[str, ...]:
        """("sentence",)."""
        check_options(options)
        return super().roles(options, available)

    def start_stage(self, stage: str) -> None:
        """The copy is of the weights that the stage begins with, also where labelled rows (recipe.semi) trained them."""
        self.reference.restart(self.backbone)
        embeddings = getattr(self.backbone.model, "embeddings", None)
        module: nn.Module = embeddings if isinstance(embeddings, nn.Module) else self.backbone.model.get_input_embeddings()
        module.requires_grad_(not self.options.freeze_embeddings)

    def views(self, rows: Examples, rng: np.random.Generator) -> Views:
        """The sentences once; where one layer gives the positive, which one, drawn for each sentence."""
        views = Views([rows.ids("sentence")])
        if self.options.objective != "sg-opt":
            views.by_row["layer"] = [rng.choice(self.layers, len(rows.rows))]
        return views

    def forward(self, batch: Batch) -> dict[str, Term]:
        """contrastive: by options.objective; regulariser: the squared distance to the weights at the start."""
        options = self.options
        vectors = self.projector(self.vectors(batch.ids, batch.mask))
        terms = {"contrastive": self._contrastive(batch, vectors)}
        if options.regulariser_weight:
            terms["regulariser"] = Term(self.reference.distance(self.backbone), len(batch), options.regulariser_weight)
        return terms

    def view_vectors(self, batch: Batch) -> None:
        """There is one view: the vectors compared are those of different layers and models."""

    def _contrastive(self, batch: Batch, vectors: Tensor) -> Term:
        options, shares, mode = self.options, batch.shares, self.gather_mode
        states = self.reference.states(batch.ids, batch.mask, self.layers)
        layers = pool_layers(options.layer_pooling, states, batch.mask)
        if options.objective == "sg-opt":
            return all_layers_term(vectors, self.projector(layers), options.temperature, shares, mode)
        drawn = batch.by_row["layer"] - self.layers[0]
        one = self.projector(layers[torch.arange(len(batch), device=layers.device), drawn])
        if options.objective == "sg":
            return contrast_views(vectors, one, shares, mode, temperature=options.temperature)
        return one_layer_term(
            vectors, one, options.temperature, shares, mode,
            with_vectors=options.objective == "opt1", skip_negative=options.skip_negative,
        )  # fmt: skip
