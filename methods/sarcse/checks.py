"""Which of SARCSE's options and data go together: whatever would act in no way is refused."""

from __future__ import annotations

from stsbench.errors import StsbenchError
from stsbench.methods.sarcse.options import SARCSEOptions
from stsbench.training.api.roles import pairs_or_sentence

_OF_THE_WEIGHTS = ("theta", "frequency_scale")
_OF_THE_DECODER = ("unpool", "transposed_fusion", "mse_reduction", "detach_target")


def rebuilds(options: SARCSEOptions) -> bool:
    """Whether there is a decoder: a reconstruction term has a weight."""
    return bool(options.beta > 0 or options.gamma > 0)


def check_options(options: SARCSEOptions) -> None:
    """Raises StsbenchError, one line, for options that contradict one another or act in no way."""
    if not rebuilds(options):
        if options.contrastive_weight == 0:
            raise StsbenchError("options.contrastive_weight, options.beta and options.gamma are all 0: there is no loss")
        for name in (*_OF_THE_DECODER, *_OF_THE_WEIGHTS):
            if _chosen(options, name):
                raise StsbenchError(f"options.{name} acts on the decoder, and with options.beta and options.gamma 0 is none")
    if options.contrastive_weight == 0:
        for name in ("similarity", "temperature"):
            if _chosen(options, name):
                raise StsbenchError(f"options.{name} acts on the contrastive term: set options.contrastive_weight above 0")
    if options.similarity == "dot" and _chosen(options, "temperature"):
        raise StsbenchError("options.temperature acts on cosines: options.similarity dot has none; leave it at 0.05")
    if options.theta == 1 and _chosen(options, "frequency_scale"):
        raise StsbenchError("options.frequency_scale acts in no way: with options.theta 1 every token weighs 1")
    if not options.self_adaptive:
        for name in _OF_THE_WEIGHTS:
            if _chosen(options, name):
                raise StsbenchError(f"options.{name} acts on the weights of tokens: set options.self_adaptive true")


def check_pooler(pooler: str) -> None:
    """Raises StsbenchError for another sentence encoder than SARCSE's."""
    if pooler != "text_cnn":
        raise StsbenchError(f"sarcse trains the pooler text_cnn, not {pooler}: set backbone.pooler text_cnn")


def roles_of(options: SARCSEOptions, given: tuple[str, ...]) -> tuple[str, ...]:
    """("sentence",) for plain text, else anchor, positive and the hard negatives given. Raises StsbenchError, one line."""
    check_options(options)
    return pairs_or_sentence("sarcse", options.view, given)


def _chosen(options: SARCSEOptions, name: str) -> bool:
    return bool(getattr(options, name) != SARCSEOptions.model_fields[name].default)
