"""InfoCSE (Wu et al. 2022): SimCSE, with a [CLS] vector from which other layers reconstruct masked tokens."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from stsbench.encoders.forward.checkpoint import first_line
from stsbench.encoders.forward.passes import known_family, wide_mask
from stsbench.encoders.prompt.modules import MLPHead
from stsbench.errors import StsbenchError
from stsbench.losses.tokens import guess_metrics
from stsbench.training.api.batch import Batch, Examples, Term, Views
from stsbench.training.api.contrasting import contrast
from stsbench.training.api.method import BatchNormProjector, Needs, ProjectedMethod
from stsbench.training.modules.backbone import Backbone
from stsbench.training.modules.copies import Reference
from stsbench.training.modules.edits import mask_tokens
from stsbench.training.modules.masked_lm import LMHead

from .options import InfoCSEOptions

_FILE, _PREFIX = "model.pt", "c_head."  # file and prefix of names with which Condenser stores the layers of its head


class InfoCSE(ProjectedMethod):
    """The loss L_contrast + w L_mlm, unsupervised, on plain sentences. With w 0 it is SimCSE with options.projector."""

    trained_pooler = "cls"
    Options = InfoCSEOptions
    options: InfoCSEOptions

    def __init__(self, backbone: Backbone, options: InfoCSEOptions) -> None:
        """Take a backbone with its `folder` and `name`; raise StsbenchError, one line, where the options do not fit it."""
        super().__init__(backbone, options)
        check_backbone(options, backbone)
        width, std = backbone.width, getattr(backbone.model.config, "initializer_range", 0.02)
        batchnorm = options.projector == "batchnorm"
        self.projector = BatchNormProjector(width, width, std) if batchnorm else MLPHead(width, std)
        # created after the projector, whose random weights are then the same as without the reconstruction
        self.auxiliary = Auxiliary(backbone, options) if options.mlm_weight > 0 else None

    @classmethod
    def needs(cls, options: InfoCSEOptions) -> Needs:
        """Return the needs: sentences, and dropout, as both views are the same sentence."""
        return Needs(dropout=True)

    def views(self, rows: Examples, rng: np.random.Generator) -> Views:
        """Return the sentence twice; in extra "mlm_ids" a masked copy of each view, and in "mlm_labels" the tokens to
        predict."""
        views = Views([rows.ids("sentence")] * 2)
        if self.auxiliary is not None:
            tokenizer, probability = self.backbone.tokenizer, self.options.mlm_probability
            copies = [mask_tokens(ids, tokenizer, rng, probability) for ids in views.tokens]
            views.extra = {"mlm_ids": [ids for ids, _ in copies], "mlm_labels": [labels for _, labels in copies]}
        return views

    def forward(self, batch: Batch) -> dict[str, Term]:
        """Return contrastive, InfoNCE between the projected vectors of the two views, and mlm, the reconstruction from the
        vectors before the projector."""
        raw = self.backbone.pooled(batch.ids, batch.mask)
        first, second = self.project(raw, batch.shares).split(len(batch))
        temperature = self.options.temperature
        terms = {"contrastive": contrast(first, second, [], batch.shares, self.gather_mode, temperature=temperature)}
        if self.auxiliary is not None:
            terms["mlm"] = self.auxiliary(batch.extra["mlm_ids"], batch.mask, batch.extra["mlm_labels"], raw)
        return terms

    def metrics(self) -> dict[str, float]:
        """Return masked_accuracy, the share of this process's masked tokens predicted correctly since the last call."""
        return {} if self.auxiliary is None else guess_metrics(self.auxiliary.guesses)


def check_backbone(options: InfoCSEOptions, backbone: Backbone) -> None:
    """Raise StsbenchError, one line, for a model that does not support the reconstruction."""
    if options.mlm_weight == 0:
        return
    if not known_family(backbone.model):
        raise StsbenchError(
            f"infocse reconstructs with layers of BERT's or RoBERTa's kind, and {backbone.name} is a "
            f"{type(backbone.model).__name__}: take such a backbone, or set options.mlm_weight 0"
        )
    layers = int(backbone.model.config.num_hidden_layers)
    if options.frozen_layers > layers:
        raise StsbenchError(
            f"options.frozen_layers {options.frozen_layers} is more than the {layers} layers of {backbone.name}: "
            f"--set options.frozen_layers={layers}"
        )
    if backbone.tokenizer.mask_token_id is None:
        raise StsbenchError(f"options.mlm_weight needs a mask token, and the tokenizer of {backbone.name} has none")


class Auxiliary(nn.Module):
    """The frozen first layers of the checkpoint, further layers (the head), and the checkpoint's masked-LM head.

    The head reads the frozen layers' states of the masked sentence, the first of which is replaced by the encoder's vector
    of the unmasked sentence: Condenser (Gao and Callan 2021) with a lower half separate from the encoder. The encoder gets
    its gradient through this vector alone.
    """

    guesses: Tensor  # (2,) correct guesses and guesses since the last `metrics`

    def __init__(self, backbone: Backbone, options: InfoCSEOptions) -> None:
        """backbone: with its `folder` and `name`, as it was loaded. The head's random weights come from torch's global
        generator. Raises StsbenchError, one line, for a model.pt without such layers."""
        super().__init__()
        self.weight = options.mlm_weight
        self.frozen = _first_layers(backbone, options.frozen_layers, dropout=options.frozen_mode == "train")
        self.head = _new_layers(backbone.model, options.head_layers)
        if options.head_init == "condenser":  # the folder's digest, checked on resuming, includes this file
            _load_condenser(self.head, backbone.folder / _FILE)
        self.lm_head = LMHead.load(backbone.folder, backbone.model, backbone.name, tied=False)
        self.register_buffer("guesses", torch.zeros(2, dtype=torch.long))

    def forward(self, ids: Tensor, mask: Tensor, labels: Tensor, first: Tensor) -> Term:
        """Return the mean cross-entropy of the masked tokens.

        ids, mask: (m, L), the masked sentences; labels: (m, L), the original tokens at masked positions, IGNORED elsewhere;
        first: (m, d), the encoder's [CLS] vectors of the unmasked sentences.
        """
        states = self.frozen.states(ids, mask, (-1,))[0]
        hidden = torch.cat([first.unsqueeze(1), states[:, 1:]], 1)
        visible = wide_mask(self.frozen.backbone.model, mask.bool(), 0)
        for layer in self.head:
            hidden = layer(hidden, visible)
        return Term(*self.lm_head.loss(hidden, labels, self.guesses), self.weight)


def _first_layers(backbone: Backbone, count: int, dropout: bool) -> Reference:
    """Return a frozen copy of the first `count` layers. dropout: whether it has the encoder's dropout in training."""
    frozen = Reference(backbone, dropout)
    model: Any = frozen.backbone.model
    model.encoder.layer = model.encoder.layer[:count]
    model.config.num_hidden_layers = count
    return frozen


def _new_layers(model: Any, count: int) -> nn.ModuleList:
    """Return `count` new layers like the model's. Linear weights are from N(0, initializer_range^2), biases are 0."""
    config = copy.deepcopy(model.config)
    kind, std = type(model.encoder.layer[0]), getattr(config, "initializer_range", 0.02)
    layers = nn.ModuleList(kind(config, layer_idx=number) for number in range(count))
    for module in layers.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=std)
            nn.init.zeros_(module.bias)
    weight = model.get_input_embeddings().weight
    return layers.to(weight.device, weight.dtype).train(model.training)


def _load_condenser(layers: nn.ModuleList, path: Path) -> None:
    """Load the layers' weights from a file of Condenser's pre-training. Raises StsbenchError where they do not fit."""
    wanted = f"options.head_init condenser reads the head's layers from {path}"
    if not path.is_file():
        raise StsbenchError(
            f"{wanted}, which is not there: let backbone.model be a folder of Condenser's pre-training, or set random"
        )
    try:
        stored = torch.load(path, map_location="cpu", weights_only=True)  # nothing but tensors is unpickled
    except Exception as error:  # pickle, zipfile and torch each have their own kinds
        raise StsbenchError(f"{wanted}, which cannot be read as weights alone: {first_line(error)}") from error
    if not isinstance(stored, dict):
        raise StsbenchError(f"{wanted}, which holds no weights by name")
    weights = {str(name).removeprefix(_PREFIX): value for name, value in stored.items() if str(name).startswith(_PREFIX)}
    count = len({name.partition(".")[0] for name in weights})
    if count != len(layers):
        raise StsbenchError(f"{wanted}, which holds {count}: options.head_layers {len(layers)} must be as many")
    try:
        layers.load_state_dict(weights)
    except (RuntimeError, TypeError, AttributeError) as error:
        raise StsbenchError(f"{wanted}, which do not fit the encoder: {' '.join(str(error).split())[:200]}") from error
