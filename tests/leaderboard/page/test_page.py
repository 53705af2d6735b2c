"""The page in a real browser: its first screen, and four journeys: who is first, all scores, a row and its neighbours,
unusual conditions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from board_example import HOSTILE, QUOTES
from site_pages import (  # noqa: F401  fixtures
    ODD,
    SMALL,
    TEXTS,
    accessible,
    browser,
    by_script,
    clean,
    column,
    comes_to,
    css,
    first_view,
    fragment,
    go,
    ranking,
    ready,
    requests,
    said,
    urls,
    visit,
    write_site,
)
from synthetic_board import synthetic

from stsbench.leaderboard.page.tables import comparable
from stsbench.leaderboard.ranks.board import Board, Row, Tab
from stsbench.leaderboard.records.paths import BUNDLE
from stsbench.leaderboard.server import Server

TAB = ODD.tabs[0]
AXE = BUNDLE.parent / "node_modules" / "axe-core" / "axe.min.js"
SNAPSHOT = Path(__file__).with_name("first_screen.txt")
WIDTH = "return document.documentElement.scrollWidth"
GROUND = "return getComputedStyle(document.body).backgroundColor"
ENTER, ESCAPE, LEFT, RIGHT, HOME, END = "\ue007", "\ue00c", "\ue012", "\ue014", "\ue011", "\ue010"  # of WebDriver


def names(rows: tuple[Row, ...], rule: Callable[[Row], bool] = lambda row: True) -> list[str]:
    return [row.method for row in rows if rule(row)]


def press_radio(browser: Any, name: str, value: str) -> None:
    by_script(css(browser, f"[name={name}][value='{value}']")[0])


def unfold(browser: Any) -> None:
    browser.execute_script("for (const fold of document.querySelectorAll('.answer .more, .filter-box')) fold.open = true")


def headings(browser: Any) -> list[str]:
    script = "return [...document.querySelectorAll('.kind:not([hidden])')].map(each => each.firstChild.textContent)"
    return list(browser.execute_script(script))


def by_tier(tab: Tab, rows: set[str]) -> tuple[list[str], list[str]]:
    """The headings and the names that a ranking of these rows' ids has, by tiers; unranked rows last."""
    tiers = sorted({row.rank.tier for row in tab.measured if row.rank and row.rank.tier})
    groups = [(f"Tier {tier}", [row for row in tab.measured if row.rank and row.rank.tier == tier]) for tier in tiers]
    groups.append(("Not ranked", [row for row in tab.measured if not row.rank]))
    heads, methods = [], []
    for title, members in groups:
        shown = [row for row in members if row.id in rows]
        methods += [row.method for row in shown]
        if shown or (title.startswith("Tier") and not methods):
            heads.append(f"{title} ({len(shown)}{f' of {len(members)}' if len(shown) < len(members) else ''})")
    return heads, methods


def test_a_reader_finds_who_is_first(visit: Callable[..., Any], browser: Any) -> None:
    visit(TAB.id)
    assert browser.title.startswith("stsbench") and fragment(browser) == TAB.id
    loaded = {url.rpartition("/")[2] for url in requests(browser)}
    assert loaded == {"index.html", "board.js", "board.css", "index.js", f"{TAB.id}.js"}
    unfold(browser)
    text, kinds = said(browser, ".answer"), comparable(TAB)
    most = max(kinds.values(), key=len)
    assert f" the {len(most)} rows trained " in text and "object" not in text
    for rows in kinds.values():  # each kind of supervision has its first
        lead = rows[0].cells["Avg"]
        assert f"{lead.value:.2f} (95 % interval {lead.low:.2f}–{lead.high:.2f})" in text and rows[0].method in text
    assert ranking(browser) == first_view(TAB) and len(css(browser, ".lines.measured")) == len(kinds) > 1
    # All that was measured is a click away; a row of STS labels or test sentences has no clear lead.
    press_radio(browser, "switch-rows", "all")
    comes_to(lambda: ranking(browser), names(TAB.measured))
    ranked, text = [row for row in TAB.measured if row.rank], said(browser, ".answer")
    assert fragment(browser) == f"{TAB.id}?rows=all"
    assert text.startswith(ranked[0].method) and f" the {len(ranked)} rows ranked here." in text
    assert ranked[0].method in first_view(TAB) or "clear lead" not in text
    assert ranking(browser, "published") == names(TAB.published)[:5] and "Rank" not in said(browser, ".lines.published")
    assert "Never ranked: papers give no digest" in said(browser, ".ranking .apart")
    assert "1–2" in said(browser, ".lines.measured li:first-child .between")
    # A bar's ends are the interval, on one scale with every other bar.
    bars = browser.execute_script("""return [...document.querySelectorAll('.lines.measured .bar')].map(bar => {
        const {left, right} = bar.getBoundingClientRect(); return [left, right]; })""")
    cells = [row.cells["Avg"] for row in TAB.measured]
    slope = (bars[0][1] - bars[-1][0]) / (cells[0].high - cells[-1].low)
    for bar, cell in zip(bars, cells, strict=True):
        assert bar == pytest.approx([bars[-1][0] + slope * (end - cells[-1].low) for end in (cell.low, cell.high)], abs=1)
    # A switch reorders the rows, and is undone by the browser's own button.
    visit(SMALL.tabs[0].id, which="small")
    press_radio(browser, "switch-metric", "pearson")
    comes_to(lambda: ranking(browser), first_view(SMALL.tabs[3]))
    press_radio(browser, "switch-aggregation", "mean")
    comes_to(lambda: ranking(browser), first_view(SMALL.tabs[4]))
    assert fragment(browser) == SMALL.tabs[4].id
    browser.back()
    comes_to(lambda: ranking(browser), first_view(SMALL.tabs[3]))
    visit(TEXTS.tabs[0].id, which="texts")
    assert said(browser, "[data-key=form]") == "Text SentEval’s raw"
    press_radio(browser, "switch-form", "raw text")
    press_radio(browser, "switch-aggregation", "mean")  # the text stays as it was chosen
    shown = next(tab for tab in TEXTS.tabs if tab.id == "sts-spearman-mean-raw-text")
    comes_to(lambda: ranking(browser), first_view(shown))
    assert ranking(browser, "published") == []
    unfold(browser)
    css(browser, "#filters [type=search]")[0].send_keys("nobody")
    comes_to(lambda: said(browser, ".ranking .none"), "No row passes the filters.")
    # By tiers: each with its rows, and filters say how many of a tier are not shown.
    visit(TAB.id)
    comparables = {row.id for rows in kinds.values() for row in rows}
    for switch, value, shown in (("by", "tiers", comparables), ("rows", "all", {row.id for row in TAB.measured})):
        press_radio(browser, f"switch-{switch}", value)
        heads, methods = by_tier(TAB, shown)
        comes_to(lambda methods=methods: ranking(browser), methods)  # type: ignore[misc]
        assert headings(browser) == heads
    unfold(browser)
    assert "whatever is in a later tier is worse" in said(browser, ".answer")
    assert ranked[0].method in said(browser, ".kind:not([hidden]) small")
    browser.back()
    browser.back()
    comes_to(lambda: ranking(browser), first_view(TAB))
    last = SMALL.tabs[0].measured[-1]
    visit(f"{SMALL.tabs[0].id}?by=tiers&rows=all&q={last.method.replace(' ', '+')}", which="small")
    comes_to(lambda: last.method in ranking(browser), True)
    assert headings(browser)[0].startswith("Tier 1 (0 of ") and "not shown" in said(browser, ".kind:not([hidden]) small")
    bare = next(tab for tab in ODD.tabs if tab.measured and not any(row.rank and row.rank.tier for row in tab.measured))
    for where in (f"{TAB.id}?by=tiers&view=scores", f"{bare.id}?by=tiers"):
        assert not css(visit(where), "[data-key=by]")[0].is_displayed()


def test_the_first_screen_says_what_it_said(visit: Callable[..., Any], browser: Any) -> None:
    """Line by line, with the kind of element that holds it; a change that is meant is written by deleting the file."""
    visit("", which="small")
    told = browser.execute_script("""
        const all = [...document.querySelectorAll('h1, h2, a, button, label, summary, main p, main th, main td')];
        return all.filter((each) => each.checkVisibility()).map((each) =>
            `${each.localName} ${each.innerText.split(/\\s+/).join(' ')}`.trim())""")
    if not SNAPSHOT.is_file():
        SNAPSHOT.write_text("\n".join(told) + "\n", "utf-8")
        pytest.fail(f"{SNAPSHOT.name} was written: look at it, and run the test again")
    assert told == SNAPSHOT.read_text("utf-8").splitlines()


def test_a_reader_sorts_and_filters_the_scores(
    visit: Callable[..., Any], browser: Any, urls: dict[str, str], tmp_path: Path
) -> None:
    visit(f"{TAB.id}?view=scores")
    comes_to(lambda: column(browser, "method"), names(TAB.measured))
    assert {HOSTILE, QUOTES} <= set(column(browser, "method")) & set(column(browser, "method", "published"))
    for name in ("STS12", "Avg"):
        cells = [row.cells.get(name) for row in TAB.measured]
        head = css(browser, f".grid-box.measured .tabulator-col[tabulator-field='{name}'] .heading")[0]
        for order, sign in (("desc", "descending"), ("asc", "ascending")):  # numbers begin with the best
            by_script(head)
            expected = sorted((i for i, cell in enumerate(cells) if cell), key=lambda i: cells[i].value,
                              reverse=order == "desc")
            comes_to(lambda expected=expected: column(browser, "method"), [TAB.measured[i].method for i in expected])
            assert css(browser, f".grid-box.measured [tabulator-field='{name}'][aria-sort={sign}]")
            assert f"sort={name}" in fragment(browser) and f"order={order}" in fragment(browser)
        by_script(head)
        comes_to(lambda: column(browser, "method"), names(TAB.measured))
    by_script(css(browser, ".grid-box.published .tabulator-col[tabulator-field='STS13'] .heading")[0])
    shown = [float(value) for value in column(browser, "STS13", "published") if value != "–"]
    assert shown == sorted(shown, reverse=True)
    assert shown[0] == round(max(row.cells["STS13"].value for row in TAB.published if "STS13" in row.cells), 2)
    visit("geometry-stsb?view=scores")  # where lower is better, and numbers are negative
    rows = next(tab for tab in ODD.tabs if tab.id == "geometry-stsb").measured
    by_script(css(browser, "[tabulator-field=uniformity] .heading")[0])
    values = sorted(row.cells["uniformity"].value for row in rows)
    comes_to(lambda: column(browser, "uniformity"), [f"{value:.3f}".replace("-", "−") for value in values])
    # Filters one by one and together.
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
    for option in ("semi", "-"):
        css(browser, f"#filters [name=setting] option[value='{option}']")[0].click()
        shows(lambda row, option=option: (row.setting or "-") == option)  # type: ignore[misc]
    clear.click()
    css(browser, "#filters [name=kind] option[value=published]")[0].click()
    shows(lambda row: False)
    assert ranking(browser, "published") == names(TAB.published)[:20]
    clear.click()
    css(browser, "#filters .flags summary")[0].click()
    for flag in ("dev-selected", "nli"):
        box = css(browser, f"#filters [value='{flag}']")[0]
        box.click()
        shows(lambda row, flag=flag: flag not in row.flags)  # type: ignore[misc]
        if flag != "nli":
            box.click()
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
    # Imported rows are not called published; a name of two lines and its source fit into their row.
    plain, long = synthetic(3, 2), "somebody/an-encoder-with-a-rather-long-name"
    imported = tuple(dataclasses.replace(row, method=f"{long}-{i}", backbone="", marks=("odd",), flags=("imported",),
                                         source="results of mteb 2.26.24, revision 0123456789ab")
                     for i, row in enumerate(plain.tabs[0].published))
    measured = tuple(dataclasses.replace(row, method=f"{row.method}: {long}", marks=("odd",))
                     for row in plain.tabs[0].measured)
    tab = dataclasses.replace(plain.tabs[0], measured=measured, published=imported)
    url = write_site(Board((tab,), plain.entries, None), tmp_path)
    go(browser, url, tab.id)
    assert said(browser, ".ranking .apart").startswith("Imported from another tool’s result files (2). Never ranked")
    assert "imported, not checked" in said(browser, ".lines.published li")
    go(browser, url, f"{tab.id}?view=scores")
    comes_to(lambda: len(column(browser, "method", "published")), 2)
    assert "undefined" not in said(browser, ".scores")  # rows have no letters here, as on a tab of more than 20
    assert browser.execute_script("""
        const cells = [...document.querySelectorAll('.tabulator-cell')];
        return cells.filter(cell => cell.scrollHeight > cell.clientHeight + 1).map(cell => cell.innerText)""") == []
    clean(browser, url, *urls.values())


def test_a_reader_walks_by_keyboard_to_a_row_and_its_neighbours(visit: Callable[..., Any], browser: Any) -> None:
    visit(TAB.id)
    css(browser, "#tab-group-transfer")[0].click()
    comes_to(lambda: ranking(browser), first_view(next(tab for tab in ODD.tabs if tab.group == "transfer")))
    css(browser, "#tab-group-sts")[0].click()
    press_radio(browser, "switch-aggregation", "wmean")
    css(browser, "#tab-group-transfer")[0].click()
    css(browser, "#tab-group-sts")[0].click()
    assert fragment(browser) == "sts-spearman-wmean"  # a protocol remembers its tab
    browser.back()
    comes_to(lambda: fragment(browser), "transfer-sgd")

    def press(key: str) -> str:
        browser.switch_to.active_element.send_keys(key)
        active = browser.switch_to.active_element
        assert active.get_attribute("aria-selected") == "true" and active.get_attribute("tabindex") == "0"
        assert browser.execute_script("return getComputedStyle(document.activeElement).outlineStyle") == "solid"
        return str(active.get_attribute("id"))

    browser.execute_script("document.querySelector('#tab-group-sts').focus()")
    walked = [press(key) for key in (RIGHT, END, RIGHT, LEFT, HOME, RIGHT)]
    assert walked == [f"tab-group-{name}" for name in ("transfer", "cost", "which", "cost", "which", "sts")]
    assert len(css(browser, "[role=tablist]:first-child [role=tab][tabindex='0']")) == 2  # a protocol and a view
    browser.execute_script("document.querySelector('#tab-view-ranking').focus()")
    assert press(RIGHT) == "tab-view-scores" and fragment(browser).endswith("?view=scores")
    # A switch is a group of radio buttons: arrows turn it, and the focus stays in it.
    browser.execute_script("document.querySelector('[name=switch-metric]:checked').focus()")
    browser.switch_to.active_element.send_keys(RIGHT)
    comes_to(lambda: fragment(browser).split("?")[0], "sts-pearson-wmean")
    assert browser.switch_to.active_element.get_attribute("value") == "pearson"
    visit("no-such-tab%E0%A4%A?view=nothing&open=nobody")  # a wrong link says so, and opens the first screen
    assert said(browser, "#panel .banner").startswith("This link names a table that is not on this board: no-such-tab")
    assert css(browser, ".choose table") and not css(browser, "dialog[open]")
    visit(f"{TAB.id}?open=nobody")
    assert said(browser, "#panel .banner") == "This link names a row that is not in this table: nobody."
    assert ranking(browser) == first_view(TAB) and not css(browser, "dialog[open]")
    # A row opens to its provenance, and gives the focus back.
    visit(f"{TAB.id}?rows=all")
    row, button = TAB.measured[0], css(browser, ".lines.measured .open")[0]
    button.send_keys(ENTER)
    comes_to(lambda: "Provenance: " in said(browser, "#drawer"), True)
    assert f"open={row.id}" in fragment(browser)
    css(browser, "#drawer details:last-of-type summary")[-1].click()
    text, entry = said(browser, "#drawer"), ODD.entries[row.entry]
    words = [f"Provenance: {entry.name}", "numpy 2.4.6", "stsbench eval --model", "Repeat it", "Parts of the tasks", "750",
             str(entry.runs[0]["fingerprint"]), *(f"{cell.low:.2f}–{cell.high:.2f}" for cell in row.cells.values()),
             *(word for (_, part), cell in row.subsets.items() for word in (part, f"{cell.value:.2f}")), "50.00–60.50"]
    assert [word for word in words if word not in text] == []
    browser.switch_to.active_element.send_keys(ESCAPE)
    comes_to(lambda: (css(browser, "dialog[open]"), "open=" in fragment(browser)), ([], False))
    assert browser.switch_to.active_element == button
    odd = next(row for row in TAB.published if row.average_printed is not None)
    visit(f"{TAB.id}?open={odd.id}")
    text = said(browser, "#drawer")
    assert f"the paper prints {odd.average_printed:.2f}" in text and odd.marks[0] in text and odd.source in text
    assert "published rows are never ranked" in text
    hostile = next(row for row in TAB.measured if row.entry == "entry-02")
    visit(f"{TAB.id}?open={hostile.id}")
    comes_to(lambda: HOSTILE in said(browser, "#drawer .behind"), True)
    for seeds, words in ((1, "this encoder, of one seed"), (3, "this method, over 3 seeds")):
        row = next(row for row in SMALL.tabs[0].measured if row.seeds == seeds)
        visit(f"{SMALL.tabs[0].id}?open={row.id}", which="small")
        text = said(browser, "#drawer .details")
        assert words in text and f"tier {row.rank.tier} of " in text
    # Two rows side by side; the tests of pairs are loaded when two are compared, and not before.
    tab = SMALL.tabs[0]
    visit(f"{tab.id}?rows=all", which="small")
    requests(browser)
    unfold(browser)
    css(browser, ".answer .open")[0].click()
    one, other = tab.measured[:2]
    comes_to(lambda: css(browser, "#drawer .verdict[aria-busy]"), [])
    assert [url.rpartition("/")[2] for url in requests(browser)] == [f"{tab.id}.0.js"]
    text = said(browser, "#drawer")
    gap = f"{one.cells['Avg'].value - other.cells['Avg'].value:.2f}"
    assert f"{one.method} is ahead of {other.method} by {gap} in Avg. significant 95 % interval" in text
    assert "The two differ significantly, at 5 % over all 66 pairs of rows of this table at once." in text
    for task, cell in one.cells.items():
        gap = f"{round(cell.value, 4) - round(other.cells[task].value, 4):+.2f}".replace("-", "−")
        assert f"{cell.value:.2f}" in text and gap in text
    below = next(row for row in tab.measured if row.rank.position > 3
                 and row.rank.first <= tab.measured[row.rank.position - 2].rank.last)
    above = tab.measured[below.rank.position - 2]
    for place, row in (("first", above), ("last", below)):
        css(browser, f"#drawer .picker label:{place}-of-type option[value='{row.id}']")[0].click()
    comes_to(lambda: f"compare={above.id}&compare={below.id}" in fragment(browser), True)
    half = tab.pairs.halves[above.rank.position - 1, below.rank.position - 1]
    alone = above.cells["Avg"].value - below.cells["Avg"].value > half
    comes_to(lambda: said(browser, "#drawer .verdict .sure"), "significant alone" if alone else "not significant")
    css(browser, f"#drawer .picker label:last-of-type option[value='{tab.published[0].id}']")[0].click()
    comes_to(lambda: said(browser, "#drawer .verdict").startswith("Not tested: nothing was observed"), True)
    browser.back()
    browser.back()
    comes_to(lambda: other.method in said(browser, "#drawer h2"), True)
    css(browser, "#drawer .close")[0].click()
    comes_to(lambda: "compare" in fragment(browser), False)
    # The score against the encoder's size, and across settings.
    visit(f"{tab.id}?view=size", which="small")
    comes_to(lambda: len(css(browser, ".size svg")), 1)
    enabled = {option.get_attribute("value") for option in css(browser, ".size option") if option.is_enabled()}
    assert enabled == {"width", "year"}
    text, best = said(browser, ".size"), [item.text for item in css(browser, ".size .front li")]
    assert best[-1].startswith(f"{tab.measured[0].method}: Avg ") and "[object" not in text
    assert "60 of 72 rows are not drawn: their vector’s dimension is unknown" in text
    assert "Parameters (unknown: no record holds it)" in text
    css(browser, ".size option[value=year]")[0].click()
    comes_to(lambda: "x=year" in fragment(browser), True)
    css(browser, "#tab-view-settings")[0].click()
    comes_to(lambda: (len(css(browser, ".settings-view svg")), len(css(browser, ".settings-view tbody tr"))), (1, 6))


def test_the_page_bears_policies_themes_phones_screen_readers_and_broken_sites(
    visit: Callable[..., Any], browser: Any, urls: dict[str, str], tmp_path: Path
) -> None:
    visit(TAB.id)
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
    # Light and dark, with and without storage.
    light, dark = "rgb(252, 252, 250)", "rgb(20, 24, 29)"
    browser.execute_script("localStorage.clear()")
    assert visit(TAB.id, scheme="dark").execute_script(GROUND) == dark
    css(browser, "#theme")[0].click()
    assert browser.execute_script(GROUND) == light == visit(TAB.id, scheme="dark").execute_script(GROUND)  # remembered
    browser.execute_script("localStorage.clear()")
    source = "Object.defineProperty(window, 'localStorage', {get() { throw new DOMException('no', 'SecurityError'); }})"
    added = browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": source})
    visit(TAB.id)
    css(browser, "#theme")[0].click()
    assert browser.execute_script(GROUND) == dark and ranking(browser) == first_view(TAB)
    browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", added)
    # A phone shows cards, with the answer short and filters folded, and never scrolls sideways.
    visit(TAB.id, width=390)
    assert browser.execute_script("""
        const box = (part) => document.querySelector(part).getBoundingClientRect();
        const [track, name] = ['.track', '.name'].map((part) => box('.lines.measured li ' + part));
        return [box('.answer').height < 250, document.querySelector('.answer .more').open, track.top >= name.bottom - 1,
                track.width > 300, document.querySelector('.filter-box').open]""") == [True, False, True, True, False]
    for tab in {tab.group: tab for tab in reversed(ODD.tabs)}.values():
        for shown in ("ranking", "scores", "settings", "size", "ranking&by=tiers"):
            browser.execute_script("location.hash = arguments[0]", f"{tab.id}?view={shown}")
            comes_to(lambda tab=tab: tab.title in said(browser, "h2"), True)  # type: ignore[misc]
            assert browser.execute_script(WIDTH) <= 390, (tab.id, shown)
    assert browser.execute_script("""
        const [one, select, option] = ['fieldset', 'select', 'option'].map((name) => document.createElement(name));
        option.textContent = 'a table with a long name, '.repeat(4);
        one.className = 'switch';
        select.append(option); one.append(select); document.querySelector('.switches').append(one);""" + WIDTH) <= 390
    visit(f"{TAB.id}?compare={TAB.measured[0].id}&compare={TAB.measured[1].id}", width=390)
    assert browser.execute_script("return document.querySelector('#drawer').getBoundingClientRect().right") <= 390
    # Everything to act on has a name, and axe finds nothing serious.
    roles = {"button", "link", "tab", "checkbox", "combobox", "searchbox", "textbox", "DisclosureTriangle", "option",
             "radio", "region", "tablist", "tabpanel", "table", "columnheader", "rowheader", "dialog", "list"}
    row, other = TAB.measured[:2]
    met = set()
    for at in (TAB.id, f"{TAB.id}?view=scores", f"{TAB.id}?open={row.id}", f"{TAB.id}?view=size"):
        visit(at)
        unfold(browser)
        nodes = accessible(browser)
        assert browser.execute_script(WIDTH) <= 1280
        bare = [role for role, text, more in nodes if not text.strip() and (role in roles or more.get("focusable"))]
        assert set(bare) <= {"RootWebArea", "generic", "none"}, at
        met |= {role for role, _, _ in nodes}
        assert at != TAB.id or HOSTILE in [text for role, text, _ in nodes if role == "button"]
    assert {"tab", "tablist", "tabpanel", "combobox", "searchbox", "radio", "columnheader", "dialog", "list"} <= met
    for at, more in (
        ("", {}), (TAB.id, {"scheme": "dark"}), (f"{TAB.id}?view=scores", {}), (f"{TAB.id}?view=scores", {"scheme": "dark"}),
        (f"{TAB.id}?open={row.id}", {}), (f"{TAB.id}?compare={row.id}&compare={other.id}", {"scheme": "dark"}),
        (f"{TAB.id}?view=settings", {}), (f"{TAB.id}?view=size", {"width": 390}), ("geometry-stsb", {"width": 390}),
    ) if AXE.is_file() else ():
        visit(at, **more)
        comes_to(lambda: css(browser, "[aria-busy]"), [])
        browser.execute_script(AXE.read_text("utf-8"))
        broken = browser.execute_async_script("""
            axe.run(document, {resultTypes: ['violations'], preload: false}).then(({violations}) => arguments[0](violations
              .filter(each => ['serious', 'critical'].includes(each.impact))
              .map(({id, nodes}) => [id, nodes.slice(0, 3).map(({html, failureSummary}) => html + failureSummary)])))""")
        assert broken == [], (at, more)
    # Without scripts it says where the numbers are; a missing file is named; from a server it is the same.
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    browser.get(urls["odd"])
    # What assistive technology is told of is put together a moment after the page is there.
    comes_to(lambda: any("index.json" in text for role, text, _ in accessible(browser) if role == "link"), True)
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    few = synthetic(3)
    url = write_site(few, tmp_path / "broken")
    (tmp_path / "broken/tabs/sts-spearman-mean.js").unlink()
    go(browser, url, "sts-spearman-mean")
    assert "tabs/sts-spearman-mean.js could not be loaded" in said(browser, ".answer")
    browser.execute_script("location.hash = 'sts-spearman-all'")
    comes_to(lambda: len(ranking(browser)), 3)
    browser.get_log("browser")
    (tmp_path / "empty").mkdir()
    go(browser, write_site(Board((), {}, None), tmp_path / "empty"))
    assert "No results yet." in said(browser, "#board")
    with Server(tmp_path / "broken", 0).start() as server:  # from a server it is the same
        requests(browser)
        browser.get(f"{server.url}#sts-spearman-all?open={few.tabs[0].measured[0].id}")
        comes_to(lambda: "Provenance: " in said(browser, "#drawer"), True)
        clean(browser, f"{server.url}index.html")
    browser.get("about:blank")
    browser.get_log("browser")
    requests(browser)
    if not AXE.is_file():
        pytest.skip("all passed but axe, which is not installed: `npm ci` in leaderboard/web")
