"""Which of RankCSE's options go together: whatever would have no effect is refused."""

from __future__ import annotations

from stsbench.errors import StsbenchError
from stsbench.training.api.ranking_options import check_ranking

from .options import RankCSEOptions


def check_options(options: RankCSEOptions) -> None:
    """Raises StsbenchError, one line, for an option without an effect."""
    check_ranking(options, "options")


def check_head(options: RankCSEOptions, pooler: str) -> None:
    """Raises StsbenchError for an MLP head on another vector than the first token's."""
    if options.head != "none" and pooler != "cls":
        raise StsbenchError(f"options.head {options.head} stands on the pooler cls, not on {pooler}: set options.head none")
