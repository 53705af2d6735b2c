"""Which of SARCSE's options and data go together: whatever would have no effect is refused."""

from __future__ import annotations

from stsbench.errors import StsbenchError
from stsbench.training.api.options import changed

from .options import SARCSEOptions

_OF_THE_WEIGHTS = ("theta", "frequency_scale")
_OF_THE_DECODER = ("unpool", "transposed_fusion", "mse_reduction", "detach_target")


def rebuilds(options: SARCSEOptions) -> bool:
    """Whether there is a decoder: a reconstruction term has a weight."""
    return options.beta > 0 or options.gamma > 0


def check_options(options: SARCSEOptions) -> None:
    """Raises StsbenchError, one line, for options that contradict one another or have no effect."""
    if not rebuilds(options):
        if options.contrastive_weight == 0:
            raise StsbenchError("options.contrastive_weight, options.beta and options.gamma are all 0: there is no loss")
        for name in (*_OF_THE_DECODER, *_OF_THE_WEIGHTS):
            if changed(options, name):
                raise StsbenchError(f"options.{name} acts on the decoder; options.beta and options.gamma 0 leave none")
    if options.contrastive_weight == 0:
        for name in ("similarity", "temperature"):
            if changed(options, name):
                raise StsbenchError(f"options.{name} acts on the contrastive term: set options.contrastive_weight above 0")
    if options.similarity == "dot" and changed(options, "temperature"):
        raise StsbenchError("options.temperature acts on cosines: options.similarity dot has none; leave it at 0.05")
    if options.theta == 1 and changed(options, "frequency_scale"):
        raise StsbenchError("options.frequency_scale has no effect: with options.theta 1 every token weighs 1")
    if not options.self_adaptive:
        for name in _OF_THE_WEIGHTS:
            if changed(options, name):
                raise StsbenchError(f"options.{name} acts on the weights of tokens: set options.self_adaptive true")


def check_pooler(pooler: str) -> None:
    """Raises StsbenchError for another sentence encoder than SARCSE's."""
    if pooler != "text_cnn":
        raise StsbenchError(f"sarcse trains the pooler text_cnn, not {pooler}: set backbone.pooler text_cnn")
