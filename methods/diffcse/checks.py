"""Which of DiffCSE's options and data go together: whatever would act in no way, or has no meaning, is refused."""

from __future__ import annotations

from typing import Any

from stsbench.errors import StsbenchError
from stsbench.methods.diffcse.options import DiffCSEOptions
from stsbench.training.api.roles import pairs_or_sentence

_GENERATOR = ("generator", "generator_mode", "replacement", "replace")
_DISCRIMINATOR = ("task", "condition", "detach", "rtd_mean")
_MASKING = ("mask_ratio", "masked", "random")
_CHANGE = ("sentence", "operators", "combine", *_MASKING, "edit_ratio")


def changes(options: DiffCSEOptions) -> bool:
    """Whether any changed copy of a sentence is made."""
    return bool(options.rtd_weight > 0 or options.augmented_as is not None)


def detects(options: DiffCSEOptions) -> bool:
    """Whether a discriminator says of every token if it has been changed; its loss may count padding, too."""
    return bool(options.rtd_weight > 0 and options.task == "rtd")


def generates(options: DiffCSEOptions) -> bool:
    """Whether a generator fills places of the changed copies."""
    return bool(changes(options) and options.task != "conditional_mlm" and options.operators != ("delete",))


def check_options(options: DiffCSEOptions) -> None:
    """Raises StsbenchError, one line, for options that contradict one another or of which one would act in no way.

    With options.projector none the vector that conditions the discriminator is the encoder's own, whether it is called
    projected or raw: the default, projected, is accepted and raw refused.
    """
    _check_terms(options)
    _check_change(options)
    operators = options.operators
    if not changes(options):
        _idle(options, (*_DISCRIMINATOR, *_CHANGE, *_GENERATOR), "no changed sentence is made with options.rtd_weight 0")
    if options.augmented_as is not None:
        _idle(options, _DISCRIMINATOR, "there is no discriminator with options.augmented_as")
    if options.task == "conditional_mlm":
        _idle(options, (*_GENERATOR, "rtd_mean"), "options.task conditional_mlm reads the masked sentence")
    if options.task == "corrective_lm" and options.rtd_mean == "attended":
        raise StsbenchError(
            "options.rtd_mean attended acts in no way: options.task corrective_lm never counts padding; leave it at all"
        )
    if not generates(options):
        _idle(options, _GENERATOR, "nothing is generated with options.operators delete")
    if "replace" not in operators:
        _idle(options, (*_MASKING, "replace"), "it belongs to the operator replace, which options.operators does not name")
    if not {"insert", "delete"} & set(operators):
        _idle(options, ("edit_ratio",), "it belongs to insert and delete, and options.operators names neither")
    if len(operators) == 1:
        _idle(options, ("combine",), f"options.operators has only {operators[0]}")
    if not options.contrastive:
        _idle(options, ("similarity", "temperature"), "there is no contrastive term with options.contrastive false")
    if options.similarity == "dot":
        _idle(options, ("temperature",), "options.similarity dot has none")
    if options.projector == "none":
        _idle(options, ("condition",), "the vector is not projected with options.projector none")


def roles_of(options: DiffCSEOptions, given: tuple[str, ...]) -> tuple[str, ...]:
    """("sentence",) for plain text, else anchor, positive and the hard negatives given. Raises StsbenchError, one line."""
    check_options(options)
    return pairs_or_sentence("diffcse", options.view, given)


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


def _idle(options: DiffCSEOptions, names: tuple[str, ...], why: str) -> None:
    """StsbenchError for the first of these options that is not at its default, though it would act in no way."""
    for name in names:
        value, default = getattr(options, name), DiffCSEOptions.model_fields[name].default
        if value != default:
            raise StsbenchError(f"options.{name} {_said(value)} acts in no way: {why}; leave it at {_said(default)}")


def _said(value: Any) -> str:
    """As a recipe spells it."""
    if isinstance(value, tuple):
        return f"[{', '.join(value)}]"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
