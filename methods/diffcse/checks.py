"""Which of DiffCSE's options and data go together: whatever would have no effect, or has no meaning, is refused."""

from __future__ import annotations

from stsbench.errors import StsbenchError
from stsbench.training.api.options import refuse_idle

from .options import DiffCSEOptions

_GENERATOR = ("generator", "generator_mode", "replacement", "replace")
_DISCRIMINATOR = ("task", "condition", "detach", "rtd_mean")
_MASKING = ("mask_ratio", "masked", "random")
_CHANGE = ("sentence", "operators", "combine", *_MASKING, "edit_ratio")


def changes(options: DiffCSEOptions) -> bool:
    """Whether any changed copy of a sentence is made."""
    return options.rtd_weight > 0 or options.augmented_as is not None


def detects(options: DiffCSEOptions) -> bool:
    """Whether a discriminator says of every token if it has been changed; its loss may count padding, too."""
    return options.rtd_weight > 0 and options.task == "rtd"


def generates(options: DiffCSEOptions) -> bool:
    """Whether a generator fills places of the changed copies."""
    return changes(options) and options.task != "conditional_mlm" and options.operators != ("delete",)


def check_options(options: DiffCSEOptions) -> None:
    """Raises StsbenchError, one line, for options that contradict one another or of which one would have no effect.

    With options.projector none the vector that conditions the discriminator is the encoder's own, whether it is called
    projected or raw: the default, projected, is accepted and raw refused.
    """
    _check_terms(options)
    _check_change(options)
    operators = options.operators
    if not changes(options):
        names = (*_DISCRIMINATOR, *_CHANGE, *_GENERATOR)
        refuse_idle(options, names, "no changed sentence is made with options.rtd_weight 0")
    if options.augmented_as is not None:
        refuse_idle(options, _DISCRIMINATOR, "there is no discriminator with options.augmented_as")
    if options.task == "conditional_mlm":
        refuse_idle(options, (*_GENERATOR, "rtd_mean"), "options.task conditional_mlm reads the masked sentence")
    if options.task == "corrective_lm" and options.rtd_mean == "attended":
        raise StsbenchError(
            "options.rtd_mean attended has no effect: options.task corrective_lm never counts padding; leave it at all"
        )
    if not generates(options):
        refuse_idle(options, _GENERATOR, "nothing is generated with options.operators delete")
    if "replace" not in operators:
        refuse_idle(options, (*_MASKING, "replace"), "it belongs to the operator replace, and options.operators lacks it")
    if not {"insert", "delete"} & set(operators):
        refuse_idle(options, ("edit_ratio",), "it belongs to insert and delete, and options.operators names neither")
    if len(operators) == 1:
        refuse_idle(options, ("combine",), f"options.operators has only {operators[0]}")
    if not options.contrastive:
        contrasting = ("similarity", "temperature", "queue")
        refuse_idle(options, contrasting, "there is no contrastive term with options.contrastive false")
    if options.similarity == "dot":
        refuse_idle(options, ("temperature",), "options.similarity dot has none")
    if options.projector == "none":
        refuse_idle(options, ("condition",), "the vector is not projected with options.projector none")


def _check_terms(options: DiffCSEOptions) -> None:
    """The loss has a term, and each term something to train."""
    if options.augmented_as is not None and options.rtd_weight > 0:
        raise StsbenchError(
            f"options.augmented_as {options.augmented_as} takes the changed sentence as a further view, instead of the "
            f"auxiliary term: set options.rtd_weight 0, not {options.rtd_weight:g}"
        )
    if not options.contrastive:
        if options.augmented_as is not None:
            raise StsbenchError(
                f"options.augmented_as {options.augmented_as} acts on the contrastive term: options.contrastive must be true"
            )
        if options.rtd_weight == 0:
            raise StsbenchError("options.contrastive false with options.rtd_weight 0 leaves no term: set one of them")
        if options.detach:
            raise StsbenchError(
                "options.detach true with options.contrastive false leaves the encoder without a gradient: set one of them"
            )
        if options.condition == "raw" and options.projector != "none":
            raise StsbenchError(
                "options.condition raw with options.contrastive false: nothing reads the projector; set options.projector "
                "none and leave options.condition at projected"
            )


def _check_change(options: DiffCSEOptions) -> None:
    """What is changed, and how, has one meaning."""
    operators = options.operators
    if not operators or len(set(operators)) < len(operators):
        raise StsbenchError(
            f"options.operators takes one or more of replace, insert, delete, each once, not [{', '.join(operators)}]"
        )
    if options.task != "rtd" and operators != ("replace",):
        raise StsbenchError(
            f"options.task {options.task} guesses the tokens behind masked ones: options.operators must be [replace], "
            f"not [{', '.join(operators)}]"
        )
    if options.masked + options.random > 1:
        raise StsbenchError(
            f"options.masked {options.masked:g} and options.random {options.random:g} are shares of the chosen tokens: "
            "their sum may not exceed 1"
        )
    if options.sentence != "same" and options.view == "given":
        raise StsbenchError(
            f"options.sentence {options.sentence} needs text whose sentences follow one another, and options.view given "
            "takes pairs: leave it at same"
        )
    if options.sentence != "same" and options.augmented_as is not None:
        raise StsbenchError(
            f"options.augmented_as {options.augmented_as} takes the same sentence, changed: options.sentence "
            f"{options.sentence} must be same"
        )
    if options.augmented_as is not None and len(operators) > 1 and options.combine == "sum":
        raise StsbenchError(
            f"options.augmented_as {options.augmented_as} adds one view, and options.operators [{', '.join(operators)}] "
            "would add several: name one of them, or set options.combine choice"
        )
