"""Which options and backbones conditional masked language modelling takes: what cannot be meant is refused."""

from __future__ import annotations

from stsbench.errors import StsbenchError
from stsbench.training.modules.backbone import Backbone

from .options import ConditionalMaskedLMOptions


def check_options(options: ConditionalMaskedLMOptions) -> None:
    """Raises StsbenchError, one line, for options that contradict one another."""
    if options.masked + options.random > 1:
        raise StsbenchError(
            f"options.masked {options.masked:g} and options.random {options.random:g} are shares of the chosen tokens: "
            "their sum may not exceed 1"
        )
    if options.both_directions and options.sentence == "same":
        raise StsbenchError("options.both_directions is of a sentence and its next one: options.sentence must be next")


def check_backbone(backbone: Backbone) -> None:
    """Raises StsbenchError, one line, for a pooler of another width or a tokenizer without mask token."""
    if backbone.head is not None:
        raise StsbenchError("cmlm reads the sentence's vector as one more token: set backbone.pooler to mean, max or cls")
    if backbone.tokenizer.mask_token_id is None:
        raise StsbenchError(f"cmlm needs a mask token, and the tokenizer of {backbone.name} has none")
