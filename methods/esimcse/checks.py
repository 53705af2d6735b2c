"""Which of ESimCSE's options and data go together."""

from __future__ import annotations

from stsbench.errors import StsbenchError

from .options import ESimCSEOptions


def check_head(options: ESimCSEOptions, pooler: str) -> None:
    """Raises StsbenchError for an MLP head on another vector than the first token's."""
    if options.head != "none" and pooler != "cls":
        raise StsbenchError(f"options.head {options.head} stands on the pooler cls, not on {pooler}: set options.head none")
