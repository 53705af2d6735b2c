"""Which of WhitenedCSE's options go together, and with the backbone."""

from __future__ import annotations

from stsbench.errors import StsbenchError
from stsbench.training.api.options import refuse_idle

from .options import WhitenedCSEOptions


def check_options(options: WhitenedCSEOptions) -> None:
    """Raises StsbenchError, one line, for options without an effect."""
    if options.split == "none":
        refuse_idle(options, ("groups", "shuffle", "eps", "detach_matrix"), "options.split none whitens nothing")
    if options.groups == 1:
        refuse_idle(options, ("shuffle",), "one group holds all features in any order")
    if options.views == 2:
        refuse_idle(options, ("reduce",), "of two views one is the positive")


def check_width(options: WhitenedCSEOptions, width: int, name: str) -> None:
    """Raises StsbenchError, one line, where the groups do not divide the backbone's vectors. width: of these; name: its."""
    if options.split == "none":
        return
    if width % options.groups:
        raise StsbenchError(
            f"options.groups {options.groups} does not divide the {width} features of {name}: set it to a divisor of {width}"
        )
    if options.groups == width:
        refuse_idle(options, ("shuffle",), f"{width} groups of one feature are the same in any order")
