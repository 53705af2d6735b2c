"""The ranking read by tiers, in a real browser."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from site_pages import (  # noqa: F401  fixtures
    ODD,
    SMALL,
    browser,
    by_script,
    comes_to,
    css,
    first_view,
    fragment,
    ranking,
    said,
    urls,
    visit,
)

from stsbench.leaderboard.page.tables import comparable
from stsbench.leaderboard.ranks.board import Tab


def headings(browser: Any) -> list[str]:
    script = "return [...document.querySelectorAll('.kind:not([hidden])')].map(each => each.firstChild.textContent)"
    return list(browser.execute_script(script))


def by_tier(tab: Tab, rows: set[str]) -> tuple[list[str], list[str]]:
    """The headings and the names that a ranking of these rows' ids has, by tiers; unranked rows last."""
    tiers = sorted({row.rank.tier for row in tab.measured if row.rank and row.rank.tier})
    groups = [(f"Tier {tier}", [row for row in tab.measured if row.rank and row.rank.tier == tier]) for tier in tiers]
    groups.append(("Not ranked", [row for row in tab.measured if not row.rank]))
    heads, names = [], []
    for title, members in groups:
        shown = [row for row in members if row.id in rows]
        names += [row.method for row in shown]
        if shown or (title.startswith("Tier") and not names):
            heads.append(f"{title} ({len(shown)}{f' of {len(members)}' if len(shown) < len(members) else ''})")
    return heads, names


@pytest.mark.parametrize("which", ["odd", "small"])
def test_the_switch_groups_rows_by_tiers_and_back(visit: Callable[..., Any], which: str) -> None:
    browser, tab = visit(which=which), {"odd": ODD, "small": SMALL}[which].tabs[0]
    fair = {row.id for rows in comparable(tab).values() for row in rows}
    heads, names = by_tier(tab, fair)
    by_script(css(browser, "[name=switch-by][value=tiers]")[0])
    comes_to(lambda: ranking(browser), names)
    assert headings(browser) == heads and fragment(browser) == f"{tab.id}?by=tiers"
    assert "whatever is in a later tier is worse" in said(browser, ".answer")
    by_script(css(browser, "[name=switch-rows][value=all]")[0])
    heads, names = by_tier(tab, {row.id for row in tab.measured})
    comes_to(lambda: ranking(browser), names)
    assert headings(browser) == heads
    best = next(row for row in tab.measured if row.rank)
    assert best.method in said(browser, ".kind:not([hidden]) small")
    browser.back()
    browser.back()
    comes_to(lambda: ranking(browser), first_view(tab))
    assert "later tier" not in said(browser, ".answer")


def test_a_link_to_tiers_opens_them_and_a_table_without_has_no_switch(visit: Callable[..., Any]) -> None:
    browser = visit(f"{ODD.tabs[0].id}?by=tiers&rows=all")
    assert headings(browser)[0].startswith("Tier 1 (")
    for shown in ("scores", "size"):
        browser.execute_script("location.hash = arguments[0]", f"{ODD.tabs[0].id}?by=tiers&view={shown}")
        comes_to(lambda: css(browser, "[data-key=by]")[0].is_displayed(), False)
    bare = next(tab for tab in ODD.tabs if tab.measured and not any(row.rank and row.rank.tier for row in tab.measured))
    browser.execute_script("location.hash = arguments[0]", f"{bare.id}?by=tiers")
    comes_to(lambda: bare.title in said(browser, "h2"), True)
    comes_to(lambda: css(browser, "[data-key=by]")[0].is_displayed(), False)


def test_filters_name_the_tiers_above_those_shown(visit: Callable[..., Any]) -> None:
    tab = SMALL.tabs[0]
    last = tab.measured[-1]
    assert last.rank is not None and last.rank.tier is not None and last.rank.tier > 1
    browser = visit(f"{tab.id}?by=tiers&rows=all&q={last.method.replace(' ', '+')}", which="small")
    comes_to(lambda: last.method in ranking(browser), True)
    heads, _ = by_tier(tab, {row.id for row in tab.measured if last.method in row.method})
    assert headings(browser) == heads and heads[0].startswith("Tier 1 (0 of ")
    assert "not shown" in said(browser, ".kind:not([hidden]) small")


def test_tiers_fit_a_phone_and_turn_by_keyboard(visit: Callable[..., Any]) -> None:
    for at in ("by=tiers", "by=tiers&rows=all"):
        browser = visit(f"{ODD.tabs[0].id}?{at}", width=390)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= 390
    chosen = css(browser, "[name=switch-by]:checked")[0]
    chosen.send_keys("\ue012")  # the arrow to the left
    comes_to(lambda: fragment(browser), f"{ODD.tabs[0].id}?rows=all")
    assert browser.execute_script("return document.activeElement.name") == "switch-by"


def test_a_row_says_what_it_ranks(visit: Callable[..., Any]) -> None:
    tab = SMALL.tabs[0]
    for seeds, words in ((1, "this encoder, of one seed"), (3, "this method, over 3 seeds")):
        row = next(row for row in tab.measured if row.seeds == seeds)
        browser = visit(f"{tab.id}?open={row.id}", which="small")
        assert words in said(browser, "#drawer .details")
        assert row.rank is not None and f"tier {row.rank.tier} of " in said(browser, "#drawer .details")
