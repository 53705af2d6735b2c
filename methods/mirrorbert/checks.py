"""Which of Mirror-BERT's options go together: whatever would have no effect, or cannot be computed, is refused."""

from __future__ import annotations

from stsbench.encoders.forward.checkpoint import position_limit
from stsbench.encoders.forward.padded import check_family
from stsbench.encoders.forward.pooling import padded_length
from stsbench.errors import StsbenchError
from stsbench.training.api.options import refuse_idle
from stsbench.training.modules.backbone import Backbone

from .options import MirrorBERTOptions


def check_options(options: MirrorBERTOptions) -> None:
    """Raises StsbenchError, one line, for options that contradict one another."""
    if not options.span_chars:
        refuse_idle(options, ("min_chars", "first_occurrence", "literal_mask"), "options.span_chars 0 masks nothing")


def check_backbone(options: MirrorBERTOptions, backbone: Backbone) -> None:
    """Raises StsbenchError, one line, for what the backbone and its pooler cannot do."""
    if options.span_chars and not options.literal_mask and backbone.tokenizer.mask_token is None:
        raise StsbenchError("the tokenizer has no mask token: set options.literal_mask, or options.span_chars 0")
    if options.drophead:
        check_family(backbone.model)
    if options.test_length is None:
        return
    if padded_length(backbone.pooler) is None:
        raise StsbenchError(
            f"options.test_length {options.test_length} has no effect: it is of the pooler mean_padded, not of "
            f"{backbone.pooler}; leave it at null"
        )
    limit = position_limit(backbone.model, backbone.tokenizer)
    if limit is not None and options.test_length > limit:
        length, name = options.test_length, backbone.name
        raise StsbenchError(f"options.test_length {length} is more than the {limit} positions of {name}")
