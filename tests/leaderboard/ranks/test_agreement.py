"""The protocols' agreement: tau against a count of pairs, which rows and tabs take part, the section's words."""

from dataclasses import replace
from itertools import combinations

import pytest

from stsbench.leaderboard.page.findings import agreement_section
from stsbench.leaderboard.ranks.board import Cell, Row, Tab
from stsbench.leaderboard.ranks.sensitivity import agreement

# Invented: five rows under three protocols, with one tie under the last.
STS = {"a": 78.0, "b": 75.5, "c": 70.2, "d": 66.6, "e": 60.1}
TRANSFER = {"a": 80.0, "b": 83.5, "c": 79.1, "d": 84.2, "e": 82.0}
RETRIEVAL = {"a": 81.4, "b": 81.4, "c": 79.9, "d": 80.9, "e": 76.6}


def tab(group, scores, **other):
    cells = {name: {"Avg": Cell(score)} for name, score in scores.items()}
    rows = [Row(f"id-{name}", "measured", f"method {name}", "MiniLM", "sup", its) for name, its in cells.items()]
    values = {
        "id": group, "group": group, "title": "Title", "about": "Invented.", "metric": "m", "aggregation": None,
        "columns": ("Avg",), "lead": "Avg", "digits": 2, "lower_is_better": False, "measured": tuple(rows), "published": (),
        **other,
    }
    return Tab(**values)


def three():
    return [tab("retrieval", RETRIEVAL), tab("sts", STS), tab("transfer", TRANSFER)]


def naive_tau_b(one, other):
    """(concordant - discordant) / sqrt(pairs not tied in one x pairs not tied in the other)."""
    pairs = [(one[a] - one[b], other[a] - other[b]) for a, b in combinations(one, 2)]
    signs = sum((x * y > 0) - (x * y < 0) for x, y in pairs)
    return signs / (sum(x != 0 for x, _ in pairs) * sum(y != 0 for _, y in pairs)) ** 0.5


def test_tau_is_that_of_counted_pairs():
    agreed = agreement(three())
    assert [each.group for each in agreed.tabs] == ["sts", "transfer", "retrieval"]  # whatever the board's order
    values = STS, TRANSFER, RETRIEVAL
    expected = [[naive_tau_b(one, other) for other in values] for one in values]
    assert [list(line) for line in agreed.tau] == [pytest.approx(line, abs=1e-6) for line in expected]


def test_rows_take_part_that_have_every_protocol_and_may_be_ranked():
    tabs = three()
    fewer = tab("transfer", {name: score for name, score in TRANSFER.items() if name != "c"})
    chosen = tuple(replace(row, best_of=10) if row.id == "id-e" else row for row in tabs[1].measured)
    agreed = agreement([tabs[0], replace(tabs[1], measured=chosen), fewer])
    assert set(agreed.names) == {"id-a", "id-b", "id-d"}


@pytest.mark.parametrize("change", [{"sample": True}, {"known": False}, {"lower_is_better": True}, {"measured": ()}])
def test_a_protocol_s_first_usable_tab_is_taken(change):
    unlike = replace(tab("sts", dict(zip(STS, reversed(STS.values()), strict=True)), title="Other"), **change)
    assert agreement([unlike, *three()]) == agreement(three())


@pytest.mark.parametrize("tabs", [[], three()[:1], [tab(group, {"a": 1.0, "b": 2.0}) for group in ("sts", "transfer")]])
def test_too_little_says_nothing(tabs):
    assert agreement(tabs) is None and agreement_section(tabs) == []


def test_one_score_for_all_has_no_tau():
    agreed = agreement([tab("sts", STS), tab("retrieval", dict.fromkeys(STS, 50.0))])
    assert agreed.tau[0] == (1.0, None)
    assert "| retrieval: Avg, Title |  |  |" in agreement_section(agreed.tabs)[-1]
