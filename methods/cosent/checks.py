"""Which of CoSENT's options go together: whatever would have no effect is refused."""

from __future__ import annotations

from stsbench.errors import StsbenchError
from stsbench.training.api.options import refuse_idle

from .options import CoSENTOptions


def check_options(options: CoSENTOptions) -> None:
    """Raises StsbenchError, one line, for an option without an effect, and for classes without an order."""
    if options.format == "scored":
        refuse_idle(options, ("label_scores",), "options.format is scored")
    if len(set(options.label_scores.values())) < 2:
        raise StsbenchError("options.label_scores needs two classes with different scores: the loss learns their order")
