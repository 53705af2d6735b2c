"""The section on the protocols' agreement: the same rows by STS, by trained heads, by retrieval."""

from __future__ import annotations

from collections.abc import Sequence

from stsbench.leaderboard.page.markdown_text import pipes, plain_markdown
from stsbench.leaderboard.ranks.agreement import agreement, place
from stsbench.leaderboard.ranks.board import Tab

ROWS = 40  # the table stays readable with any number of rows


def agreement_section(tabs: Sequence[Tab]) -> list[str]:
    """Scores and places under every protocol, and Kendall's tau of each two; nothing where too little is measured."""
    agreed = agreement(tabs)
    if agreed is None:
        return []
    titles = [f"{plain_markdown(tab.group)}: {plain_markdown(tab.lead)}, {plain_markdown(tab.title)}" for tab in agreed.tabs]
    order = sorted(agreed.names, key=lambda id: -agreed.scores[0][id])
    scores = [["", *titles]]
    for id in order[:ROWS]:
        columns = zip(agreed.tabs, agreed.scores, strict=True)
        cells = [f"{its[id]:.{tab.digits}f} ({place(its, id, tab.digits)})" for tab, its in columns]
        scores.append([plain_markdown(agreed.names[id]), *cells])
    taus = [["", *titles]]
    for title, line in zip(titles, agreed.tau, strict=True):
        taus.append([title, *("" if tau is None else f"{tau:.2f}" for tau in line)])
    n = len(order)
    which = f"the first {ROWS} of the {n} rows" if n > ROWS else f"the {n} rows"
    return [
        "## Agreement of the protocols",
        "Another protocol is another question: STS compares vectors as they are, the others train a head on them or look "
        f"for neighbours. Below are {which} that have all of them, by each protocol's first score, with their places among "
        "these rows in brackets.",
        pipes(scores, 1),
        "Kendall's tau-b of every two orders. Places are by score alone, and few rows give a rough tau.",
        pipes(taus, 1),
    ]
