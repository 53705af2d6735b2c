"""Which of SimCSE's options and data go together: whatever would have no effect, or not as published, is refused."""

from __future__ import annotations

from stsbench.errors import StsbenchError
from stsbench.training.api.roles import pairs_or_sentence

from .options import SimCSEOptions

NEXT = {"next": 1, "next3": 3}  # view -> how many following sentences may be the positive
_RATED = ("crop", "delete_words", "mlm")
_AUGMENTED = (*_RATED, "delete_one_word", "synonym")


def check_options(options: SimCSEOptions) -> None:
    """Raises StsbenchError, one line, for options that contradict one another."""
    view = options.view
    if view in _RATED and options.rate is None:
        raise StsbenchError(f"options.view {view} needs options.rate, the share of words, e.g. 0.1")
    if view not in _RATED and options.rate is not None:
        raise StsbenchError(f"options.rate acts on the views {', '.join(_RATED)}, not on {view}")
    if view == "synonym" and options.thesaurus is None:
        raise StsbenchError("options.view synonym needs options.thesaurus, a file of word TAB synonym TAB synonym ...")
    if view != "synonym" and options.thesaurus is not None:
        raise StsbenchError(f"options.thesaurus acts on the view synonym, not on {view}")
    if view != "mlm" and options.replacer is not None:
        raise StsbenchError(f"options.replacer acts on the view mlm, not on {view}")
    if options.augment_both and view not in _AUGMENTED:
        raise StsbenchError(f"options.augment_both acts on the views {', '.join(_AUGMENTED)}, not on {view}")
    if options.fixed_dropout_mask and view != "dropout":
        raise StsbenchError(f"options.fixed_dropout_mask makes both views one vector: set options.view dropout, not {view}")
    if options.fixed_dropout_mask and options.encoders == 2:
        raise StsbenchError("options.fixed_dropout_mask makes both views one vector: options.encoders must be 1")
    if options.repeat is not None and (view not in ("dropout", "given") or options.fixed_dropout_mask):
        what = "one vector of options.fixed_dropout_mask" if options.fixed_dropout_mask else view
        raise StsbenchError(f"options.repeat acts on the views dropout and given, not on {what}: set it to null")
    if options.queue is not None and options.encoders == 2:
        raise StsbenchError("options.queue must be null with options.encoders 2: which of them it follows is not published")
    if options.mlm_in_place and options.mlm_weight == 0:
        raise StsbenchError("options.mlm_in_place needs the masked-LM term: set options.mlm_weight, e.g. 0.1")
    if options.mlm_weight > 0 and view == "mlm":
        raise StsbenchError("options.mlm_weight must be 0 with the view mlm: its words are known only on the device")
    if options.mlm_weight > 0 and options.encoders == 2:
        raise StsbenchError("options.mlm_weight must be 0 with options.encoders 2: which of them it trains is not published")


def check_head(options: SimCSEOptions, pooler: str) -> None:
    """Raises StsbenchError for an MLP head on another vector than the first token's."""
    if options.head != "none" and pooler != "cls":
        raise StsbenchError(
            f"options.head {options.head} stands on the pooler cls, not on {pooler}: set options.head none, as SimCSE does"
        )


def roles_of(options: SimCSEOptions, available: tuple[str, ...], who: str) -> tuple[str, ...]:
    """("sentence",), or anchor, positive and the hard negatives that the data give. Raises StsbenchError for others."""
    roles = pairs_or_sentence(
        available, who, options.view, unsupervised="unsup-bert-base", supervised="sup-bert-base"
    )
    check_alpha(options, roles)
    return roles


def check_alpha(options: SimCSEOptions, roles: tuple[str, ...]) -> None:
    """Raises StsbenchError for a weight of hard negatives where the data have none. roles: those used."""
    if options.alpha != 1 and roles == ("sentence",):
        raise StsbenchError("options.alpha weighs hard negatives, and plain sentences have none: leave it at 1")
    if options.alpha != 1 and "negative" not in roles:
        raise StsbenchError("options.alpha weighs hard negatives, and the data have none: leave it at 1, or name negative")
