"""Which of PromptBERT's options and backbones go together."""

from __future__ import annotations

from stsbench.errors import StsbenchError
from stsbench.training.modules.backbone import Backbone
from stsbench.training.modules.denoising import check_prompted

from .options import PromptBERTOptions


def check_backbone(options: PromptBERTOptions, backbone: Backbone) -> None:
    """Raise StsbenchError, one line, for another pooler than mask, or an option without meaning for such a model."""
    if backbone.pooler != "mask":
        raise StsbenchError(f"promptbert trains the pooler mask, not {backbone.pooler}: set backbone.pooler mask")
    if options.denoise or options.test_denoise or options.trained != "all":
        check_prompted(backbone, options.denoise_start)
