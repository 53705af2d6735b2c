"""The page in a real browser: what a reader does with it, by mouse and by keyboard, wide and narrow, light and dark."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from board_example import HOSTILE, QUOTES, board
from browser import accessible, need_browser, requests, screen, started
from markupsafe import Markup

from stsbench.leaderboard.page.page import columns, render
from stsbench.leaderboard.page.picture import picture
from stsbench.leaderboard.ranks.board import FLAGS, Row

BOARD = board(12, 50)
TAB = BOARD.tabs[0]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    assert BOARD.sensitivity is not None
    path = tmp_path_factory.mktemp("page") / "index.html"
    path.write_text(render(BOARD, Markup(picture(BOARD.sensitivity))), "utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    need_browser()
    with started(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


@pytest.fixture
def visit(browser: Any, url: str) -> Iterator[Callable[..., Any]]:
    """Opens the page at a fragment, afresh; at the end nothing may have been complained of or asked for."""

    def go(fragment: str = "", width: int = 1280, scheme: str = "light") -> Any:
        screen(browser, width, 844 if width < 600 else 1000, scheme)
        browser.get("about:blank")
        browser.get(f"{url}#{fragment}" if fragment else url)
        return browser

    yield go
    assert [entry for entry in browser.get_log("browser") if entry["level"] in {"SEVERE", "WARNING"}] == []
    assert {asked.split("#")[0] for asked in requests(browser)} <= {url}


def css(browser: Any, selector: str) -> list[Any]:
    return list(browser.find_elements("css selector", selector))


def panel(browser: Any) -> str:
    """The id of the one panel that is to be seen."""
    script = "return [...document.querySelectorAll('.panel')].filter(each => each.offsetParent).map(each => each.id)"
    shown = browser.execute_script(script)
    assert len(shown) == 1
    return str(shown[0])


def jump(browser: Any, name: str) -> None:
    """Another fragment, as by the address bar."""
    browser.execute_async_script("""
        addEventListener('hashchange', () => arguments[1](), {once: true}); location.hash = arguments[0]""", name)


def back(browser: Any, forward: bool = False) -> str:
    steps = 1 if forward else -1
    browser.execute_async_script("""
        addEventListener('hashchange', () => arguments[1](), {once: true}); history.go(arguments[0])""", steps)
    return panel(browser)


def fragment(browser: Any) -> str:
    return str(browser.execute_script("return location.hash.slice(1)"))


def order(browser: Any) -> list[list[int]]:
    """For each body of the shown table, its visible rows as numbers in the order of the board."""
    return list(browser.execute_script("""
        const table = document.querySelector('.group.on > .panel.on table.board');
        return [...table.tBodies].map(body => {
          const rows = [...body.rows].filter(row => row.matches('.row'));
          rows.forEach((row, i) => { row.dataset.at ??= i; });
          if (rows.some(row => row.nextElementSibling.className.split(' ')[0] !== 'more')) return 'parted from its details';
          return rows.filter(row => row.offsetParent).map(row => Number(row.dataset.at));
        })"""))


def comes_to_show(browser: Any, expected: list[list[int]]) -> None:
    """`order` must become `expected`, within five seconds: the page undoes its filters by a timer."""
    until = time.monotonic() + 5
    while (found := order(browser)) != expected and time.monotonic() < until:
        time.sleep(0.01)
    assert found == expected


def shown_in(row: Row) -> list[str | float | None]:
    """What the row is sorted by, column by column."""
    numbers = [row.cells[name].value if name in row.cells else None for name in columns(TAB)]
    flags = " ".join(FLAGS[flag][0] for flag in row.flags).lower()
    place = row.rank.place if row.rank else None
    return [place, row.method.lower(), row.backbone.lower(), *numbers, row.setting, flags or None]


def by_script(button: Any) -> None:
    button.parent.execute_script("arguments[0].click()", button)


def by(rows: tuple[Row, ...], column: int, reverse: bool) -> list[int]:
    keys: list[Any] = [shown_in(row)[column] for row in rows]
    there = [i for i, key in enumerate(keys) if key is not None]
    return sorted(there, key=lambda i: keys[i], reverse=reverse) + [i for i, key in enumerate(keys) if key is None]


def test_opens_from_a_file_and_asks_for_nothing_else(visit: Callable[..., Any], url: str) -> None:
    browser = visit()
    assert browser.title.startswith("stsbench") and panel(browser) == "sensitivity"
    assert [asked.split("#")[0] for asked in requests(browser)] == [url]
    assert browser.execute_script("return document.querySelector('svg').getBoundingClientRect().height") > 200


def test_sorts_by_every_column(visit: Callable[..., Any]) -> None:
    browser = visit(TAB.id)
    both = (TAB.measured, TAB.published)
    first = order(browser)
    assert first == [list(range(len(rows))) for rows in both]
    heads = css(browser, ".group.on > .panel.on table.board > thead th")
    assert len(heads) == len(shown_in(TAB.measured[0]))
    for column, head in enumerate(heads):
        numeric = 3 <= column < 3 + len(TAB.columns)
        button = head.find_element("css selector", "button")
        press = type(button).click if column in {1, 4} else by_script  # a real click takes its time
        for turn in (numeric, not numeric):  # numbers begin with the best
            press(button)
            assert order(browser) == [by(rows, column, reverse=turn) for rows in both], (column, turn)
            assert head.get_attribute("aria-sort") == ("descending" if turn else "ascending")
        press(button)
        assert order(browser) == first and css(browser, "th[aria-sort]") == []


def test_lower_is_better_begins_with_the_lowest_and_knows_negative_numbers(visit: Callable[..., Any]) -> None:
    browser = visit("geometry-stsb")
    tab = next(tab for tab in BOARD.tabs if tab.id == "geometry-stsb")
    assert order(browser) == [list(range(len(tab.measured)))]
    css(browser, ".group.on > .panel.on table.board > thead button")[4].click()
    values = [row.cells["uniformity"].value for row in tab.measured]
    assert min(values) < -1 and order(browser) == [sorted(range(len(values)), key=values.__getitem__)]


def test_a_table_of_published_rows_alone_sorts_and_filters(visit: Callable[..., Any]) -> None:
    tab = BOARD.tabs[-1]
    browser = visit(tab.id)
    heads = css(browser, ".group.on > .panel.on table.board > thead button")
    assert [head.text for head in heads] == ["Method", "Backbone", *tab.columns, "Setting", "Flags"]
    comes_to_show(browser, [[0, 1, 2, 3]])
    heads[2].click()
    comes_to_show(browser, [sorted(range(4), key=lambda i: tab.published[i].cells["added"].value)])
    css(browser, "#filters input[type=search]")[0].send_keys(tab.published[3].backbone)
    comes_to_show(browser, [[3]])
    css(browser, "#filters button")[0].click()
    css(browser, "#filters select[name=setting] option[value=''] ~ option")[0].click()
    assert sorted(order(browser)[0]) == [i for i, row in enumerate(tab.published) if row.setting == "unsup"]
    css(browser, "#filters button")[0].click()
    css(browser, "#filters input[value=nli]")[0].click()
    assert sorted(order(browser)[0]) == [0, 2, 3]


def test_filters_one_by_one_and_together(visit: Callable[..., Any]) -> None:
    browser = visit(TAB.id)
    order(browser)

    def kept(rule: Callable[[Row], bool]) -> list[list[int]]:
        return [[i for i, row in enumerate(rows) if rule(row)] for rows in (TAB.measured, TAB.published)]

    def choose(name: str, value: str) -> None:
        css(browser, f"#filters select[name={name}] option[value='{value}']")[0].click()

    clear = css(browser, "#filters button")[0]
    search = css(browser, "#filters input[type=search]")[0]
    search.send_keys("EXAMPLE roberta")
    found = kept(lambda row: "example" in row.method and "RoBERTa" in row.backbone)
    comes_to_show(browser, found)
    assert 0 < len(found[0]) < 12
    assert css(browser, "#filters output")[0].text == f"{len(found[0])} of 12 measured, 0 of 50 published"
    clear.click()
    comes_to_show(browser, kept(lambda row: True))
    for option in ("unsup", "semi", "sup", "-"):
        browser.execute_script("""const s = document.querySelector('#filters select[name=setting]'); s.value = arguments[0];
                                  s.dispatchEvent(new Event('input', {bubbles: true}))""", option)  # fmt: skip
        comes_to_show(browser, kept(lambda row, option=option: (row.setting or "-") == option))  # type: ignore[misc]
    clear.click()
    choose("kind", "published")
    comes_to_show(browser, [[], list(range(len(TAB.published)))])
    clear.click()
    for flag in FLAGS:
        box = css(browser, f"#filters input[value='{flag}']")[0]
        box.click()
        comes_to_show(browser, kept(lambda row, flag=flag: flag not in row.flags))  # type: ignore[misc]
        box.click()
    css(browser, "#filters input[value=nli]")[0].click()
    css(browser, "#filters select[name=backbone] option")[1].click()
    name = css(browser, "#filters select[name=backbone] option")[1].text
    both = kept(lambda row: row.backbone == name and "nli" not in row.flags)
    comes_to_show(browser, both)
    assert 0 < sum(map(len, both)) < 20
    css(browser, "#tab-sts-spearman-mean")[0].click()  # a choice holds from tab to tab
    assert [len(rows) for rows in order(browser)] == [
        sum(row.backbone == name and "nli" not in row.flags for row in rows)
        for rows in (BOARD.tabs[1].measured, BOARD.tabs[1].published)
    ]


def test_tabs_by_mouse_and_back(visit: Callable[..., Any]) -> None:
    browser = visit()
    css(browser, "[data-group=group-1]")[0].click()
    assert panel(browser) == fragment(browser) == TAB.id
    css(browser, "#tab-sts-pearson-wmean")[0].click()
    assert panel(browser) == fragment(browser) == "sts-pearson-wmean"
    css(browser, "[data-group=group-2]")[0].click()
    assert panel(browser) == fragment(browser) == "transfer-sgd"
    css(browser, "[data-group=group-1]")[0].click()
    assert panel(browser) == "sts-pearson-wmean"  # a group remembers its tab
    for expected in ("transfer-sgd", "sts-pearson-wmean", TAB.id, "sensitivity"):
        assert back(browser) == expected
    assert back(browser, forward=True) == TAB.id


def test_tabs_by_keyboard(visit: Callable[..., Any]) -> None:
    from selenium.webdriver.common.keys import Keys

    browser = visit("sts-spearman-mean")
    ids = [tab.id for tab in BOARD.tabs if tab.group == "sts"]

    def press(key: str) -> str:
        browser.switch_to.active_element.send_keys(key)
        active = browser.switch_to.active_element
        assert active.get_attribute("aria-selected") == "true" and active.get_attribute("tabindex") == "0"
        assert browser.execute_script("return getComputedStyle(document.activeElement).outlineStyle") == "solid"
        return panel(browser)

    css(browser, "#tab-sts-spearman-mean")[0].send_keys(Keys.ARROW_RIGHT)
    assert panel(browser) == fragment(browser) == ids[2]
    assert press(Keys.ARROW_LEFT) == ids[1]
    assert press(Keys.END) == ids[-1] and press(Keys.ARROW_RIGHT) == ids[0]
    assert press(Keys.ARROW_LEFT) == ids[-1] and press(Keys.HOME) == ids[0]
    selected = css(browser, "[role=tab][aria-selected=true]")
    assert len([each for each in selected if each.is_displayed()]) == 2  # the group and its setting
    reachable = [each for each in css(browser, ".groups [role=tab]") if each.get_attribute("tabindex") == "0"]
    assert len(reachable) == 1
    reachable[0].send_keys(Keys.END)
    assert panel(browser) == BOARD.tabs[-1].id


def test_fragment_opens_its_tab_and_a_wrong_one_the_first(visit: Callable[..., Any]) -> None:
    assert panel(visit("sts-pearson-mean")) == "sts-pearson-mean"
    assert panel(visit("group-2")) == "transfer-sgd"
    browser = visit("no-such-tab%E0%A4%A")
    assert panel(browser) == "sensitivity"
    jump(browser, "geometry-stsb")
    assert panel(browser) == "geometry-stsb"


def test_a_row_opens_by_keyboard_to_its_provenance(visit: Callable[..., Any]) -> None:
    from selenium.webdriver.common.keys import Keys

    browser = visit(TAB.id)
    for row, key in ((TAB.measured[0], Keys.ENTER), (TAB.measured[1], Keys.SPACE)):
        button = css(browser, ".group.on > .panel.on .measured .opener")[TAB.measured.index(row)]
        assert button.get_attribute("aria-expanded") == "false"
        button.send_keys(key)
        assert button.get_attribute("aria-expanded") == "true"
        more = css(browser, ".group.on > .panel.on .measured tr.more")[TAB.measured.index(row)]
        entry = BOARD.entries[row.entry]
        said = more.text
        assert f"Provenance: {entry.name}" in said and str(entry.runs[0]["fingerprint"]) in said
        assert "numpy 2.4.6" in said and "stsbench eval --model" in said and "2026-11-21" in said
        for (_, part), cell in row.subsets.items():
            assert part in said and f"{cell.value:.2f}" in said
        for cell in row.cells.values():
            assert f"{cell.low:.2f}–{cell.high:.2f}" in said
        button.send_keys(key)
        assert not more.is_displayed() and button.get_attribute("aria-expanded") == "false"
        button.send_keys(key)
        assert more.text.count("Provenance: ") == 1
    odd = next(row for row in TAB.published if row.average_printed is not None)
    css(browser, ".group.on > .panel.on .published .opener")[TAB.published.index(odd)].click()
    said = css(browser, ".group.on > .panel.on .published tr.more")[TAB.published.index(odd)].text
    assert f"the paper prints {odd.average_printed:.2f}" in said and odd.marks[0] in said and odd.source in said
    assert "rank" not in said


def test_markup_in_names_shows_as_text(visit: Callable[..., Any]) -> None:
    from selenium.common.exceptions import NoAlertPresentException

    browser = visit(TAB.id)
    names = [button.text for button in css(browser, ".group.on > .panel.on .opener")]
    for name in (HOSTILE, QUOTES):
        assert [text.removesuffix(" †") for text in names].count(name) == 2
    row = next(i for i, row in enumerate(TAB.measured) if row.entry == "entry-02")
    css(browser, ".group.on > .panel.on .opener")[row].click()
    assert HOSTILE in css(browser, ".group.on > .panel.on tr.more.open article")[-1].text
    assert len(css(browser, "script")) == 1
    with pytest.raises(NoAlertPresentException):
        _ = browser.switch_to.alert


def test_policy_stops_what_it_forbids(visit: Callable[..., Any]) -> None:
    browser = visit()
    stopped = browser.execute_script("""
        const image = new Image(); image.src = 'http://127.0.0.1:9/x.png'; document.body.append(image);
        const style = document.createElement('style'); style.textContent = 'body { display: none }';
        document.head.append(style);
        try { document.body.innerHTML = '<b>x</b>'; return 'taken'; } catch (error) { return error.name; }""")
    assert stopped == "TypeError" and css(browser, "h1")[0].is_displayed()
    levels = [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]  # and forget them
    assert any("img-src" in message for message in levels) and any("style-src" in message for message in levels)


def test_light_and_dark(visit: Callable[..., Any]) -> None:
    def ground(browser: Any) -> str:
        return str(browser.execute_script("return getComputedStyle(document.body).backgroundColor"))

    light, dark = "rgb(252, 252, 250)", "rgb(20, 24, 29)"
    visit().execute_script("localStorage.clear()")
    assert ground(visit()) == light
    browser = visit(scheme="dark")
    assert ground(browser) == dark
    css(browser, "#theme")[0].click()
    assert ground(browser) == light
    assert ground(visit(scheme="dark")) == light  # remembered
    css(browser, "#theme")[0].click()
    assert ground(visit()) == dark
    browser.execute_script("localStorage.clear()")


def test_works_where_storage_is_refused(visit: Callable[..., Any], browser: Any) -> None:
    source = "Object.defineProperty(window, 'localStorage', {get() { throw new DOMException('no', 'SecurityError'); }})"
    added = browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": source})
    try:
        visit(TAB.id)
        css(browser, "#theme")[0].click()
        assert browser.execute_script("return document.documentElement.dataset.theme") == "dark" and panel(browser) == TAB.id
    finally:
        browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", added)


def test_phone_width_never_scrolls_the_page_sideways(visit: Callable[..., Any]) -> None:
    browser = visit(width=390)
    for name in ("sensitivity", *(tab.id for tab in BOARD.tabs), TAB.id):
        width = browser.execute_script("""
            const panel = document.getElementById(arguments[0]);
            for (const link of document.querySelectorAll('[role=tab]')) {
              const target = document.getElementById(link.getAttribute('aria-controls'));
              if (target.contains(panel) || target === panel) link.click();
            }
            for (const opens of panel.querySelectorAll('summary, .row:nth-child(-n + 4) .opener')) opens.click();
            return document.documentElement.scrollWidth""", name)
        assert panel(browser) == name and width <= 390, name
    edges = browser.execute_script("""
        const box = document.querySelector('.group.on > .panel.on > .scroll');
        const cell = box.querySelector('th.method .opener').parentElement;
        if (!box.querySelector('tr.more.open')) cell.firstElementChild.click();
        const wide = box.scrollWidth > box.clientWidth + 200; box.scrollLeft = 200;
        return [wide, cell.getBoundingClientRect().left - box.getBoundingClientRect().left,
                box.querySelector('tr.more.open .inside').getBoundingClientRect().right, innerWidth]""")
    assert edges[0] and abs(edges[1]) < 1 and edges[2] <= edges[3]


def test_every_table_fits_a_laptop_and_ids_break_behind_colons_only(visit: Callable[..., Any]) -> None:
    for width in (390, 1280):
        browser = visit(TAB.id, width=width)
        ids = browser.execute_script("""
            const right = (each) => each.getBoundingClientRect().right;
            const seen = (part) => [part.textContent, part.getClientRects().length,
              right(part) <= right(part.closest('th'))];
            return [...document.querySelectorAll('.group.on > .panel.on .source')]
              .map(each => [...(each.querySelector('span') ? each.querySelectorAll('span') : [each])].map(seen))""")
        assert ["".join(text for text, *_ in parts) for parts in ids] == [row.id for row in TAB.published]
        assert {tuple(rest) for parts in ids for _, *rest in parts} == {(1, True)}  # lines, inside its cell
        assert {text[-1:] for parts in ids for text, *_ in parts[:-1]} == {":"}
    for link in css(browser, "[role=tab]"):
        by_script(link)
        wide = browser.execute_script("""
            const box = document.querySelector('.group.on > .panel.on > .scroll:has(> table.board)');
            return [box ? box.scrollWidth - box.clientWidth : 0, document.documentElement.scrollWidth]""")
        assert wide[0] <= 0 and wide[1] <= 1280, panel(browser)


def test_everything_to_act_on_has_a_name(visit: Callable[..., Any]) -> None:
    roles = {"button", "link", "tab", "checkbox", "combobox", "searchbox", "textbox", "DisclosureTriangle", "option",
             "region", "tablist", "tabpanel", "table", "columnheader", "rowheader"}  # fmt: skip
    browser = visit(TAB.id)
    css(browser, ".group.on > .panel.on .opener")[0].click()
    seen = set()
    for name in (TAB.id, "sensitivity"):
        if name != TAB.id:
            jump(browser, name)
        assert panel(browser) == name
        nodes = accessible(browser)
        bare = [(role, more) for role, text, more in nodes if not text.strip() and (role in roles or more.get("focusable"))]
        assert [each for each in bare if each[0] not in {"RootWebArea", "generic", "none"}] == []
        seen |= {role for role, _, _ in nodes}
        if name == TAB.id:
            buttons = [text for role, text, _ in nodes if role == "button"]
            assert HOSTILE in buttons and f"{QUOTES} Note: see the details of this row" in buttons
    assert {"tab", "tablist", "tabpanel", "combobox", "searchbox", "checkbox", "region", "table", "columnheader"} <= seen


def test_without_scripts_everything_is_there(visit: Callable[..., Any], browser: Any) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        visit()
        nodes = accessible(browser)
        names = [text for role, text, _ in nodes if role == "heading"]
        for tab in BOARD.tabs:
            assert any(name.endswith(f": {tab.title}") for name in names)
        for entry in BOARD.entries.values():
            assert f"Provenance: {entry.name}" in names
        assert not [text for role, text, _ in nodes if role == "button"]
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_stillness_and_paper(visit: Callable[..., Any]) -> None:
    browser = visit(TAB.id)
    lasts = "return getComputedStyle(document.getElementById('theme')).transitionDuration"
    assert browser.execute_script(lasts) != "0s"
    calm = [{"name": "prefers-reduced-motion", "value": "reduce"}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": calm})
    assert browser.execute_script(lasts) == "0s"
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert not css(browser, "#filters")[0].is_displayed()
    assert css(browser, ".group.on > .panel.on table.board")[0].is_displayed()
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
