"""SG-OPT (Kim et al. 2021): a sentence's vector is contrasted with its vectors from all layers of the untrained model."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from stsbench.errors import StsbenchError
from stsbench.losses.arguments import unit
from stsbench.losses.group import sgopt
from stsbench.training.api.batch import Batch, Examples, Gathering, Shares, Term, Views, gather
from stsbench.training.api.contrasting import contrast_views
from stsbench.training.api.method import Method
from stsbench.training.modules.backbone import Backbone, pool_layers
from stsbench.training.modules.copies import Reference

from .options import SGOPTOptions


class SGOPT(Method):
    """The trained backbone, a frozen copy if the options need it, and a projection that is used in training alone."""

    name = "sg-opt"
    Options = SGOPTOptions
    options: SGOPTOptions

    def __init__(self, backbone: Backbone, options: SGOPTOptions) -> None:
        """Raise StsbenchError, one line, for options that do not fit the backbone."""
        super().__init__(backbone, options)
        self.layers = choose_layers(options, backbone)
        std = float(getattr(backbone.model.config, "initializer_range", 0.02))
        self.projector = GELUProjector(backbone.width, options.projection_width, std)
        self.reference: Reference | None = None
        if options.guide == "frozen" or options.regulariser_weight:
            self.reference = Reference(backbone, options.reference_dropout)

    def start_stage(self, stage: str) -> None:
        """Copy the stage's initial weights to the frozen copy, as a stage of labelled rows (recipe.semi) may have changed
        them; freeze the embeddings by options.freeze_embeddings."""
        if self.reference is not None:
            self.reference.restart(self.backbone)
        embeddings = getattr(self.backbone.model, "embeddings", None)
        module: nn.Module = embeddings if isinstance(embeddings, nn.Module) else self.backbone.model.get_input_embeddings()
        module.requires_grad_(not self.options.freeze_embeddings)

    def views(self, rows: Examples, rng: np.random.Generator) -> Views:
        """Return the sentences once; for objectives with one layer, also a layer drawn for each sentence."""
        views = Views([rows.ids("sentence")])
        if self.options.objective != "sg-opt":
            views.by_row["layer"] = [rng.choice(self.layers, len(rows.rows))]
        return views

    def forward(self, batch: Batch) -> dict[str, Term]:
        """Return contrastive, by options.objective, and regulariser, the squared distance to the initial weights."""
        options = self.options
        vectors = self.projector(self.vectors(batch.ids, batch.mask))
        terms = {"contrastive": self._contrastive(batch, vectors)}
        if options.regulariser_weight:
            assert self.reference is not None
            terms["regulariser"] = Term(self.reference.distance(self.backbone), len(batch), options.regulariser_weight)
        return terms

    def _contrastive(self, batch: Batch, vectors: Tensor) -> Term:
        options, shares, mode = self.options, batch.shares, self.gather_mode
        if options.guide == "frozen":
            assert self.reference is not None
            states = self.reference.states(batch.ids, batch.mask, self.layers)
        else:
            states = self.backbone(batch.ids, batch.mask, self.layers)
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
        )


def choose_layers(options: SGOPTOptions, backbone: Backbone) -> tuple[int, ...]:
    """Return the numbers of the layers that give vectors, 0 for the embedding output. Raises StsbenchError, one line, for
    layers that the model lacks, and for a pooler whose vectors are not as wide as hidden states."""
    if backbone.vector_width != backbone.width or backbone.pooler == "mask":
        raise StsbenchError(
            "sg-opt compares sentence vectors with hidden states by one projection, and those of the pooler "
            f"{backbone.pooler} do not go with it: set backbone.pooler, e.g. cls"
        )
    depth = int(backbone.model.config.num_hidden_layers)
    last = depth if options.last_layer is None else options.last_layer
    for name, layer in (("first_layer", options.first_layer), ("last_layer", last)):
        if layer > depth:
            raise StsbenchError(f"options.{name} {layer}: the model has {depth} layers: set it to {depth} at most")
    return tuple(range(options.first_layer, last + 1))


def all_layers_term(vectors: Tensor, layers: Tensor, temperature: float, shares: Shares, mode: Gathering) -> Term:
    """Return `losses.sgopt` with the layers of all processes. vectors: (n, D), layers: (n, K, D), this process's rows."""
    every = gather(layers.flatten(1), shares, mode).unflatten(1, layers.shape[1:])
    if mode == "simcse":
        vectors = gather(vectors, shares, mode)
    start = shares.start if mode == "exact" else 0
    return Term(sgopt(vectors, layers, temperature=temperature, all_layers=every, start=start), len(vectors))


def one_layer_term(
    vectors: Tensor, layer: Tensor, temperature: float, shares: Shares, mode: Gathering, *,
    with_vectors: bool, skip_negative: bool = False,
) -> Term:
    """Return the mean over anchors c_i of the cross-entropy of h_i among all h and, `with_vectors`, other sentences' c.

    vectors (c), layer (h): (n, D), this process's rows. with_vectors: objective opt1, else opt2. skip_negative: leave out
    the h of the first other sentence, which the released code's opt2 removes together with the c.
    """
    with torch.autocast(vectors.device.type, enabled=False):
        x, y = unit(vectors, 1e-12), unit(layer, 1e-12)
        every, others = gather(torch.cat([y, x], 1), shares, mode).chunk(2, 1)
        if mode == "simcse":
            x = others
        columns, itself = _columns(x, every, shares, mode)
        logits = x @ every.T
        if skip_negative:
            logits = logits.masked_fill(_first_partner(itself), -torch.inf)
        if with_vectors:
            logits = torch.cat([logits, (x @ others.T).masked_fill(itself, -torch.inf)], 1)
        losses = functional.cross_entropy(logits / temperature, columns, reduction="sum")
    return Term(losses / max(len(x), 1), len(x))


def _columns(vectors: Tensor, every: Tensor, shares: Shares, mode: Gathering) -> tuple[Tensor, Tensor]:
    """Return the columns (n,) of this process's rows among all N, and (n, N) bool, true at these columns."""
    columns = torch.arange(len(vectors), device=vectors.device) + (shares.start if mode == "exact" else 0)
    return columns, columns.unsqueeze(1) == torch.arange(len(every), device=vectors.device)


def _first_partner(itself: Tensor) -> Tensor:
    """Return (n, N) bool, true in each row at the first column of another sentence."""
    first = torch.zeros_like(itself)
    first[:, :1] = ~itself[:, :1]
    first[:, 1:2] = itself[:, :1]
    return first


class GELUProjector(nn.Module):
    """gelu(W2 gelu(W1 x + b1) + b2): width -> inner -> inner, with any number of leading dimensions.

    W1 and W2 start from N(0, std^2), by torch's global generator; b1, b2 = 0. GELU is exact (by the error function).
    Source: Kim et al. (2021), SG-OPT, and loss.py of its code.
    """

    def __init__(self, width: int, inner: int, std: float) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(width, inner), nn.Linear(inner, inner)
        for linear in (self.inner, self.outer):
            nn.init.normal_(linear.weight, std=std)
            nn.init.zeros_(linear.bias)

    def forward(self, vectors: Tensor) -> Tensor:
        """Return (..., inner) projections of (..., width) vectors."""
        return functional.gelu(self.outer(functional.gelu(self.inner(vectors))))
