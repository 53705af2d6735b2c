"""Which of Contrastive Tension's options go together: whatever would have no effect is refused."""

from __future__ import annotations

from stsbench.training.api.options import refuse_idle

from .options import ContrastiveTensionOptions

_OF_PAIRS = ("negatives", "k", "reduction")
_OF_BATCHES = ("similarity", "scale", "learned_scale")


def check_options(options: ContrastiveTensionOptions) -> None:
    """Raises StsbenchError, one line, for options that contradict one another."""
    if options.objective == "pairs":
        refuse_idle(options, _OF_BATCHES, "it is of options.objective in-batch, not of pairs")
    else:
        refuse_idle(options, _OF_PAIRS, "it is of options.objective pairs, not of in-batch")
