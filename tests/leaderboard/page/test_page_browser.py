"""The page in a real browser: what a reader does with it, by mouse and by keyboard."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from browser import requests
from site_pages import (  # noqa: F401  fixtures
    ODD,
    SMALL,
    TEXTS,
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
    said,
    urls,
    visit,
    write_site,
)
from synthetic_board import synthetic

from stsbench.leaderboard.page.tables import comparable
from stsbench.leaderboard.ranks.board import Board, Row

TAB = ODD.tabs[0]


def names(rows: tuple[Row, ...], rule: Callable[[Row], bool] = lambda row: True) -> list[str]:
    return [row.method for row in rows if rule(row)]


def test_it_opens_from_a_file_with_the_answer(visit: Callable[..., Any], urls: dict[str, str]) -> None:
    browser = visit()
    assert browser.title.startswith("stsbench") and fragment(browser) == ""
    asked = {each.rpartition("/")[2] for each in requests(browser)}
    assert asked == {"index.html", "board.js", "board.css", "index.js", f"{TAB.id}.js"}
    text, kinds = said(browser, ".answer"), comparable(TAB)
    most = max(kinds.values(), key=len)
    assert most[0].method in text and f" the {len(most)} " in text and "measured here" in text
    for rows in kinds.values():  # each kind of supervision has its first
        lead = rows[0].cells["Avg"]
        assert f"{lead.value:.2f} (95 % interval {lead.low:.2f}–{lead.high:.2f})" in text and rows[0].method in text
    assert ranking(browser) == first_view(TAB) and ranking(browser, "published") == names(TAB.published)[:5]
    assert "object" not in text and len(css(browser, ".lines.measured")) == len(kinds) > 1
    # All that was measured is a click away; a row of STS labels or test sentences has no clear lead.
    by_script(css(browser, "[name=switch-rows][value=all]")[0])
    comes_to(lambda: ranking(browser), names(TAB.measured))
    ranked = [row for row in TAB.measured if row.rank]
    text = said(browser, ".answer")
    assert fragment(browser) == f"{TAB.id}?rows=all"
    assert text.startswith(ranked[0].method) and f" the {len(ranked)} ranked rows measured here." in text
    assert ranked[0].method in first_view(TAB) or "clear lead" not in text
    lead = ranked[0].cells["Avg"]
    assert f"{lead.value:.2f} (95 % interval {lead.low:.2f}–{lead.high:.2f})" in text and ranked[1].method in text
    assert ranking(browser, "published") == names(TAB.published)[:5]
    assert "Never ranked: papers give no digest" in said(browser, ".ranking .apart")
    assert "Rank" not in said(browser, ".lines.published") and "1–2" in said(
        browser, ".lines.measured li:first-child .between"
    )
    # A bar's ends are the interval, on one scale with every other bar.
    bars = browser.execute_script("""return [...document.querySelectorAll('.lines.measured .bar')].map(bar => {
        const {left, right} = bar.getBoundingClientRect(); return [left, right]; })""")
    cells = [row.cells["Avg"] for row in TAB.measured]
    slope = (bars[0][1] - bars[-1][0]) / (cells[0].high - cells[-1].low)
    for (left, right), cell in zip(bars, cells, strict=True):
        assert left == pytest.approx(bars[-1][0] + slope * (cell.low - cells[-1].low), abs=1)
        assert right == pytest.approx(bars[-1][0] + slope * (cell.high - cells[-1].low), abs=1)


def test_a_switch_reorders_the_rows(visit: Callable[..., Any]) -> None:
    browser = visit(which="small")
    other = SMALL.tabs[4]
    assert ranking(browser) == first_view(SMALL.tabs[0])
    by_script(css(browser, "[name=switch-metric][value=pearson]")[0])
    comes_to(lambda: ranking(browser), first_view(SMALL.tabs[3]))
    by_script(css(browser, "[name=switch-aggregation][value=mean]")[0])
    comes_to(lambda: ranking(browser), first_view(other))
    assert fragment(browser) == other.id
    browser.back()
    comes_to(lambda: ranking(browser), first_view(SMALL.tabs[3]))


def test_the_text_is_a_switch_that_reorders_the_rows(visit: Callable[..., Any]) -> None:
    browser = visit(which="texts")
    tabs = {tab.id: first_view(tab) for tab in TEXTS.tabs}
    assert ranking(browser) == tabs["sts-spearman-all"] != tabs["sts-spearman-all-raw-text"]
    assert said(browser, "[data-key=form]") == "Text SentEval’s raw"
    by_script(css(browser, "[name=switch-form][value='raw text']")[0])
    comes_to(lambda: ranking(browser), tabs["sts-spearman-all-raw-text"])
    by_script(css(browser, "[name=switch-aggregation][value=mean]")[0])
    comes_to(lambda: ranking(browser), tabs["sts-spearman-mean-raw-text"])  # the text stays as it was chosen
    by_script(css(browser, "[name=switch-form][value='']")[0])
    comes_to(lambda: ranking(browser), tabs["sts-spearman-mean"])
    assert fragment(browser) == "sts-spearman-mean" and ranking(browser, "published") == []
    by_script(css(browser, "[name=switch-aggregation][value=all]")[0])
    comes_to(lambda: ranking(browser, "published"), names(TEXTS.tabs[0].published))
    css(browser, "#filters [type=search]")[0].send_keys("nobody")
    comes_to(lambda: said(browser, ".ranking .none"), "No row passes the filters.")


def test_imported_rows_are_not_called_published(browser: Any, tmp_path: Path) -> None:
    tab = synthetic(3, 2).tabs[0]
    source, long = "results of mteb 2.26.24, revision 0123456789ab", "somebody/an-encoder-with-a-rather-long-name"
    rows = tuple(
        dataclasses.replace(row, method=f"{long}-{i}", backbone="", marks=("odd",), flags=("imported",), source=source)
        for i, row in enumerate(tab.published)
    )
    mine = tuple(dataclasses.replace(row, method=f"{row.method}: {long}", marks=("odd",)) for row in tab.measured)
    whole = Board((dataclasses.replace(tab, measured=mine, published=rows),), synthetic(3, 2).entries, None)
    url = write_site(whole, tmp_path)
    go(browser, url, tab.id)
    assert said(browser, ".ranking .apart").startswith("Imported from another tool’s result files (2). Never ranked")
    assert "imported, not checked" in said(browser, ".lines.published li")
    go(browser, url, f"{tab.id}?view=scores")
    comes_to(lambda: len(column(browser, "method", "published")), 2)
    assert said(browser, ".scores .apart").startswith("Imported from another tool’s result files. Never ranked")
    assert "undefined" not in said(browser, ".scores")  # rows have no letters here, as on a tab of more than 20
    # A name of two lines and its source fit into their row.
    over = browser.execute_script("""
        const cells = [...document.querySelectorAll('.tabulator-cell')];
        return cells.filter(cell => cell.scrollHeight > cell.clientHeight + 1).map(cell => cell.innerText)""")
    assert over == []
    clean(browser, url)


def test_sorts_by_every_column(visit: Callable[..., Any]) -> None:
    browser = visit(f"{TAB.id}?view=scores")
    comes_to(lambda: column(browser, "method"), names(TAB.measured))
    numbers = {name: [row.cells.get(name) for row in TAB.measured] for name in TAB.columns}
    for name, cells in numbers.items():
        head = css(browser, f".grid-box.measured .tabulator-col[tabulator-field='{name}'] .heading")[0]
        for turn in (True, False):  # numbers begin with the best
            by_script(head)
            expected = sorted((i for i, cell in enumerate(cells) if cell), key=lambda i: cells[i].value, reverse=turn)
            comes_to(lambda expected=expected: column(browser, "method"), [TAB.measured[i].method for i in expected])
            sign = "descending" if turn else "ascending"
            assert css(browser, f".grid-box.measured [tabulator-field='{name}'][aria-sort={sign}]")
            assert f"sort={name}" in fragment(browser) and f"order={sign[:3] if sign[0] == 'a' else 'desc'}" in fragment(
                browser
            )
        by_script(head)
        comes_to(lambda: column(browser, "method"), names(TAB.measured))
    by_script(css(browser, ".grid-box.published .tabulator-col[tabulator-field='STS13'] .heading")[0])
    shown = [value for value in column(browser, "STS13", "published") if value != "–"]
    assert [float(value) for value in shown] == sorted(map(float, shown), reverse=True) and shown[
        0
    ] == f"{max(row.cells['STS13'].value for row in TAB.published if 'STS13' in row.cells):.2f}"
    by_script(css(browser, ".grid-box.published .tabulator-col[tabulator-field='method'] .heading")[0])
    comes_to(lambda: column(browser, "method", "published")[0].lower(), min(row.method.lower() for row in TAB.published))


def test_lower_is_better_begins_with_the_lowest_and_knows_negative_numbers(visit: Callable[..., Any]) -> None:
    browser = visit("geometry-stsb?view=scores")
    rows = next(tab for tab in ODD.tabs if tab.id == "geometry-stsb").measured
    comes_to(lambda: column(browser, "method"), names(rows))
    by_script(css(browser, "[tabulator-field=uniformity] .heading")[0])
    values = sorted(row.cells["uniformity"].value for row in rows)
    comes_to(lambda: column(browser, "uniformity"), [f"{value:.3f}".replace("-", "−") for value in values])
    assert values[0] < -1


def test_filters_one_by_one_and_together(visit: Callable[..., Any]) -> None:
    browser = visit(f"{TAB.id}?rows=all")

    def shows(rule: Callable[[Row], bool]) -> None:
        comes_to(lambda: ranking(browser), names(TAB.measured, rule))

    clear = css(browser, "#filters [type=reset]")[0]
    css(browser, "#filters [type=search]")[0].send_keys("EXAMPLE roberta")
    shows(lambda row: "example" in row.method and "RoBERTa" in row.backbone)
    count = len(names(TAB.measured, lambda row: "example" in row.method and "RoBERTa" in row.backbone))
    printed = len(names(TAB.published, lambda row: "RoBERTa" in row.backbone))  # their ids hold the other word
    assert 0 < count < 12 and said(browser, "#filters output") == f"{count} of 12 measured, {printed} of 50 published"
    assert css(browser, "#filters [type=search]")[0].get_attribute("value") == "EXAMPLE roberta"
    clear.click()
    shows(lambda row: True)
    for option in ("unsup", "semi", "sup", "-"):
        css(browser, f"#filters [name=setting] option[value='{option}']")[0].click()
        shows(lambda row, option=option: (row.setting or "-") == option)  # type: ignore[misc]
    clear.click()
    css(browser, "#filters [name=kind] option[value=published]")[0].click()
    shows(lambda row: False)
    assert ranking(browser, "published") == names(TAB.published)[:20]
    clear.click()
    css(browser, "#filters .flags summary")[0].click()
    for flag in ("nli", "sts", "transductive", "dev-selected"):
        box = css(browser, f"#filters [value='{flag}']")[0]
        box.click()
        shows(lambda row, flag=flag: flag not in row.flags)  # type: ignore[misc]
        box.click()
    css(browser, "#filters [value=nli]")[0].click()
    css(browser, "#filters [name=backbone] option[value='BERT-base']")[0].click()
    shows(lambda row: row.backbone == "BERT-base" and "nli" not in row.flags)
    # A choice holds from tab to tab and from view to view, and is in the link.
    by_script(css(browser, "[name=switch-aggregation][value=mean]")[0])
    comes_to(
        lambda: ranking(browser),
        names(ODD.tabs[1].measured, lambda row: row.backbone == "BERT-base" and "nli" not in row.flags),
    )
    assert fragment(browser) == f"{ODD.tabs[1].id}?rows=all&backbone=BERT-base&hide=nli"
    css(browser, "#tab-view-scores")[0].click()
    css(browser, "#filters .columns summary")[0].click()
    css(browser, "#filters [name=columns][value=STS13]")[0].click()
    comes_to(lambda: len(css(browser, ".grid-box.measured [tabulator-field=STS13]")), 0)
    assert css(browser, ".grid-box.measured [tabulator-field=STS12]")
    again = visit(fragment(browser))
    comes_to(lambda: len(css(again, ".grid-box.measured [tabulator-field=STS12]")) > 0, True)
    assert not css(again, "[tabulator-field=STS13]") and set(column(again, "backbone")) <= {"BERT-base"}


def test_tabs_by_mouse_by_keyboard_and_back(visit: Callable[..., Any]) -> None:
    from selenium.webdriver.common.keys import Keys

    browser = visit()
    css(browser, "#tab-group-transfer")[0].click()
    comes_to(lambda: ranking(browser), first_view(next(tab for tab in ODD.tabs if tab.group == "transfer")))
    assert fragment(browser) == "transfer-sgd"
    css(browser, "#tab-group-sts")[0].click()
    by_script(css(browser, "[name=switch-aggregation][value=wmean]")[0])
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
    assert press(Keys.ARROW_RIGHT) == "tab-group-transfer" and press(Keys.END) == "tab-group-cost"
    assert (
        press(Keys.ARROW_RIGHT) == "tab-group-sts"
        and press(Keys.ARROW_LEFT) == "tab-group-cost"
        and press(Keys.HOME) == "tab-group-sts"
    )
    assert len(css(browser, "[role=tablist]:first-child [role=tab][tabindex='0']")) == 2  # a protocol and a view
    browser.execute_script("document.querySelector('#tab-view-ranking').focus()")
    assert press(Keys.ARROW_RIGHT) == "tab-view-scores" and fragment(browser).endswith("?view=scores")
    # A switch is a group of radio buttons: arrows turn it, and the focus stays in it.
    browser.execute_script("document.querySelector('[name=switch-metric]:checked').focus()")
    browser.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
    comes_to(lambda: fragment(browser).split("?")[0], "sts-pearson-wmean")
    assert browser.switch_to.active_element.get_attribute("value") == "pearson"


def test_a_wrong_link_opens_the_first_tab(visit: Callable[..., Any]) -> None:
    browser = visit("no-such-tab%E0%A4%A?view=nothing&open=nobody")
    assert ranking(browser) == first_view(TAB) and not css(browser, "dialog[open]")
    browser.execute_script("location.hash = 'geometry-stsb'")
    comes_to(lambda: said(browser, "h2"), "Geometry: STS-B")


def test_a_row_opens_by_keyboard_to_its_provenance(visit: Callable[..., Any]) -> None:
    from selenium.webdriver.common.keys import Keys

    browser = visit(f"{TAB.id}?rows=all")
    row = TAB.measured[0]
    button = css(browser, ".lines.measured .open")[0]
    button.send_keys(Keys.ENTER)
    comes_to(lambda: "Provenance: " in said(browser, "#drawer"), True)
    assert f"open={row.id}" in fragment(browser)
    text = said(browser, "#drawer")
    entry = ODD.entries[row.entry]
    for words in (
        f"Provenance: {entry.name}",
        "numpy 2.4.6",
        "stsbench eval --model",
        "Repeat it",
        "Parts of the tasks",
        str(entry.runs[0]["fingerprint"]),
    ):
        assert words in text, words
    for cell in row.cells.values():
        assert f"{cell.low:.2f}–{cell.high:.2f}" in text
    css(browser, "#drawer details:last-of-type summary")[-1].click()
    text = said(browser, "#drawer")
    for (_, part), cell in row.subsets.items():
        assert part in text and f"{cell.value:.2f}" in text and "50.00–60.50" in text and "750" in text
    browser.switch_to.active_element.send_keys(Keys.ESCAPE)
    comes_to(lambda: css(browser, "dialog[open]"), [])
    comes_to(lambda: "open=" in fragment(browser), False)
    assert browser.switch_to.active_element == button
    odd = next(row for row in TAB.published if row.average_printed is not None)
    browser = visit(f"{TAB.id}?open={odd.id}")
    text = said(browser, "#drawer")
    assert f"the paper prints {odd.average_printed:.2f}" in text and odd.marks[0] in text and odd.source in text
    assert "published rows are never ranked" in text


def test_two_rows_side_by_side(visit: Callable[..., Any]) -> None:
    browser = visit(f"{SMALL.tabs[0].id}?rows=all", which="small")
    requests(browser)
    css(browser, ".answer .open")[0].click()
    one, other = SMALL.tabs[0].measured[:2]
    comes_to(lambda: css(browser, "#drawer .verdict[aria-busy]"), [])
    # The tests of pairs are loaded when two rows are compared, and not before.
    assert [each.rpartition("/")[2] for each in requests(browser)] == [f"{SMALL.tabs[0].id}.0.js"]
    text = said(browser, "#drawer")
    gap = f"{one.cells['Avg'].value - other.cells['Avg'].value:.2f}"
    assert f"{one.method} is ahead of {other.method} by {gap} in Avg. significant 95 % interval" in text
    assert "The two differ significantly, at 5 % over all 66 pairs of rows of this table at once." in text
    for task, cell in one.cells.items():
        gap = round(cell.value, 4) - round(other.cells[task].value, 4)
        assert f"{cell.value:.2f}" in text and f"{gap:+.2f}".replace("-", "−") in text
    rows = SMALL.tabs[0].measured
    last = next(row for row in rows if row.rank.position > 3 and row.rank.first <= rows[row.rank.position - 2].rank.last)
    one = rows[last.rank.position - 2]
    css(browser, f"#drawer .picker label:first-of-type option[value='{one.id}']")[0].click()
    css(browser, f"#drawer .picker label:last-of-type option[value='{last.id}']")[0].click()
    comes_to(lambda: f"compare={one.id}&compare={last.id}" in fragment(browser), True)
    assert SMALL.tabs[0].pairs is not None
    half = SMALL.tabs[0].pairs.halves[one.rank.position - 1, last.rank.position - 1]
    alone = one.cells["Avg"].value - last.cells["Avg"].value > half
    comes_to(lambda: said(browser, "#drawer .verdict .sure"), "significant alone" if alone else "not significant")
    published = SMALL.tabs[0].published[0]
    css(browser, f"#drawer .picker label:last-of-type option[value='{published.id}']")[0].click()
    comes_to(lambda: said(browser, "#drawer .verdict").startswith("Not tested: nothing was observed"), True)
    browser.back()
    browser.back()
    comes_to(lambda: other.method in said(browser, "#drawer h2"), True)
    css(browser, "#drawer .close")[0].click()
    comes_to(lambda: "compare" in fragment(browser), False)


def test_score_against_size_and_across_settings(visit: Callable[..., Any]) -> None:
    browser = visit("?view=size".replace("?", f"{SMALL.tabs[0].id}?"), which="small")
    comes_to(lambda: len(css(browser, ".size svg")), 1)
    options = {option.get_attribute("value"): option.is_enabled() for option in css(browser, ".size option")}
    unknown = dict.fromkeys(("parameters", "bytes_a_vector", "sentences_per_second", "memory_mb"), False)
    assert options == {"width": True, **unknown, "year": True}
    text = said(browser, ".size")
    best = [item.text for item in css(browser, ".size .front li")]
    assert best[-1].startswith(f"{SMALL.tabs[0].measured[0].method}: Avg ") and "[object" not in text
    assert "60 of 72 rows are not drawn: their vector’s dimension is unknown" in text
    assert "Parameters (unknown: no record holds it)" in text
    assert SMALL.tabs[0].measured[0].method in text  # the best row is on the front, whatever it costs
    css(browser, ".size option[value=year]")[0].click()
    comes_to(lambda: "x=year" in fragment(browser), True)
    css(browser, "#tab-view-settings")[0].click()
    comes_to(lambda: len(css(browser, ".settings-view svg")), 1)
    assert len(css(browser, ".settings-view tbody tr")) == 6
