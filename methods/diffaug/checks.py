"""Which backbones DiffAug's options go with."""

from __future__ import annotations

from stsbench.encoders.forward.checkpoint import position_limit
from stsbench.encoders.prompt.template import TokenTemplate
from stsbench.errors import StsbenchError
from stsbench.training.modules.backbone import Backbone
from stsbench.training.modules.denoising import check_prompted

from .options import DiffAugOptions


def check_backbone(options: DiffAugOptions, backbone: Backbone) -> None:
    """Raise StsbenchError, one line, for another pooler than mask, and for an option without meaning for the model."""
    if backbone.pooler != "mask":
        raise StsbenchError(f"diffaug reads the template's mask: set backbone.pooler=mask, not {backbone.pooler}")
    check_prompted(backbone, options.denoise_start)


def check_length(options: DiffAugOptions, template: TokenTemplate, backbone: Backbone) -> None:
    """Raise StsbenchError where prefix, template and the longest sentence are more than the model has positions for."""
    limit = position_limit(backbone.model, backbone.tokenizer)
    sets = 1 if options.views == "same" else 2
    prefix = sets * options.prefix_length if options.module == "prefix" else 0
    longest = backbone.max_length - 2 + template.length + prefix + options.denoise_offset
    if limit is not None and longest > limit:
        raise StsbenchError(
            f"backbone.max_length {backbone.max_length}, template and a prefix of {prefix} need {longest} positions, "
            f"and {backbone.name} has {limit}: lower backbone.max_length or options.prefix_length"
        )
