"""The page under a reader's conditions: phone and paper, light and dark, screen reader, hostile names, broken sites."""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from board_example import HOSTILE, QUOTES
from browser import accessible, requests
from site_pages import (  # noqa: F401  fixtures
    ODD,
    SMALL,
    browser,
    clean,
    column,
    comes_to,
    css,
    first_view,
    go,
    ranking,
    ready,
    said,
    urls,
    visit,
    write_site,
)
from synthetic_board import synthetic

from stsbench.leaderboard.ranks.board import Board
from stsbench.leaderboard.records.paths import BUNDLE

TAB = ODD.tabs[0]
AXE = BUNDLE.parent / "node_modules" / "axe-core" / "axe.min.js"


def test_markup_in_names_shows_as_text(visit: Callable[..., Any]) -> None:
    browser = visit(f"{TAB.id}?view=scores")
    comes_to(lambda: {HOSTILE, QUOTES} <= set(column(browser, "method")) & set(column(browser, "method", "published")), True)
    row = next(row for row in TAB.measured if row.entry == "entry-02")
    browser = visit(f"{TAB.id}?open={row.id}")
    comes_to(lambda: HOSTILE in said(browser, "#drawer .behind"), True)
    assert all("alert" not in (each.get_attribute("textContent") or "") for each in css(browser, "script"))


def test_policy_stops_what_it_forbids(visit: Callable[..., Any]) -> None:
    browser = visit()
    stopped = browser.execute_script("""
        const image = new Image(); image.src = 'http://127.0.0.1:9/x.png'; document.body.append(image);
        const style = document.createElement('style'); style.textContent = 'body { display: none }';
        document.head.append(style);
        const stopped = [];
        try { document.body.innerHTML = '<b>x</b>'; } catch (error) { stopped.push(error.name); }
        try { document.createElement('script').src = 'tabs/x.js'; } catch (error) { stopped.push(error.name); }
        return stopped""")
    assert stopped == ["TypeError", "TypeError"] and css(browser, "h1")[0].is_displayed()
    levels = [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]  # and forget them
    assert any("img-src" in message for message in levels) and any("style-src" in message for message in levels)


def test_light_and_dark_with_and_without_storage(visit: Callable[..., Any], browser: Any) -> None:
    def ground() -> str:
        return str(browser.execute_script("return getComputedStyle(document.body).backgroundColor"))

    light, dark = "rgb(252, 252, 250)", "rgb(20, 24, 29)"
    visit().execute_script("localStorage.clear()")
    visit(scheme="dark")
    assert ground() == dark
    css(browser, "#theme")[0].click()
    assert ground() == light
    visit(scheme="dark")
    assert ground() == light  # remembered
    browser.execute_script("localStorage.clear()")
    source = "Object.defineProperty(window, 'localStorage', {get() { throw new DOMException('no', 'SecurityError'); }})"
    added = browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": source})
    try:
        visit(TAB.id)
        css(browser, "#theme")[0].click()
        assert ground() == dark and ranking(browser) == first_view(TAB)
    finally:
        browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", added)


def test_a_phone_shows_cards_and_never_scrolls_sideways(visit: Callable[..., Any]) -> None:
    browser = visit(width=390)
    # The answer leaves most of the first screen to the rows; what makes it sure is folded.
    height = browser.execute_script("return document.querySelector('.answer').getBoundingClientRect().height")
    assert height < 250 and not browser.execute_script("return document.querySelector('.answer .more').open")
    card = browser.execute_script("""
        const box = (part) => document.querySelector('.lines.measured li ' + part).getBoundingClientRect();
        const folded = !document.querySelector('.filter-box').open;
        return [box('.track').top >= box('.name').bottom - 1, box('.track').width > 300, folded]""")
    assert card == [True, True, True]
    for tab in ODD.tabs:
        for shown in ("ranking", "scores", "settings", "size"):
            browser.execute_script("location.hash = arguments[0]", f"{tab.id}?view={shown}")
            comes_to(lambda tab=tab: tab.title in said(browser, "h2"), True)  # type: ignore[misc]
            assert browser.execute_script("return document.documentElement.scrollWidth") <= 390, (tab.id, shown)
    # Nor does a list of tables with long names, as the published ones have.
    assert browser.execute_script("""
        const [one, select, option] = ['fieldset', 'select', 'option'].map((name) => document.createElement(name));
        option.textContent = 'a table with a long name, '.repeat(4);
        one.className = 'switch';
        select.append(option); one.append(select); document.querySelector('.switches').append(one);
        return document.documentElement.scrollWidth""") <= 390
    browser = visit(f"{TAB.id}?compare={TAB.measured[0].id}&compare={TAB.measured[1].id}", width=390)
    assert browser.execute_script("return document.querySelector('#drawer').getBoundingClientRect().right") <= 390
    for tab in (TAB.id, "geometry-stsb"):
        browser = visit(tab, width=1280)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= 1280


def test_everything_to_act_on_has_a_name(visit: Callable[..., Any]) -> None:
    roles = {"button", "link", "tab", "checkbox", "combobox", "searchbox", "textbox", "DisclosureTriangle", "option",
             "radio", "region", "tablist", "tabpanel", "table", "columnheader", "rowheader", "dialog", "list"}
    seen = set()
    for at in (TAB.id, f"{TAB.id}?view=scores", f"{TAB.id}?open={TAB.measured[0].id}", f"{TAB.id}?view=size"):
        nodes = accessible(visit(at))
        bare = [(role, more) for role, text, more in nodes if not text.strip() and (role in roles or more.get("focusable"))]
        assert [each for each in bare if each[0] not in {"RootWebArea", "generic", "none"}] == [], at
        seen |= {role for role, _, _ in nodes}
        if at == TAB.id:
            assert HOSTILE in [text for role, text, _ in nodes if role == "button"]
    assert {"tab", "tablist", "tabpanel", "combobox", "searchbox", "radio", "columnheader", "dialog", "list"} <= seen


def test_axe_finds_nothing_serious(visit: Callable[..., Any]) -> None:
    if not AXE.is_file():
        pytest.skip("axe-core is not installed: `npm ci` in leaderboard/web")
    source = AXE.read_text("utf-8")
    row, other = TAB.measured[:2]
    for at, more in (
        ("", {}), (TAB.id, {"scheme": "dark"}), (f"{TAB.id}?view=scores", {}), (f"{TAB.id}?view=scores", {"scheme": "dark"}),
        (f"{TAB.id}?open={row.id}", {}), (f"{TAB.id}?compare={row.id}&compare={other.id}", {"scheme": "dark"}),
        (f"{TAB.id}?view=settings", {}), (f"{TAB.id}?view=size", {"width": 390}), ("geometry-stsb", {"width": 390}),
    ):
        browser = visit(at, **more)
        comes_to(lambda: css(browser, "[aria-busy]"), [])  # noqa: B023
        browser.execute_script(source)
        broken = browser.execute_async_script("""
            axe.run(document, {resultTypes: ['violations'], preload: false}).then(({violations}) => arguments[0](violations
              .filter(each => ['serious', 'critical'].includes(each.impact))
              .map(({id, nodes}) => [id, nodes.slice(0, 3).map(({html, failureSummary}) => html + failureSummary)])))""")
        assert broken == [], (at, more)


def test_without_scripts_it_says_where_the_numbers_are(
    visit: Callable[..., Any], browser: Any, urls: dict[str, str]
) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.get("about:blank")
        browser.get(urls["odd"])
        # what assistive technology is told of is put together a moment after the page is there
        comes_to(lambda: any("index.json" in text for role, text, _ in accessible(browser) if role == "link"), True)
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_a_missing_file_is_named(browser: Any, tmp_path: Path) -> None:
    url = write_site(synthetic(3), tmp_path)
    (tmp_path / "tabs/sts-spearman-mean.js").unlink()
    go(browser, url, "sts-spearman-mean")
    assert "tabs/sts-spearman-mean.js could not be loaded" in said(browser, ".answer")
    browser.execute_script("location.hash = 'sts-spearman-all'")
    comes_to(lambda: len(ranking(browser)), 3)
    browser.get_log("browser")
    requests(browser)


def test_it_is_the_same_from_a_server_and_says_when_there_is_nothing(browser: Any, tmp_path: Path) -> None:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None: ...

    write_site(SMALL, tmp_path)
    write_site(Board((), {}, None), tmp_path / "empty")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(tmp_path))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}/index.html"
        go(browser, url, f"{SMALL.tabs[0].id}?open={SMALL.tabs[0].measured[0].id}")
        comes_to(lambda: "Provenance: " in said(browser, "#drawer"), True)
        clean(browser, url)
        browser.get(url.replace("index.html", "empty/index.html"))
        ready(browser)
        assert "No results yet." in said(browser, "#board")
        server.shutdown()
    browser.get("about:blank")
    browser.get_log("browser")
    requests(browser)
