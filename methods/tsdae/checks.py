"""Which of TSDAE's options go together."""

from __future__ import annotations

from stsbench.errors import StsbenchError
from stsbench.training.api.options import refuse_idle

from .options import TSDAEOptions


def check_options(options: TSDAEOptions) -> None:
    """Raises StsbenchError, one line, for an option that has no effect beside the others."""
    if options.unit == "subword":
        refuse_idle(options, ["detokenise"], "options.unit subword deletes token ids")
    if options.tie and options.decoder is not None:
        raise StsbenchError(
            f"options.decoder {options.decoder} has no effect: by options.tie true the decoder has the encoder's weights; "
            "set options.tie false, or options.decoder null"
        )
