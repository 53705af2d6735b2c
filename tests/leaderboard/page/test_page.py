"""The page in a real browser, in journeys: rows found and sorted, filters kept in the address, two rows compared, a hostile
entry, a phone and a screen reader."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from board_example import HOSTILE, QUOTES
from site_pages import (  # noqa: F401  fixtures
    ODD,
    SMALL,
    accessible,
    browser,
    by_script,
    column,
    comes_to,
    css,
    first_view,
    fragment,
    ranking,
    requests,
    said,
    urls,
    visit,
)

from stsbench.leaderboard.page.tables import comparable
from stsbench.leaderboard.ranks.board import Row

TAB, FEW = ODD.tabs[0], SMALL.tabs[0]
WIDTH = "return document.documentElement.scrollWidth"
ENTER, ESCAPE, RIGHT = "\ue007", "\ue00c", "\ue014"  # of WebDriver


def names(rows: tuple[Row, ...], rule: Callable[[Row], bool] = lambda row: True) -> list[str]:
    return [row.method for row in rows if rule(row)]


def press_radio(browser: Any, name: str, value: str) -> None:
    by_script(css(browser, f"[name={name}][value='{value}']")[0])


def unfold(browser: Any) -> None:
    browser.execute_script("for (const fold of document.querySelectorAll('.answer .more, .filter-box')) fold.open = true")


def test_a_reader_finds_and_sorts_rows(visit: Callable[..., Any], browser: Any) -> None:
    visit("", which="small")
    best, lead = FEW.measured[0], FEW.measured[0].cells["Avg"]
    first = f"{best.method}: Avg {lead.value:.2f} ({lead.low:.2f}–{lead.high:.2f}), the best of 12."
    comes_to(lambda: first in said(browser, ".panels"), True)
    # Each kind of supervision has its first; a tab loads its own rows alone.
    requests(browser)
    visit(TAB.id)
    loaded = {url.rpartition("/")[2] for url in requests(browser)}
    assert loaded == {"index.html", "board.js", "board.css", "index.js", f"{TAB.id}.js"}
    unfold(browser)
    text, kinds = said(browser, ".answer"), comparable(TAB)
    for rows in kinds.values():
        lead = rows[0].cells["Avg"]
        assert f"{lead.value:.2f} (95 % interval {lead.low:.2f}–{lead.high:.2f})" in text and rows[0].method in text
    assert ranking(browser) == first_view(TAB) and len(css(browser, ".lines.measured")) == len(kinds) > 1
    # All that was measured is a click away, which the browser's own button takes back; published rows are never ranked.
    press_radio(browser, "switch-rows", "all")
    comes_to(lambda: ranking(browser), names(TAB.measured))
    assert fragment(browser) == f"{TAB.id}?rows=all"
    assert ranking(browser, "published") == names(TAB.published)[:5] and "Rank" not in said(browser, ".lines.published")
    assert "1–2" in said(browser, ".lines.measured li:first-child .between")
    browser.back()
    comes_to(lambda: ranking(browser), first_view(TAB))
    # The scores, sorted both ways; then where lower is better and numbers are negative.
    visit(f"{TAB.id}?view=scores")
    comes_to(lambda: column(browser, "method"), names(TAB.measured))
    cells = [row.cells["STS12"].value for row in TAB.measured]
    head = css(browser, ".grid-box.measured .tabulator-col[tabulator-field='STS12'] .heading")[0]
    for order in ("desc", "asc"):  # numbers begin with the best
        by_script(head)
        expected = sorted(range(len(cells)), key=cells.__getitem__, reverse=order == "desc")
        comes_to(lambda expected=expected: column(browser, "method"),  # type: ignore[misc]
                 [TAB.measured[i].method for i in expected])
        assert "sort=STS12" in fragment(browser) and f"order={order}" in fragment(browser)
    visit("geometry-stsb?view=scores")
    rows = next(tab for tab in ODD.tabs if tab.id == "geometry-stsb").measured
    by_script(css(browser, "[tabulator-field=uniformity] .heading")[0])
    values = sorted(row.cells["uniformity"].value for row in rows)
    comes_to(lambda: column(browser, "uniformity"), [f"{value:.3f}".replace("-", "−") for value in values])


def test_filters_are_kept_in_the_address(visit: Callable[..., Any], browser: Any) -> None:
    visit(f"{TAB.id}?rows=all")

    def shows(rule: Callable[[Row], bool]) -> None:
        comes_to(lambda: ranking(browser), names(TAB.measured, rule))

    unfold(browser)
    clear, search = css(browser, "#filters [type=reset]")[0], css(browser, "#filters [type=search]")[0]
    search.send_keys("EXAMPLE roberta")
    shows(lambda row: "example" in row.method and "RoBERTa" in row.backbone)
    printed = len(names(TAB.published, lambda row: "RoBERTa" in row.backbone))  # their ids hold the other word
    assert said(browser, "#filters output") == f"{len(ranking(browser))} of 12 measured, {printed} of 50 published"
    clear.click()
    css(browser, "#filters .flags summary")[0].click()
    css(browser, "#filters [value='nli']")[0].click()
    shows(lambda row: "nli" not in row.flags)
    css(browser, "#filters [name=backbone] option[value='BERT-base']")[0].click()
    shows(lambda row: row.backbone == "BERT-base" and "nli" not in row.flags)
    # A choice holds from tab to tab and from view to view, and is in the link.
    press_radio(browser, "switch-aggregation", "mean")
    other = names(ODD.tabs[1].measured, lambda row: row.backbone == "BERT-base" and "nli" not in row.flags)
    comes_to(lambda: ranking(browser), other)
    assert fragment(browser) == f"{ODD.tabs[1].id}?rows=all&backbone=BERT-base&hide=nli"
    css(browser, "#tab-view-scores")[0].click()
    css(browser, "#filters .columns summary")[0].click()
    css(browser, "#filters [name=columns][value=STS13]")[0].click()
    comes_to(lambda: len(css(browser, ".grid-box.measured [tabulator-field=STS13]")), 0)
    visit(fragment(browser))
    comes_to(lambda: len(css(browser, ".grid-box.measured [tabulator-field=STS12]")) > 0, True)
    assert not css(browser, "[tabulator-field=STS13]") and set(column(browser, "backbone")) <= {"BERT-base"}
    visit("no-such-tab%E0%A4%A?view=nothing&open=nobody")  # a wrong link says so, and opens the first screen
    assert said(browser, "#panel .banner").startswith("This link names a table that is not on this board: no-such-tab")
    assert css(browser, ".choose table") and not css(browser, "dialog[open]")


def test_two_rows_are_compared(visit: Callable[..., Any], browser: Any) -> None:
    # A row opens by the keyboard to its provenance, and gives the focus back.
    visit(f"{TAB.id}?rows=all")
    row, button = TAB.measured[0], css(browser, ".lines.measured .open")[0]
    button.send_keys(ENTER)
    comes_to(lambda: "Provenance: " in said(browser, "#drawer"), True)
    assert f"open={row.id}" in fragment(browser)
    css(browser, "#drawer details:last-of-type summary")[-1].click()
    text, entry = said(browser, "#drawer"), ODD.entries[row.entry]
    words = [f"Provenance: {entry.name}", "numpy 2.4.6", "stsbench eval --model", "Parts of the tasks",
             *(f"{cell.low:.2f}–{cell.high:.2f}" for cell in row.cells.values())]
    assert [word for word in words if word not in text] == []
    browser.switch_to.active_element.send_keys(ESCAPE)
    comes_to(lambda: (css(browser, "dialog[open]"), "open=" in fragment(browser)), ([], False))
    assert browser.switch_to.active_element == button
    # The tests of pairs are loaded when two are compared, and not before.
    visit(f"{FEW.id}?rows=all", which="small")
    requests(browser)
    unfold(browser)
    css(browser, ".answer .open")[0].click()
    one, other = FEW.measured[:2]
    comes_to(lambda: css(browser, "#drawer .verdict[aria-busy]"), [])
    assert [url.rpartition("/")[2] for url in requests(browser)] == [f"{FEW.id}.0.js"]
    text = said(browser, "#drawer")
    gap = f"{one.cells['Avg'].value - other.cells['Avg'].value:.2f}"
    assert f"{one.method} is ahead of {other.method} by {gap} in Avg. significant 95 % interval" in text
    assert "The two differ significantly, at 5 % over all 66 pairs of rows of this table at once." in text
    for task, cell in one.cells.items():
        gap = f"{round(cell.value, 4) - round(other.cells[task].value, 4):+.2f}".replace("-", "−")
        assert f"{cell.value:.2f}" in text and gap in text
    below = next(row for row in FEW.measured if row.rank.position > 3
                 and row.rank.first <= FEW.measured[row.rank.position - 2].rank.last)
    above = FEW.measured[below.rank.position - 2]
    for place, row in (("first", above), ("last", below)):
        css(browser, f"#drawer .picker label:{place}-of-type option[value='{row.id}']")[0].click()
    comes_to(lambda: f"compare={above.id}&compare={below.id}" in fragment(browser), True)
    half = FEW.pairs.halves[above.rank.position - 1, below.rank.position - 1]
    alone = above.cells["Avg"].value - below.cells["Avg"].value > half
    comes_to(lambda: said(browser, "#drawer .verdict .sure"), "significant alone" if alone else "not significant")
    css(browser, f"#drawer .picker label:last-of-type option[value='{FEW.published[0].id}']")[0].click()
    comes_to(lambda: said(browser, "#drawer .verdict").startswith("Not tested: nothing was observed"), True)


def test_a_hostile_entry_stays_text(visit: Callable[..., Any], browser: Any) -> None:
    visit(f"{TAB.id}?view=scores")
    comes_to(lambda: {HOSTILE, QUOTES} <= set(column(browser, "method")) & set(column(browser, "method", "published")), True)
    hostile = next(row for row in TAB.measured if row.entry == "entry-02")
    visit(f"{TAB.id}?open={hostile.id}")
    comes_to(lambda: HOSTILE in said(browser, "#drawer .behind"), True)
    # And the page's policy stops what would get through.
    stopped = browser.execute_script("""
        const image = new Image(); image.src = 'http://127.0.0.1:9/x.png'; document.body.append(image);
        const style = document.createElement('style'); style.textContent = 'body { display: none }';
        document.head.append(style);
        const stopped = [];
        try { document.body.innerHTML = '<b>x</b>'; } catch (error) { stopped.push(error.name); }
        try { document.createElement('script').src = 'tabs/x.js'; } catch (error) { stopped.push(error.name); }
        return stopped""")
    assert stopped == ["TypeError", "TypeError"] and css(browser, "h1")[0].is_displayed()
    messages = " ".join(entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE")
    assert "img-src" in messages and "style-src" in messages


def test_a_phone_never_scrolls_sideways_and_a_screen_reader_is_told_names(visit: Callable[..., Any], browser: Any) -> None:
    visit(TAB.id, width=390)
    for tab in {tab.group: tab for tab in reversed(ODD.tabs)}.values():
        for shown in ("ranking", "scores"):
            browser.execute_script("location.hash = arguments[0]", f"{tab.id}?view={shown}")
            comes_to(lambda tab=tab: tab.title in said(browser, "h2"), True)  # type: ignore[misc]
            assert browser.execute_script(WIDTH) <= 390, (tab.id, shown)
    row, other = TAB.measured[:2]
    visit(f"{TAB.id}?compare={row.id}&compare={other.id}", width=390)
    assert browser.execute_script("return document.querySelector('#drawer').getBoundingClientRect().right") <= 390
    # Everything to act on has a name; tabs are walked by arrows.
    roles = {"button", "link", "tab", "checkbox", "combobox", "searchbox", "textbox", "DisclosureTriangle", "option",
             "radio", "region", "tablist", "tabpanel", "table", "columnheader", "rowheader", "dialog", "list"}
    met = set()
    for at in (f"{TAB.id}?view=scores", f"{TAB.id}?open={row.id}"):
        visit(at)
        unfold(browser)
        nodes = accessible(browser)
        assert browser.execute_script(WIDTH) <= 1280
        bare = [role for role, text, more in nodes if not text.strip() and (role in roles or more.get("focusable"))]
        assert set(bare) <= {"RootWebArea", "generic", "none"}, at
        met |= {role for role, _, _ in nodes}
    assert {"tab", "tablist", "tabpanel", "combobox", "searchbox", "radio", "columnheader", "dialog"} <= met
    visit(TAB.id)
    browser.execute_script("document.querySelector('#tab-group-sts').focus()")
    browser.switch_to.active_element.send_keys(RIGHT)
    active = browser.switch_to.active_element
    assert (active.get_attribute("id"), active.get_attribute("aria-selected")) == ("tab-group-transfer", "true")
