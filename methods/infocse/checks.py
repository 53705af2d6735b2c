"""Which of InfoCSE's options and backbones go together."""

from __future__ import annotations

from stsbench.encoders.forward.padded import known_family
from stsbench.errors import StsbenchError
from stsbench.training.modules.backbone import Backbone

from .options import InfoCSEOptions


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
