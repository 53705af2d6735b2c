"""InfoCSE (Wu et al. 2022): SimCSE, and a [CLS] vector by which other layers can rebuild the sentence's masked tokens."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from stsbench.encoders.forward.passes import known_family
from stsbench.encoders.prompt.modules import MLPHead
from stsbench.errors import StsbenchError
from stsbench.training.api.batch import IGNORED, Batch, Examples, Shares, Term, Views, apply_to_all_rows, counted
from stsbench.training.api.contrasting import contrast
from stsbench.training.api.method import Inference, Method, Needs
from stsbench.training.modules.backbone import Backbone
from stsbench.training.modules.edits import mask_tokens
from stsbench.training.modules.masked_lm import made_up
from stsbench.training.modules.projector import BatchNormProjector

from .auxiliary import Auxiliary
from .options import InfoCSEOptions


class InfoCSE(Method):
    """L = L_contrast + w L_mlm, unsupervised, on plain sentences. With w 0 it is SimCSE with the projector chosen."""

    name = "infocse"
    Options = InfoCSEOptions
    options: InfoCSEOptions

    def __init__(self, backbone: Backbone, options: InfoCSEOptions) -> None:
        """Take a backbone with its `folder` and `name`; raise StsbenchError, one line, where the options do not fit it."""
        super().__init__(backbone, options)
        check_backbone(options, backbone)
        width, std = backbone.width, getattr(backbone.model.config, "initializer_range", 0.02)
        batchnorm = options.projector == "batchnorm"
        self.projector = BatchNormProjector(width, width, std) if batchnorm else MLPHead(width, std)
        # behind the projector: its weights are then those of a run without the reconstruction
        self.auxiliary = Auxiliary(backbone, options) if options.mlm_weight > 0 else None

    @classmethod
    def needs(cls, options: InfoCSEOptions) -> Needs:
        """Return sentences; dropout, as the views are the sentence twice."""
        return Needs(dropout=True)

    def views(self, rows: Examples, rng: np.random.Generator) -> Views:
        """Return the sentence twice; in extra "mlm_ids" a masked copy of each view, and in "mlm_labels" the tokens to
        guess."""
        views = Views([rows.ids("sentence")] * 2)
        if self.auxiliary is not None:
            tokenizer, probability = self.backbone.tokenizer, self.options.mlm_probability
            special, mask_id, vocabulary = tokenizer.all_special_ids, tokenizer.mask_token_id, len(tokenizer)
            copies = [mask_tokens(ids, special, mask_id, vocabulary, rng, probability) for ids in views.tokens]
            views.extra = {"mlm_ids": [ids for ids, _ in copies], "mlm_labels": [labels for _, labels in copies]}
        return views

    def forward(self, batch: Batch) -> dict[str, Term]:
        """contrastive: InfoNCE between the projected vectors of the two views; mlm: the reconstruction, by the vectors
        before the projector."""
        raw = self.backbone.pooled(batch.ids, batch.mask)
        first, second = self._project(raw, batch.shares).split(len(batch))
        temperature = self.options.temperature
        terms = {"contrastive": contrast(first, second, [], batch.shares, self.gather_mode, temperature=temperature)}
        if self.auxiliary is not None:
            terms["mlm"] = self.auxiliary(batch.extra["mlm_ids"], batch.mask, batch.extra["mlm_labels"], raw)
        return terms

    def vectors(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Return (n, d) projected vectors. BatchNorm's statistics are over these rows, with training.gather exact those
        of all processes, every one of which must call then."""
        raw = self.backbone.pooled(ids, mask)
        everywhere = self.training and self.gather_mode == "exact"
        return self._project(raw, counted(len(raw), raw.device) if everywhere else Shares((len(raw),)))

    def counts(self, batch: Batch) -> dict[str, int]:
        """mlm: the masked tokens."""
        return {} if self.auxiliary is None else {"mlm": int((batch.extra["mlm_labels"] != IGNORED).sum())}

    def metrics(self) -> dict[str, float]:
        """masked_accuracy: the share of this process's masked tokens that were guessed right."""
        return {} if self.auxiliary is None else self.auxiliary.metrics()

    def notes(self) -> list[str]:
        """Return a masked-LM head that the checkpoint does not have."""
        missing = self.auxiliary is not None and not self.auxiliary.lm_head.stored
        return [made_up(self.backbone.name)] if missing else []

    def inference(self) -> Inference:
        """Return the encoder by [CLS], without the projector."""
        return Inference(self.backbone.model, self.backbone.tokenizer, "cls")

    def _project(self, raw: Tensor, shares: Shares) -> Tensor:
        """Return (v * n, d) vectors, view after view -> (v * n, d). With training.gather exact, BatchNorm's statistics
        are over the views of all processes; else over its own, as in the released code."""
        if isinstance(self.projector, BatchNormProjector):
            return apply_to_all_rows(self.projector, raw, shares, self.gather_mode)
        projected: Tensor = self.projector(raw)
        return projected


def check_backbone(options: InfoCSEOptions, backbone: Backbone) -> None:
    """Raise StsbenchError, one line, for a pooler or a model that the reconstruction cannot be built on."""
    if backbone.pooler != "cls":
        raise StsbenchError(f"infocse trains the pooler cls, not {backbone.pooler}: set backbone.pooler cls")
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
