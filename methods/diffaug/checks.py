"""Which of DiffAug's options and data go together: whatever would have no effect, or not as published, is refused."""

from __future__ import annotations

from stsbench.encoders.forward.checkpoint import position_limit
from stsbench.encoders.prompt.template import TokenTemplate
from stsbench.errors import StsbenchError
from stsbench.training.api.options import changed
from stsbench.training.modules.backbone import Backbone
from stsbench.training.modules.denoising import check_prompted

from .options import DiffAugOptions

_OF_MODULE = {  # option -> the modules it belongs to
    "prefix_length": ("prefix",), "rank": ("adapter", "lora"), "adapter_activation": ("adapter",), "lora_scale": ("lora",),
    "clip_frozen": ("prefix",),
}
_DENOISING = ("denoise_offset", "denoise_start")


def check_options(options: DiffAugOptions) -> None:
    """Raises StsbenchError, one line, for options that contradict one another."""
    for key, modules in _OF_MODULE.items():
        if options.module not in modules and changed(options, key):
            wanted = " or ".join(modules)
            raise StsbenchError(f"options.{key} applies only to options.module {wanted}, not to {options.module}")
    if not options.denoise and (idle := [key for key in _DENOISING if changed(options, key)]):
        raise StsbenchError(f"options.{idle[0]} applies only to options.denoise: leave it out, or set options.denoise=true")
    if options.similarity == "dot" and changed(options, "temperature"):
        raise StsbenchError("options.temperature applies only to options.similarity cosine, not with dot: leave it out")
    if options.views == "same" and options.at_test != "both":
        raise StsbenchError(f"options.at_test {options.at_test} chooses between two modules, and options.views same has one")
    if options.module != "prefix" and options.at_test == "average":
        raise StsbenchError(
            f"options.at_test average runs two prefixes one after another: with options.module {options.module} choose both "
            "(the sum of the two), first or second"
        )


def check_backbone(options: DiffAugOptions, backbone: Backbone) -> None:
    """Raises StsbenchError, one line, for another pooler than mask, and for an option without meaning for the model."""
    if backbone.pooler != "mask":
        raise StsbenchError(f"diffaug reads the template's mask: set backbone.pooler=mask, not {backbone.pooler}")
    check_prompted(backbone, options.denoise_start)


def check_length(options: DiffAugOptions, template: TokenTemplate, backbone: Backbone) -> None:
    """Raises StsbenchError where prefix, template and the longest sentence are more than the model has positions for."""
    limit = position_limit(backbone.model, backbone.tokenizer)
    sets = 1 if options.views == "same" else 2
    prefix = sets * options.prefix_length if options.module == "prefix" else 0
    longest = backbone.max_length - 2 + template.length + prefix + options.denoise_offset
    if limit is not None and longest > limit:
        raise StsbenchError(
            f"backbone.max_length {backbone.max_length}, template and a prefix of {prefix} need {longest} positions, "
            f"and {backbone.name} has {limit}: lower backbone.max_length or options.prefix_length"
        )
