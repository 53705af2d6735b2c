"""Which of PromptBERT's options, data and backbone go together: whatever would act in no way is refused."""

from __future__ import annotations

from typing import Any

from stsbench.encoders.forward.checkpoint import position_limit
from stsbench.encoders.prompt.template import TokenTemplate
from stsbench.errors import StsbenchError
from stsbench.methods.promptbert.options import PromptBERTOptions
from stsbench.training.api.roles import pairs_or_sentence
from stsbench.training.modules.backbone import Backbone
from stsbench.training.modules.denoising import check_prompted

_IN_TRAINING = ("denoise_second_shift", "denoise_gradient")
_ANYWHERE = ("denoise_positions", "denoise_start")


def check_options(options: PromptBERTOptions) -> None:
    """Raises StsbenchError, one line, for options that contradict one another or of which one would act in no way."""
    if options.similarity == "dot":
        _idle(options, ("temperature",), "options.similarity dot has none")
    if not options.denoise:
        _idle(options, _IN_TRAINING, "training does not denoise with options.denoise false")
        if not options.test_denoise:
            _idle(options, _ANYWHERE, "nothing is denoised with options.denoise and options.test_denoise false")
    if options.denoise_positions == "empty":
        _idle(options, ("denoise_second_shift",), "options.denoise_positions empty moves nothing")
    if options.second_template in (None, options.template):
        _idle(options, ("denoise_second_shift",), "there is no second template")
    if options.trained == "prompt":
        if options.second_template is not None:
            raise StsbenchError("options.trained prompt learns the words of one template: set options.second_template null")
        if options.head not in ("transform", "none"):
            raise StsbenchError(
                f"options.trained prompt, options.head {options.head}: OptiPrompt has the checkpoint's own head or none: "
                "set options.head transform or none"
            )


def check_backbone(options: PromptBERTOptions, backbone: Backbone) -> None:
    """Raises StsbenchError, one line, for another pooler than mask, or an option without meaning for such a model."""
    if backbone.pooler != "mask":
        raise StsbenchError(f"promptbert trains the pooler mask, not {backbone.pooler}: set backbone.pooler mask")
    if options.denoise or options.test_denoise or options.trained == "prompt":
        check_prompted(backbone, options.denoise_start)


def check_length(template: TokenTemplate, name: str, backbone: Backbone) -> None:
    """Raises StsbenchError where the longest sentence inside the template has more tokens than the model has positions.

    name: what a user would call the template.
    """
    limit = position_limit(backbone.model, backbone.tokenizer)
    longest = backbone.max_length - 2 + template.length
    if limit is not None and longest > limit:
        raise StsbenchError(
            f"{name} makes up to {longest} tokens of backbone.max_length {backbone.max_length}, and {backbone.name} has "
            f"{limit} positions: --set backbone.max_length={backbone.max_length - longest + limit}"
        )


def roles_of(options: PromptBERTOptions, given: tuple[str, ...]) -> tuple[str, ...]:
    """("sentence",) for plain text, else anchor, positive and the hard negatives given. Raises StsbenchError, one line."""
    check_options(options)
    return pairs_or_sentence(
        "promptbert", options.view, given, unsupervised="unsup-promptbert-base", supervised="sup-promptbert-base"
    )  # fmt: skip


def _idle(options: PromptBERTOptions, names: tuple[str, ...], why: str) -> None:
    """StsbenchError for the first of these options that is not at its default, though it would act in no way."""
    for name in names:
        value, default = getattr(options, name), PromptBERTOptions.model_fields[name].default
        if value != default:
            raise StsbenchError(f"options.{name} {_said(value)} acts in no way: {why}; leave it at {_said(default)}")


def _said(value: Any) -> str:
    """As a recipe spells it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
