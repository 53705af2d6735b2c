"""Which widths WhitenedCSE divides into its groups."""

from __future__ import annotations

from stsbench.errors import StsbenchError

from .options import WhitenedCSEOptions


def check_width(options: WhitenedCSEOptions, width: int, name: str) -> None:
    """Raise StsbenchError, one line, where the groups do not divide the backbone's vectors. width: of these; name: its."""
    if options.split == "none":
        return
    if width % options.groups:
        raise StsbenchError(
            f"options.groups {options.groups} does not divide the {width} features of {name}: set it to a divisor of {width}"
        )
    if options.groups == width and not options.shuffle:
        raise StsbenchError(
            f"options.shuffle false has no effect: {width} groups of one feature are the same in any order; leave it at true"
        )
