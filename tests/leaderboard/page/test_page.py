"""The page in a real browser, in journeys; and its committed bundle: of the sources, asking for nothing elsewhere, with the
licences of what is in it and colours that can be read (WCAG 2.2)."""

import hashlib
import json
import re

import pytest
import site_pages as page
from board_example import HOSTILE, QUOTES
from site_pages import browser, urls, visit  # noqa: F401 - fixtures

from stsbench.leaderboard.page.site import PAGE
from stsbench.leaderboard.page.tables import comparable
from stsbench.leaderboard.records.paths import BUNDLE

TAB, FEW = page.ODD.tabs[0], page.SMALL.tabs[0]
WIDTH = "return document.documentElement.scrollWidth"
ENTER, ESCAPE, RIGHT = "\ue007", "\ue00c", "\ue014"  # of WebDriver
WEB = BUNDLE.parent


def names(rows, rule=lambda row: True):
    return [row.method for row in rows if rule(row)]


def press_radio(browser, name, value):
    page.by_script(page.css(browser, f"[name={name}][value='{value}']")[0])


def unfold(browser):
    browser.execute_script("for (const fold of document.querySelectorAll('.answer .more, .filter-box')) fold.open = true")


def test_a_reader_finds_and_sorts_rows(visit, browser):
    visit("", which="small")
    best, lead = FEW.measured[0], FEW.measured[0].cells["Avg"]
    first = f"{best.method}: Avg {lead.value:.2f} ({lead.low:.2f}–{lead.high:.2f}), the best of 12."
    page.comes_to(lambda: first in page.said(browser, ".panels"), True)
    # Each kind of supervision has its first; a tab loads its own rows alone.
    page.requests(browser)
    visit(TAB.id)
    loaded = {url.rpartition("/")[2] for url in page.requests(browser)}
    assert loaded == {"index.html", "board.js", "board.css", "index.js", f"{TAB.id}.js"}
    unfold(browser)
    text, kinds = page.said(browser, ".answer"), comparable(TAB)
    for rows in kinds.values():
        lead = rows[0].cells["Avg"]
        assert f"{lead.value:.2f} (95 % interval {lead.low:.2f}–{lead.high:.2f})" in text and rows[0].method in text
    assert page.ranking(browser) == page.first_view(TAB) and len(page.css(browser, ".lines.measured")) == len(kinds) > 1
    # All that was measured is a click away, which the browser's own button takes back; published rows are never ranked.
    press_radio(browser, "switch-rows", "all")
    page.comes_to(lambda: page.ranking(browser), names(TAB.measured))
    assert page.fragment(browser) == f"{TAB.id}?rows=all"
    assert page.ranking(browser, "published") == names(TAB.published)[:5]
    assert "Rank" not in page.said(browser, ".lines.published")
    assert "1–2" in page.said(browser, ".lines.measured li:first-child .between")
    browser.back()
    page.comes_to(lambda: page.ranking(browser), page.first_view(TAB))
    # The scores, sorted both ways; then where lower is better and numbers are negative.
    visit(f"{TAB.id}?view=scores")
    page.comes_to(lambda: page.column(browser, "method"), names(TAB.measured))
    cells = [row.cells["STS12"].value for row in TAB.measured]
    head = page.css(browser, ".grid-box.measured .tabulator-col[tabulator-field='STS12'] .heading")[0]
    for order in ("desc", "asc"):  # numbers begin with the best
        page.by_script(head)
        expected = sorted(range(len(cells)), key=cells.__getitem__, reverse=order == "desc")
        page.comes_to(lambda expected=expected: page.column(browser, "method"), [TAB.measured[i].method for i in expected])
        assert "sort=STS12" in page.fragment(browser) and f"order={order}" in page.fragment(browser)
    visit("geometry-stsb?view=scores")
    rows = next(tab for tab in page.ODD.tabs if tab.id == "geometry-stsb").measured
    page.by_script(page.css(browser, "[tabulator-field=uniformity] .heading")[0])
    values = sorted(row.cells["uniformity"].value for row in rows)
    page.comes_to(lambda: page.column(browser, "uniformity"), [f"{value:.3f}".replace("-", "−") for value in values])


def test_filters_are_kept_in_the_address(visit, browser):
    visit(f"{TAB.id}?rows=all")

    def shows(rule):
        page.comes_to(lambda: page.ranking(browser), names(TAB.measured, rule))

    unfold(browser)
    clear, search = page.css(browser, "#filters [type=reset]")[0], page.css(browser, "#filters [type=search]")[0]
    search.send_keys("EXAMPLE roberta")
    shows(lambda row: "example" in row.method and "RoBERTa" in row.backbone)
    printed = len(names(TAB.published, lambda row: "RoBERTa" in row.backbone))  # their ids hold the other word
    assert page.said(browser, "#filters output") == f"{len(page.ranking(browser))} of 12 measured, {printed} of 50 published"
    clear.click()
    page.css(browser, "#filters .flags summary")[0].click()
    page.css(browser, "#filters [value='nli']")[0].click()
    shows(lambda row: "nli" not in row.flags)
    page.css(browser, "#filters [name=backbone] option[value='BERT-base']")[0].click()
    shows(lambda row: row.backbone == "BERT-base" and "nli" not in row.flags)
    # A choice holds from tab to tab and from view to view, and is in the link.
    press_radio(browser, "switch-aggregation", "mean")
    other = names(page.ODD.tabs[1].measured, lambda row: row.backbone == "BERT-base" and "nli" not in row.flags)
    page.comes_to(lambda: page.ranking(browser), other)
    assert page.fragment(browser) == f"{page.ODD.tabs[1].id}?rows=all&backbone=BERT-base&hide=nli"
    page.css(browser, "#tab-view-scores")[0].click()
    page.css(browser, "#filters .columns summary")[0].click()
    page.css(browser, "#filters [name=columns][value=STS13]")[0].click()
    page.comes_to(lambda: len(page.css(browser, ".grid-box.measured [tabulator-field=STS13]")), 0)
    visit(page.fragment(browser))
    page.comes_to(lambda: len(page.css(browser, ".grid-box.measured [tabulator-field=STS12]")) > 0, True)
    assert not page.css(browser, "[tabulator-field=STS13]") and set(page.column(browser, "backbone")) <= {"BERT-base"}
    visit("no-such-tab%E0%A4%A?view=nothing&open=nobody")  # a wrong link says so, and opens the first screen
    assert page.said(browser, "#panel .banner").startswith("This link names a table that is not on this board: no-such-tab")
    assert page.css(browser, ".choose table") and not page.css(browser, "dialog[open]")


def test_two_rows_are_compared(visit, browser):
    # A row opens by the keyboard to its provenance, and gives the focus back.
    visit(f"{TAB.id}?rows=all")
    row, button = TAB.measured[0], page.css(browser, ".lines.measured .open")[0]
    button.send_keys(ENTER)
    page.comes_to(lambda: "Provenance: " in page.said(browser, "#drawer"), True)
    assert f"open={row.id}" in page.fragment(browser)
    page.css(browser, "#drawer details:last-of-type summary")[-1].click()
    text, entry = page.said(browser, "#drawer"), page.ODD.entries[row.entry]
    words = [f"Provenance: {entry.name}", "numpy 2.4.6", "stsbench eval --model", "Parts of the tasks",
             *(f"{cell.low:.2f}–{cell.high:.2f}" for cell in row.cells.values())]
    assert [word for word in words if word not in text] == []
    browser.switch_to.active_element.send_keys(ESCAPE)
    page.comes_to(lambda: (page.css(browser, "dialog[open]"), "open=" in page.fragment(browser)), ([], False))
    assert browser.switch_to.active_element == button
    # The tests of pairs are loaded when two are compared, and not before.
    visit(f"{FEW.id}?rows=all", which="small")
    page.requests(browser)
    unfold(browser)
    page.css(browser, ".answer .open")[0].click()
    one, other = FEW.measured[:2]
    page.comes_to(lambda: page.css(browser, "#drawer .verdict[aria-busy]"), [])
    assert [url.rpartition("/")[2] for url in page.requests(browser)] == [f"{FEW.id}.0.js"]
    text = page.said(browser, "#drawer")
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
        page.css(browser, f"#drawer .picker label:{place}-of-type option[value='{row.id}']")[0].click()
    page.comes_to(lambda: f"compare={above.id}&compare={below.id}" in page.fragment(browser), True)
    half = FEW.pairs.halves[above.rank.position - 1, below.rank.position - 1]
    alone = above.cells["Avg"].value - below.cells["Avg"].value > half
    page.comes_to(lambda: page.said(browser, "#drawer .verdict .sure"), "significant alone" if alone else "not significant")
    page.css(browser, f"#drawer .picker label:last-of-type option[value='{FEW.published[0].id}']")[0].click()
    page.comes_to(lambda: page.said(browser, "#drawer .verdict").startswith("Not tested: nothing was observed"), True)


def test_a_hostile_entry_stays_text(visit, browser):
    hostile = next(row for row in TAB.measured if row.entry == "entry-02")
    visit(f"{TAB.id}?view=scores&open={hostile.id}")
    for kind in ("measured", "published"):
        page.comes_to(lambda kind=kind: {HOSTILE, QUOTES} <= set(page.column(browser, "method", kind)), True)
    page.comes_to(lambda: HOSTILE in page.said(browser, "#drawer .behind"), True)
    # And the page's policy stops what would get through.
    stopped = browser.execute_script("""
        const image = new Image(); image.src = 'http://127.0.0.1:9/x.png'; document.body.append(image);
        const style = document.createElement('style'); style.textContent = 'body { display: none }';
        document.head.append(style);
        const stopped = [];
        try { document.body.innerHTML = '<b>x</b>'; } catch (error) { stopped.push(error.name); }
        try { document.createElement('script').src = 'tabs/x.js'; } catch (error) { stopped.push(error.name); }
        return stopped""")
    assert stopped == ["TypeError", "TypeError"] and page.css(browser, "h1")[0].is_displayed()
    messages = " ".join(entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE")
    assert "img-src" in messages and "style-src" in messages


def test_a_phone_never_scrolls_sideways_and_a_screen_reader_is_told_names(visit, browser):
    visit(TAB.id, width=390)
    for tab in (page.ODD.tabs[-1], TAB):
        for shown in ("ranking", "scores"):
            browser.execute_script("location.hash = arguments[0]", f"{tab.id}?view={shown}")
            page.comes_to(lambda tab=tab: tab.title in page.said(browser, "h2"), True)
            assert browser.execute_script(WIDTH) <= 390, (tab.id, shown)
    row, other = TAB.measured[:2]
    visit(f"{TAB.id}?compare={row.id}&compare={other.id}", width=390)
    assert browser.execute_script("return document.querySelector('#drawer').getBoundingClientRect().right") <= 390
    # Everything to act on has a name; tabs are walked by arrows.
    roles = {"button", "link", "tab", "checkbox", "combobox", "searchbox", "textbox", "DisclosureTriangle", "option",
             "radio", "region", "tablist", "tabpanel", "table", "columnheader", "rowheader", "dialog", "list"}
    met = set()
    for at in (f"{TAB.id}?open={row.id}", f"{TAB.id}?view=scores"):
        visit(at)
        unfold(browser)
        nodes = page.accessible(browser)
        assert browser.execute_script(WIDTH) <= 1280
        bare = [role for role, text, more in nodes if not text.strip() and (role in roles or more.get("focusable"))]
        assert set(bare) <= {"RootWebArea", "generic", "none"}, at
        met |= {role for role, _, _ in nodes}
    assert {"tab", "tablist", "tabpanel", "combobox", "searchbox", "radio", "columnheader", "dialog"} <= met
    browser.execute_script("document.querySelector('#tab-group-sts').focus()")
    browser.switch_to.active_element.send_keys(RIGHT)
    active = browser.switch_to.active_element
    assert (active.get_attribute("id"), active.get_attribute("aria-selected")) == ("tab-group-transfer", "true")


def bundled(name):
    return (BUNDLE / name).read_text("utf-8")


def test_the_bundle_was_made_of_these_sources():
    """`make web` brings it up to date, and writes the same digest (build.mjs)."""
    digest = hashlib.sha256()
    sources = sorted(path.relative_to(WEB).as_posix() for path in (WEB / "src").rglob("*") if path.is_file())
    for name in ("build.mjs", "package-lock.json", "package.json", *sources):
        digest.update(f"{name}\0".encode() + (WEB / name).read_bytes() + b"\0")
    for name in ("board.js", "charts.js", "grid.js", "board.css"):
        assert f"sources sha256:{digest.hexdigest()}" in bundled(name), f"{name} is stale: run `make web`"
    assert bundled("index.html") == (WEB / "src/index.html").read_text("utf-8")
    assert sorted(path.name for path in BUNDLE.iterdir()) == sorted(PAGE)


def test_the_page_takes_nothing_inline_no_markup_and_nothing_from_elsewhere():
    html = bundled("index.html")
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', html)
    rules = dict(part.strip().split(" ", 1) for part in policy[1].split(";"))
    assert rules["default-src"] == "'none'" and rules["script-src"] == rules["style-src"] == "'self'"
    assert rules["require-trusted-types-for"] == "'script'" and "unsafe" not in policy[1]
    assert re.findall(r"<script[^>]*>", html) == ['<script defer src="board.js">', '<script defer src="index.js">']
    assert "<style" not in html and not re.search(r"\s(?:style|on\w+)=", html)
    assert not re.search(r'<(?!a )[^>]*(?:src|href)="(?:https?:)?//', html)
    assert "url(" not in bundled("board.css") and "@import" not in bundled("board.css")
    for path in (WEB / "src").rglob("*.js"):  # nor does the page's own code
        words = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|\bfetch\(|XMLHttp|Function\("
        forbidden = re.search(words, path.read_text("utf-8"))
        assert not forbidden, f"{path.name}: {forbidden}"


def test_every_package_in_the_bundle_has_its_licence():
    notices = bundled("LICENSES.txt")
    for name, version in json.loads((WEB / "package.json").read_text("utf-8"))["dependencies"].items():
        assert re.search(rf"^{re.escape(name)} {re.escape(version)} \((?:MIT|ISC)\)\n\n", notices, re.MULTILINE)
    heads = re.findall(r"^(\S+) \d[\w.]* \(([^)]+)\)$", notices, re.MULTILINE)
    assert len(heads) > 10 and {licence for _, licence in heads} <= {"MIT", "ISC", "BSD-3-Clause", "Apache-2.0"}
    assert notices.count("Copyright") >= len(heads) - 2
    hosts = set(re.findall(r'"resolved": "https?://([^/"]+)', (WEB / "package-lock.json").read_text("utf-8")))
    assert hosts <= {"registry.npmjs.org"}  # and no machine of ours


def contrast(*colours):
    """That of two colours #rrggbb, by their relative luminance (WCAG 2.2)."""
    parts = [[int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)] for colour in colours]
    linear = [[part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in each] for each in parts]
    low, high = sorted(0.2126 * red + 0.7152 * green + 0.0722 * blue for red, green, blue in linear)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("mode", [0, 1], ids=["light", "dark"])
def test_contrast_is_aa(mode):
    css = (WEB / "src/style/colours.css").read_text("utf-8")
    pairs = re.findall(r"--([\w-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)", css)
    colours = {name: values[mode] for name, *values in pairs}
    assert contrast("#000000", "#ffffff") == pytest.approx(21) and len(colours) == 17
    for path in (WEB / "src").rglob("*.css"):
        rest = re.sub(r"--[\w-]+: light-dark\([^)]*\);", "", path.read_text("utf-8"))
        assert not re.search(r":[^{};]*#[0-9a-f]{3}", rest), f"{path.name}: a colour that this test does not know"
    for ground in ("bg", "band"):
        for ink in ("ink", "muted", "accent", "warn", "good"):
            assert contrast(colours[ink], colours[ground]) >= 4.5, (ink, ground)
        for edge in (colours["edge"], *(colours[f"line-{i}"] for i in range(1, 9))):
            assert contrast(edge, colours[ground]) >= 3, (edge, ground)
