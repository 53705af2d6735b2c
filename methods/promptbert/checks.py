"""Which of PromptBERT's options, data and backbone go together: whatever would have no effect is refused."""

from __future__ import annotations

from stsbench.errors import StsbenchError
from stsbench.training.api.options import refuse_idle
from stsbench.training.modules.backbone import Backbone
from stsbench.training.modules.denoising import check_prompted

from .options import PromptBERTOptions

_IN_TRAINING = ("denoise_second_shift", "denoise_gradient")
_ANYWHERE = ("denoise_positions", "denoise_start")
TRANSFORMS = ("transform", "transform_train_only")


def check_options(options: PromptBERTOptions) -> None:
    """Raises StsbenchError, one line, for options that contradict one another or of which one would have no effect."""
    if options.similarity == "dot":
        refuse_idle(options, ("temperature",), "options.similarity dot has none")
    if not options.denoise:
        refuse_idle(options, _IN_TRAINING, "training does not denoise with options.denoise false")
        if not options.test_denoise:
            refuse_idle(options, _ANYWHERE, "nothing is denoised with options.denoise and options.test_denoise false")
    if options.denoise_positions == "empty":
        refuse_idle(options, ("denoise_second_shift",), "options.denoise_positions empty moves nothing")
    if options.second_template in (None, options.template):
        refuse_idle(options, ("denoise_second_shift",), "there is no second template")
    if options.trained != "all":
        trained = f"options.trained {options.trained}"
        if options.second_template is not None:
            raise StsbenchError(f"{trained} learns the words of one template: set options.second_template null")
        if options.head not in (*TRANSFORMS, "none"):
            raise StsbenchError(
                f"{trained}, options.head {options.head}: OptiPrompt has the checkpoint's own head or none: "
                f"set options.head {', '.join(TRANSFORMS)} or none"
            )


def check_backbone(options: PromptBERTOptions, backbone: Backbone) -> None:
    """Raises StsbenchError, one line, for another pooler than mask, or an option without meaning for such a model."""
    if backbone.pooler != "mask":
        raise StsbenchError(f"promptbert trains the pooler mask, not {backbone.pooler}: set backbone.pooler mask")
    if options.denoise or options.test_denoise or options.trained != "all":
        check_prompted(backbone, options.denoise_start)
